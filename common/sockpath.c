#include "sockpath.h"
#include "buf.h"
#include "err.h"
#include "log.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static_assert(sizeof((struct sockaddr_un){ 0 }.sun_path) == SOCK_PATH_MAX + 1,
	      "SOCK_PATH_MAX is the kernel's");

static int unix_socket(const char *path, struct sockaddr_un *sa)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return log_errno(E_IO, "socket");
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(sa->sun_path, path, strlen(path) + 1);
	return fd;
}

static int remove_left(const char *path)
{
	if (unlink(path) == 0)
		log_info("removed %s: who listened there has ended", path);
	else if (errno != ENOENT)
		return log_errno(E_IO, "remove %s", path);
	return 0;
}

static int reach(int fd, const struct sockaddr_un *sa)
{
	int rc;

	do
		rc = connect(fd, (const struct sockaddr *)sa, sizeof *sa);
	while (rc < 0 && errno == EINTR);
	return rc;
}

/* EAGAIN: its backlog is full. */
bool sockpath_has_listener(const char *path)
{
	struct sockaddr_un sa;
	int fd = unix_socket(path, &sa);
	bool has;

	if (fd < 0)
		return false;
	has = reach(fd, &sa) == 0 || errno == EAGAIN;
	close(fd);
	return has;
}

/* Removes a dead process's socket file.  A live one accepts, or its backlog
 * is full (EAGAIN). */
static int clear_path(const char *path)
{
	struct sockaddr_un sa;
	struct stat st;
	int fd, rc;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : log_errno(E_IO, "stat %s", path);
	if (!S_ISSOCK(st.st_mode))
		return log_error(E_CONFIG, "%s is there and is no socket",
				 path);
	fd = unix_socket(path, &sa);
	if (fd < 0)
		return fd;
	rc = reach(fd, &sa);
	if (rc == 0 || errno != ECONNREFUSED)
		rc = log_error(E_AGAIN, "%s is in use by a running process",
			       path);
	else
		rc = remove_left(path);
	close(fd);
	return rc;
}

int sockpath_listen(struct sockpath *s, const char *path, int backlog)
{
	struct sockaddr_un sa;
	struct stat st;
	int fd, rc = clear_path(path);

	if (rc < 0)
		return rc;
	fd = unix_socket(path, &sa);
	if (fd < 0)
		return fd;
	/* The mode of the file to be: without a race, whatever the umask. */
	fchmod(fd, 0600);
	if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
		rc = log_errno(E_IO, "bind %s", path);
	else if (lstat(path, &st) < 0 || listen(fd, backlog) < 0)
		rc = log_errno(E_IO, "listen at %s", path);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	s->path = xstrdup(path);
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return fd;
}

bool sockpath_is_of(const struct sockpath *s, int fd)
{
	struct sockaddr_un sa = { 0 };
	socklen_t len = sizeof sa;

	return getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
	       sa.sun_family == AF_UNIX &&
	       strncmp(sa.sun_path, s->path, sizeof sa.sun_path) == 0;
}

void sockpath_remove(struct sockpath *s)
{
	struct stat st;

	if (!s->path)
		return;
	if (lstat(s->path, &st) == 0 && st.st_dev == s->dev &&
	    st.st_ino == s->ino)
		unlink(s->path);
	free(s->path);
	*s = (struct sockpath){ 0 };
}
