#include "lease.h"
#include "err.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

static void ignore_sigio(void)
{
	struct sigaction now;

	if (sigaction(SIGIO, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
	    now.sa_handler == SIG_DFL)
		signal(SIGIO, SIG_IGN);
}

int lease_take(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ignore_sigio);
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0)
		return 0;
	return errno == EAGAIN ? -E_AGAIN : -E_UNAVAIL;
}

/* While a break is pending the kernel names what the lease must become. */
bool lease_is_held(int fd)
{
	return fcntl(fd, F_GETLEASE) == F_RDLCK;
}

void lease_release(int fd)
{
	fcntl(fd, F_SETLEASE, F_UNLCK);
}
