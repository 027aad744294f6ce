#include "fdpass.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define KINDS (SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC)

static int address(struct sockaddr_un *a, const char *path)
{
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof a->sun_path)
		return log_error(E_CONFIG,
				 "%s: longer than %zu bytes, the most a Unix "
				 "socket's path can have",
				 path, sizeof a->sun_path - 1);
	memcpy(a->sun_path, path, strlen(path));
	return 0;
}

int fdpass_dial(const char *path)
{
	struct sockaddr_un a;
	int fd, rc = address(&a, path);

	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, KINDS, 0);
	if (fd < 0)
		return log_errno(E_IO, "socket");
	if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
		return fd;
	rc = log_errno(errno == EACCES ? E_PERM : E_UNAVAIL, "connect to %s",
		       path);
	close(fd);
	return rc;
}

/* Does somebody accept there?  The name of a dead listener refuses. */
static bool is_live(const struct sockaddr_un *a)
{
	int fd = socket(AF_UNIX, KINDS, 0);
	bool live;

	if (fd < 0)
		return false;
	live = connect(fd, (const struct sockaddr *)a, sizeof *a) == 0 ||
	       errno == EAGAIN;
	close(fd);
	return live;
}

/* Asked first: on a file system that is read only nothing is there, and what
 * is wrong is that nobody can listen. */
static int remove_left(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : log_errno(E_IO, "stat %s", path);
	if (!S_ISSOCK(st.st_mode))
		return log_error(E_CONFIG, "%s is there and is no socket",
				 path);
	if (unlink(path) < 0 && errno != ENOENT)
		return log_errno(E_IO, "remove %s", path);
	log_info("removed %s: who listened there has ended", path);
	return 0;
}

int fdpass_listen(const char *path, mode_t mode)
{
	struct sockaddr_un a;
	int fd, rc = address(&a, path);

	if (rc < 0)
		return rc;
	if (is_live(&a))
		return log_error(E_AGAIN, "%s: somebody listens there", path);
	rc = remove_left(path);
	if (rc < 0)
		return rc;
	fd = socket(AF_UNIX, KINDS, 0);
	if (fd < 0)
		return log_errno(E_IO, "socket");
	/* The mode is right before anybody can connect. */
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 ||
	    chmod(path, mode) < 0 || listen(fd, FDPASS_BACKLOG) < 0) {
		rc = log_errno(E_IO, "listen on %s", path);
		close(fd);
		return rc;
	}
	return fd;
}

int fdpass_accept(int listener, struct fdpass_peer *peer)
{
	struct ucred cred;
	socklen_t len = sizeof cred;
	int fd;

	do
		fd = accept4(listener, NULL, NULL,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (fd < 0)
		return errno == EAGAIN ? -E_AGAIN : log_errno(E_IO, "accept");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0) {
		close(fd);
		return log_errno(E_IO, "credentials of a peer");
	}
	*peer = (struct fdpass_peer){ cred.pid, cred.uid, cred.gid };
	return fd;
}

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
};

int fdpass_send(int fd, struct slice frame, const int *fds, size_t n)
{
	struct iovec iov = { (void *)(uintptr_t)frame.p, frame.n };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control c = { 0 };
	ssize_t rc;

	BUG_ON(n > FDPASS_MAX || frame.n == 0 || frame.n > FDPASS_FRAME);
	if (n > 0) {
		h.msg_control = &c;
		h.msg_controllen = CMSG_SPACE(n * sizeof *fds);
		c.align = (struct cmsghdr){ .cmsg_level = SOL_SOCKET,
					    .cmsg_type = SCM_RIGHTS,
					    .cmsg_len =
						    CMSG_LEN(n * sizeof *fds) };
		memcpy(CMSG_DATA(&c.align), fds, n * sizeof *fds);
	}
	do
		rc = sendmsg(fd, &h, MSG_NOSIGNAL);
	while (rc < 0 && errno == EINTR);
	if (rc >= 0)
		return 0;
	if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
		return -E_AGAIN;
	if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
		return -E_UNAVAIL;
	return log_errno(E_IO, "send %zu descriptors", n);
}

static size_t take_fds(struct msghdr *h, int fds[FDPASS_MAX])
{
	size_t n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		size_t len = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + n, CMSG_DATA(c), len);
		n += len / sizeof *fds;
	}
	return n;
}

int fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n)
{
	struct iovec iov;
	union control c;
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = &c,
			    .msg_controllen = sizeof c };
	ssize_t rc;
	size_t got;

	buf_clear(out);
	iov = (struct iovec){ buf_reserve(out, FDPASS_FRAME), FDPASS_FRAME };
	do
		rc = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (rc < 0 && errno == EINTR);
	if (rc < 0 && errno == EAGAIN)
		return 0;
	if (rc < 0)
		return -E_UNAVAIL;
	got = take_fds(&h, fds);
	if (rc > 0 && !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		out->n = (size_t)rc;
		*n = got;
		return 1;
	}
	/* An empty packet looks like the end, but may carry descriptors. */
	while (got > 0)
		close(fds[--got]);
	if (rc == 0)
		return -E_UNAVAIL;
	return log_error(E_PROTO,
			 "a packet of more than %u bytes or %u descriptors",
			 FDPASS_FRAME, FDPASS_MAX);
}
