/*
 * What a mover hears and says, as points at which it dies.
 *
 *	move-nccl: hears join		before: it has done nothing of it;
 *					after: it waits again
 *	move-nccl: says grouped		before it is sent, and after
 */
#include "tests/kill/point.h"

#include "common/fdpass.h"
#include "common/log.h"
#include "pipes/msg.h"

#include <stdio.h>

static const char *name_of(struct slice frame)
{
	struct msg_arena arena = { 0 };
	struct msg m;
	int was = log_quiet_thread(true);
	int rc = msg_unpack(&m, &arena, frame);

	log_quiet_thread(was);
	msg_arena_release(&arena);
	return rc < 0 ? "?" : msg_name(m.type);
}

int __real_fdpass_send(int fd, struct slice frame, const int *fds, size_t n);
int __wrap_fdpass_send(int fd, struct slice frame, const int *fds, size_t n);
int __wrap_fdpass_send(int fd, struct slice frame, const int *fds, size_t n)
{
	char name[POINT_MAX];
	int rc;

	point_before(name, "says", name_of(frame));
	rc = __real_fdpass_send(fd, frame, fds, n);
	point_after(name);
	return rc;
}

int __real_fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n);
int __wrap_fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n);
int __wrap_fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n)
{
	int rc = __real_fdpass_recv(fd, out, fds, n);
	char text[POINT_MAX / 2];

	if (rc > 0) {
		snprintf(text, sizeof text, "hears %s",
			 name_of(buf_slice(out)));
		point_step(text);
	}
	return rc;
}
