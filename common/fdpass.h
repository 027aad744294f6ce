/*
 * fdpass.h - frames with descriptors, over a Unix socket.
 *
 * SOCK_SEQPACKET: a packet is a frame, never half of one.  Descriptors that
 * arrive are close-on-exec and the receiver's own; if a packet is refused for
 * any reason they are closed here.  The peer's credentials are the kernel's
 * word (SO_PEERCRED), taken when it connected.
 */
#ifndef WEIR_FDPASS_H
#define WEIR_FDPASS_H

#include "buf.h"

#include <sys/types.h>

#define FDPASS_MAX	250		/* descriptors of one packet */
#define FDPASS_FRAME	131072u		/* bytes: an offer of most pieces */
#define FDPASS_BACKLOG	64		/* connections not yet accepted */

struct fdpass_peer {
	pid_t pid;
	uid_t uid;
	gid_t gid;
};

/* A non-blocking listener at path (a dead one's name is replaced; a live
 * one: -E_AGAIN, logged).  Descriptor or -E_*. */
int fdpass_listen(const char *path, mode_t mode);
/* A non-blocking connection, or -E_AGAIN (unlogged) if none waits. */
int fdpass_accept(int listener, struct fdpass_peer *peer);
/* A non-blocking connection to path.  -E_UNAVAIL, logged, if nobody
 * listens. */
int fdpass_dial(const char *path);

/* 0; -E_AGAIN, unlogged: the peer's buffer is full; -E_UNAVAIL, unlogged: it
 * is gone.  The descriptors stay the caller's. */
int fdpass_send(int fd, struct slice frame, const int *fds, size_t n);
/* 1 and a frame (out is cleared first) with *n descriptors, now the caller's;
 * 0 if none waits; -E_UNAVAIL, unlogged: the peer is gone; -E_PROTO, logged:
 * too large a packet or too many descriptors. */
int fdpass_recv(int fd, struct buf *out, int fds[FDPASS_MAX], size_t *n);

#endif
