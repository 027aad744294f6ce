/*
 * run.h - the run directory: one attempt to publish, as facts on disk.
 *
 *	RUN/plan.weir		the whole plan, created once by link
 *	RUN/STAGE.options	resolved options of the first instance
 *	RUN/STAGE.N		instance N of STAGE: its pid; locked while alive.
 *				It stays, so that numbers only go up
 *	RUN/STAGE.endpoint	where the newest instance listens (by rename)
 *	RUN/STAGE.N.sock	the Unix socket behind it
 *	RUN/epoch		what commit has opened the run with, before it did
 *	RUN/events		one JSON line per event (pipes/events.h)
 *	RUN/sources/R		what source rank R had on a device (plan_take.h);
 *				gone once the run has ended
 *	RUN/verdict		the verdict record, written before it is sent
 *
 * Default place: $XDG_RUNTIME_DIR/weir/RUN, for root /run/weir/RUN, else a
 * 0700 directory of the user's in the temporary directory.  Owner and mode
 * are checked (-E_PERM).  Names look like 20261129T201032-4f3a9c1e; those that
 * users give are at most RUN_NAME_MAX printable ASCII characters.
 *
 * A finished or abandoned run (verdict, or no live instance lock) is removed
 * when a later one starts and more than RUN_KEEP are there; a killed stage's
 * socket and temp files are removed by whoever next starts or ends in that run.
 */
#ifndef WEIR_RUN_H
#define WEIR_RUN_H

#include "pipes/msg.h"

#include <sys/types.h>

#define RUN_KEEP	8	/* finished runs left for dump and timeline */
#define RUN_NAME_MAX	64
#define RUN_SOURCES	"sources"

struct run {
	int dirfd;
	char *path;			/* absolute */
	char name[RUN_NAME_MAX + 1];	/* last component of path */
	enum stage_id stage;		/* STAGE_NONE: only looking */
	uint32_t instance;
	int lock_fd;			/* of STAGE.N */
};

/* Makes a new one (path NULL: default place, fresh name) or, for an existing
 * path, opens it.  -E_PERM, -E_NOINPUT (must_exist), -E_IO. */
int run_open(struct run *r, const char *path, bool must_exist);
void run_close(struct run *r);
/* The default parent directory, made if needed.  Owned string. */
int run_default_parent(char **out);

/* Takes the next free instance number of stage (O_EXCL) and locks it. */
int run_enter(struct run *r, enum stage_id stage);
/* Is RUN/verdict there? */
bool run_has_ended(const struct run *r);
/* Removes what instances that were killed at their very end left behind;
 * every stage does it as well.  For a supervisor, when they have ended. */
void run_tidy(const struct run *r);
/* Removes our endpoint and socket, and gives the lock up. */
void run_leave(struct run *r);
/* Is there a newer instance of our stage?  Then we are to end with 76. */
bool run_is_superseded(const struct run *r);
/* Is the newest instance of stage alive?  pid 0 if there never was one. */
bool run_is_alive(const struct run *r, enum stage_id stage, pid_t *pid);
/* Is that an older instance of our stage, whose process has not ended? */
bool run_is_older(const struct run *r, pid_t pid);

/* First instance: stores text.  Later: -E_CONFIG, naming the first line that
 * differs.  A later instance that got no options reads them with _read. */
int run_options(struct run *r, const char *text);
int run_options_read(struct run *r, enum stage_id stage, struct buf *out);

/* The endpoint for our instance ("ipc://..."): paths over 107 bytes go, by
 * hash, to a short name below the temporary directory (0700, owner checked).
 * run_announce() switches STAGE.endpoint after the bind. */
int run_endpoint(struct run *r, char **out);
int run_announce(struct run *r, const char *endpoint);
int run_lookup(struct run *r, enum stage_id stage, char **out); /* -E_NOINPUT
								   if none */

/* The epoch that this run is opened with; 0 if it has not come so far.  It
 * tells this run's records in the registry from those of an earlier run that
 * had the same name, whose directory is gone. */
int run_epoch_write(struct run *r, uint64_t epoch);
int run_epoch_read(const struct run *r, uint64_t *epoch);

/* Durable enough to outlive the writer; the first verdict wins: a second one
 * returns -E_AGAIN.  m is M_verdict. */
int run_verdict_write(struct run *r, const struct msg *m);
/* 1 and *m (borrows frame, arena), 0 if there is none yet. */
int run_verdict_read(struct run *r, struct msg *m, struct msg_arena *a,
		     struct buf *frame);

#endif
