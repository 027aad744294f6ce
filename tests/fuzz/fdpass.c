#include "common/fdpass.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOME_FDS 253 /* the kernel's most */

static void put(int to, struct slice frame, size_t nfds)
{
	static union {
		char room[CMSG_SPACE(SOME_FDS * sizeof(int))];
		struct cmsghdr align;
	} u;
	struct iovec v = { (char *)(uintptr_t)frame.p, frame.n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	struct cmsghdr *c = &u.align;

	if (nfds > 0) {
		m.msg_control = &u;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		for (size_t i = 0; i < nfds; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &to, sizeof to);
	}
	BUG_ON(sendmsg(to, &m, MSG_DONTWAIT) < 0);
}

static int next_fd(void)
{
	int fd = dup(STDERR_FILENO);

	close(fd);
	return fd;
}

/* Packets of any size with any number of descriptors: none stays open. */
void fuzz_fdpass(struct slice in)
{
	static struct buf frame;
	int pair[2], fds[FDPASS_MAX], free_fd = next_fd();
	size_t n;

	BUG_ON(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) <
	       0);
	while (in.n > 0) {
		size_t nfds = (size_t)fuzz_number(&in, 1) % (SOME_FDS + 1);
		struct slice packet = fuzz_part(&in);
		int rc;

		put(pair[1], packet, nfds);
		rc = fdpass_recv(pair[0], &frame, fds, &n);
		BUG_ON(rc == 0);
		if (rc < 0)
			break;
		BUG_ON(!slice_eq(buf_slice(&frame), packet) || n != nfds);
		while (n > 0)
			close(fds[--n]);
	}
	close(pair[0]);
	close(pair[1]);
	BUG_ON(next_fd() != free_fd);
}
