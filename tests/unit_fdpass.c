#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "tests/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void test_carry(int a, int b)
{
	struct buf in = { 0 };
	int fds[FDPASS_MAX], mine[FDPASS_MAX];
	size_t n = 9;

	eq_i64(fdpass_recv(b, &in, fds, &n), 0, "nothing waits");
	for (size_t i = 0; i < FDPASS_MAX; i++)
		mine[i] = a;
	eq_i64(fdpass_send(a, SLICE("frame"), mine, FDPASS_MAX), 0, "send");
	eq_i64(fdpass_recv(b, &in, fds, &n), 1, "receive");
	eq_u64(n, FDPASS_MAX, "all descriptors");
	ok(slice_eq(buf_slice(&in), SLICE("frame")), "the frame");
	ok(fcntl(fds[0], F_GETFD) & FD_CLOEXEC, "close-on-exec");
	while (n > 0)
		close(fds[--n]);
	eq_i64(fdpass_send(b, SLICE("x"), NULL, 0), 0, "without descriptors");
	eq_i64(fdpass_recv(a, &in, fds, &n), 1, "received");
	eq_u64(n, 0, "none");
	buf_release(&in);
}

static void test_too_large(int a, int b)
{
	struct buf in = { 0 };
	char *big = calloc(1, FDPASS_FRAME + 1);
	unsigned before = open_fds();
	int fds[FDPASS_MAX];
	size_t n;

	ok(send(a, big, FDPASS_FRAME + 1, 0) > 0, "a large packet");
	eq_i64(fdpass_recv(b, &in, fds, &n), -E_PROTO, "is refused");
	eq_u64(open_fds(), before, "nothing stays open");
	free(big);
	buf_release(&in);
}

/* Looks like the end of the connection, and carries a descriptor. */
static void test_empty(int a, int b)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} c = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct msghdr h = { .msg_control = &c, .msg_controllen = sizeof c };
	unsigned before = open_fds();
	struct buf in = { 0 };
	int fds[FDPASS_MAX];
	size_t n;

	memcpy(CMSG_DATA(&c.head), &a, sizeof a);
	eq_i64(sendmsg(a, &h, 0), 0, "an empty packet");
	eq_i64(fdpass_recv(b, &in, fds, &n), -E_UNAVAIL, "is an end");
	eq_u64(open_fds(), before, "its descriptor is closed");
	buf_release(&in);
}

static void test_gone(int a, int b)
{
	struct buf in = { 0 };
	int fds[FDPASS_MAX];
	size_t n;

	close(a);
	eq_i64(fdpass_recv(b, &in, fds, &n), -E_UNAVAIL, "the peer is gone");
	eq_i64(fdpass_send(b, SLICE("x"), NULL, 0), -E_UNAVAIL, "to nobody");
	close(b);
	buf_release(&in);
}

int main(void)
{
	char dir[] = "/tmp/unit_fdpass.XXXXXX";
	struct fdpass_peer peer;
	struct stat st;
	int l, a, b;

	log_init("unit_fdpass", LOG_ERROR);
	log_quiet_thread(1);
	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof path, "%s/s.fd", dir);
	eq_i64(fdpass_dial(path), -E_UNAVAIL, "nobody listens");
	l = fdpass_listen(path, 0600);
	ok(l >= 0, "listen");
	ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "mode 0600");
	eq_i64(fdpass_listen(path, 0600), -E_AGAIN, "a second listener");
	while ((b = fdpass_accept(l, &peer)) >= 0)
		close(b);
	eq_i64(b, -E_AGAIN, "nobody waits");
	a = fdpass_dial(path);
	b = fdpass_accept(l, &peer);
	ok(a >= 0 && b >= 0, "dial and accept");
	ok(peer.pid == getpid() && peer.uid == geteuid(), "credentials");
	test_carry(a, b);
	test_too_large(a, b);
	test_empty(a, b);
	test_gone(a, b);
	close(l);
	l = fdpass_listen(path, 0600);
	ok(l >= 0, "a dead one's name is replaced");
	close(l);
	unlink(path);
	rmdir(dir);
	return tap_done();
}
