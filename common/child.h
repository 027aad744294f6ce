/*
 * child.h - a shell command that belongs to us: its last words, its end.
 *
 * Runs `sh -c COMMAND` in a session of its own; what it prints (both streams)
 * goes to our log line by line, as warnings what a program named as `what`
 * warns of, and the last line is kept for the message of a failure.  When it
 * ends, whatever it left in its session is killed; when we end, be it by
 * SIGKILL, all of it is.  For a loop (watch child_fds) or for a thread
 * (child_run); no call blocks longer than it says.
 */
#ifndef WEIR_CHILD_H
#define WEIR_CHILD_H

#include "buf.h"

#include <stdatomic.h>
#include <sys/types.h>

#define CHILD_LINE_MAX 512	/* bytes of a line; longer ones are cut */

struct child {
	pid_t pid;		/* 0: none */
	int pidfd, out_fd;	/* readable: ended; printed something */
	int life_fd;		/* its end tells the session that we ended */
	const char *what;	/* for messages: "post-load"; lent */
	int code;		/* as a shell shows it, once it has ended */
	char line[CHILD_LINE_MAX];	/* last whole line */
	char part[CHILD_LINE_MAX];	/* one being read */
	size_t n;
};

#define CHILD_NONE { .pidfd = -1, .out_fd = -1, .life_fd = -1 }

/* env: "NAME=value" added, NULL at the end. */
int child_start(struct child *c, const char *what, const char *command,
		const char *const *env);
/* The command has this descriptor as well, under its number. */
int child_start_with(struct child *c, const char *what, const char *command,
		     const char *const *env, int fd);
/* Call it whenever one of the two descriptors is readable; it may close them
 * (then they are -1).  0: runs on; 1: it ended with
 * success; -E_IO: it ended otherwise, logged with status and last line. */
int child_step(struct child *c);
/* SIGKILL for its whole session; reaps.  Fine on CHILD_NONE. */
void child_kill(struct child *c);

/* All of it in a thread: 0; -E_IO as above; -E_TIMEOUT after ms, logged;
 * -E_AGAIN, unlogged, within 100 ms of *cancel. */
int child_run(const char *what, const char *command, const char *const *env,
	      int64_t ms, const atomic_bool *cancel);

#endif
