#include "notify.h"
#include "log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void notify_ready(void)
{
	static const char ready[] = "READY=1";
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const char *path = getenv("NOTIFY_SOCKET");
	socklen_t len;
	int fd;

	if (!path || (path[0] != '/' && path[0] != '@') ||
	    strlen(path) >= sizeof a.sun_path)
		return;
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
			  strlen(path));
	memcpy(a.sun_path, path, strlen(path));
	if (path[0] == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || sendto(fd, ready, sizeof ready - 1, MSG_NOSIGNAL,
			     (const struct sockaddr *)&a, len) < 0)
		log_warn("cannot tell %s that we are ready: %s", path,
			 strerror(errno));
	if (fd >= 0)
		close(fd);
}
