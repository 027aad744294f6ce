/*
 * proc.h - starting other programs.
 *
 * Always posix_spawn: nothing of ours runs between fork and exec, so it is
 * safe with ZeroMQ's and our own threads alive (ZQ-10).  A child starts with
 * no signal blocked, SIGPIPE, SIGXFSZ and the stop signals at their defaults,
 * and only the descriptors named here (all others are close-on-exec).
 */
#ifndef WEIR_PROC_H
#define WEIR_PROC_H

#include "buf.h"

#include <sys/types.h>

#define PROC_KEEP	(-1)	/* the parent's */
#define PROC_NULL	(-2)	/* /dev/null */

struct proc_spec {
	const char *const *argv;	/* argv[0]: a path, or found in PATH */
	const char *const *env;		/* "NAME=value" added; NULL: none */
	int fd[3];			/* stdin, stdout, stderr */
	int pass_fd;			/* kept open under its number; or -1 */
	bool own_session;		/* a process group that can be killed */
};

/* The child's pid, or -E_* (logged: what could not be started). */
pid_t proc_spawn(const struct proc_spec *p);

/* Reaps pid if it has ended: 1 and the wait status, 0 if it still runs. */
int proc_reap(pid_t pid, int *status);
/* The exit code that a shell would show: 0..255, 128 + n for a signal. */
int proc_code(int status);

/* Path of a file beside this program, there or not.  Owned string. */
char *proc_beside(const char *name);
/* Path of a program of ours: beside this one, else plain name (PATH).  Owned
 * string. */
char *proc_sibling(const char *name);

#endif
