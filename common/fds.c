#include "fds.h"
#include "err.h"
#include "log.h"

#include <dirent.h>
#include <sys/resource.h>

size_t fds_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	size_t n = 0;

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n < 3 ? 0 : n - 3; /* ".", ".." and d's own */
}

int fds_need(size_t need, const char *what)
{
	size_t used = fds_open();
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return log_errno(E_CONFIG, "limit of descriptors");
	if (lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
			getrlimit(RLIMIT_NOFILE, &lim);
	}
	if (used + need <= lim.rlim_cur)
		return 0;
	return log_error(E_CONFIG,
			 "%s need %zu descriptors beside %zu in use, and the "
			 "limit is %llu: raise it (ulimit -n)",
			 what, need, used, (unsigned long long)lim.rlim_cur);
}
