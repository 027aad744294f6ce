/*
 * tcp.h - listens on one address of this machine.
 *
 * Addresses are numbers: a name would have to be looked up, with no deadline.
 * All addresses at once ("0.0.0.0", "::") are refused: who may connect is
 * decided by where one listens.  All descriptors are close-on-exec and do not
 * block.
 */
#ifndef WEIR_TCP_H
#define WEIR_TCP_H

#include <stddef.h>
#include <stdint.h>

#define TCP_BACKLOG 512
#define TCP_NAME_MAX 64			/* "[ADDRESS]:PORT" */

/* port 0: any.  A descriptor, and the port in *port; -E_CONFIG, -E_AGAIN
 * (somebody listens there) or -E_IO, logged. */
int tcp_listen(const char *host, uint16_t *port);

/* A descriptor, and who it is, for messages.  -E_AGAIN: nobody waits (not
 * logged). */
int tcp_accept(int listener, char name[TCP_NAME_MAX]);

#endif
