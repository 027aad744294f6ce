/*
 * sockpath.h - the file of a Unix socket that somebody else serves.
 *
 * We make it ourselves: libzmq would remove a live listener's, and would
 * remove at its end what another process has put there since.
 */
#ifndef WEIR_SOCKPATH_H
#define WEIR_SOCKPATH_H

#include <stdbool.h>
#include <stdint.h>

#define SOCK_PATH_MAX	107	/* bytes, without the NUL; the kernel's */

/* {0} is none. */
struct sockpath {
	char *path;		/* owned */
	uint64_t dev, ino;	/* of the file that we made */
};

/* Binds, mode 0600, and listens: the descriptor, the caller's.  A dead
 * process's file is replaced, a live one's never (-E_AGAIN); what is no socket
 * is left alone (-E_CONFIG). */
int sockpath_listen(struct sockpath *s, const char *path, int backlog);
/* Does anybody listen at path just now?  Also who has no time to accept. */
bool sockpath_has_listener(const char *path);
/* Is fd a connection to it? */
bool sockpath_is_of(const struct sockpath *s, int fd);
/* Ours alone: another process may have taken a dead-looking path over. */
void sockpath_remove(struct sockpath *s);

#endif
