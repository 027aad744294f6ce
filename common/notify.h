/*
 * notify.h - telling a service manager that we are ready.
 *
 * The manager's protocol: one datagram to the Unix socket that NOTIFY_SOCKET
 * names ("@" first: an abstract one).  No library for eleven bytes.
 */
#ifndef WEIR_NOTIFY_H
#define WEIR_NOTIFY_H

/* "READY=1", if the environment asks for it.  Failures are only logged: the
 * manager's time-out is the judge. */
void notify_ready(void);

#endif
