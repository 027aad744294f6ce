/*
 * handoff.h - the one line that a stage hands to the next through the pipe.
 *
 *	weir-link 1 RUNDIR ENDPOINT\n	upstream listens at ENDPOINT
 *	weir-fail 1 EXITCODE CAUSE\n	upstream has ended: end like it
 *
 * RUNDIR may hold spaces but no "//", so the first " ipc://" ends it.  The
 * descriptor that the line goes to is no longer called stdout: what anything
 * else prints there goes to stderr (UX-04).
 */
#ifndef WEIR_HANDOFF_H
#define WEIR_HANDOFF_H

#include "common/buf.h"

#define HANDOFF_MAX 4096	/* bytes of a line, and atomic in a pipe */

/* The real stdout under another number, close-on-exec; the number 1 is
 * stderr from the first call on.  The same descriptor at every call; -E_*. */
int handoff_stdout(void);

enum handoff_kind { HANDOFF_LINK, HANDOFF_FAIL };
struct handoff {
	enum handoff_kind kind;
	char run[HANDOFF_MAX], endpoint[HANDOFF_MAX];	/* of a link */
	int code;					/* of a failure */
	char cause[HANDOFF_MAX];
};
/* line: without the newline.  -E_PROTO, logged. */
int handoff_parse(struct handoff *h, struct slice line);

/* -E_UNAVAIL, not logged: nobody reads any more. */
int handoff_put_link(const char *run, const char *endpoint);
/* Only into a pipe or socket, for a terminal's user has seen the cause. */
void handoff_put_fail(int code, const char *cause);
/* Can the reader's end be noticed on it? */
bool handoff_is_pipe(void);
/* Has the reader of our line gone? */
bool handoff_has_hung_up(void);

#endif
