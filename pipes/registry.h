/*
 * registry.h - the publisher's durable state: the only module that touches
 * it.  Engines never open it.
 *
 *	DIR/			0700, owner checked
 *	  id			32 hex digits, made once
 *	  epoch			highest epoch ever handed to a run
 *	  lock			flock; text: pid, start, run of the holder
 *	  open			the run that may have touched engines
 *	  attention		engines that a run could not bring home
 *	  versions/000042/	plan, receipts, decision
 *	  current		-> versions/000042, derived, repaired at each start
 *	  ledger		one JSON line per event
 *
 * Invariants.  A version is published if and only if its `decision` is there
 * (linked once, never replaced).  `decision` is linked after `plan` and
 * `receipts` of the same run are durable.  `current` and `ledger` may lag
 * behind a crash and are never believed over a decision.  Every write needs
 * the lock; reading does not.
 *
 * Crash outcomes: share/doc/internals.md, section "Registry".
 */
#ifndef WEIR_REGISTRY_H
#define WEIR_REGISTRY_H

#include "pipes/msg.h"
#include "pipes/planfile.h"

#include <sys/types.h>

#define REG_ID_LEN	32	/* hex digits */
#define REG_LINE_MAX	8192	/* bytes of one ledger line */

struct registry {
	int dirfd, versions_fd;
	int lock_fd;			/* -1: not held */
	char *path;
	char id[REG_ID_LEN + 1];
	uint64_t epoch;			/* highest seen */
	uint64_t kept_epoch;		/* what the file of that name says */
	bool has_told;			/* ledger lines that are not synced */
	bool has_missed;		/* one that could not be written */
	bool knows_highest;		/* while the lock is held */
	uint64_t highest;
};

/* A record that was read, with the memory it borrows. */
struct reg_rec {
	struct rec_reader rec;
	struct msg_arena arena;
	struct msg m;
};
void reg_rec_release(struct reg_rec *r);	/* fine on a zeroed one */

struct reg_holder {
	long pid;
	char start[32], run[65];
};

/* "${XDG_STATE_HOME:-~/.local/state}/weir".  Owned.  -E_CONFIG if neither
 * variable is set. */
int registry_default_path(char **out);
/* NULL if locks on a file system of this statfs type can be trusted, else
 * its name.  Pure. */
const char *registry_fs_unsafe(long type);

/* Makes the directory and its id if needed.  -E_PERM: not ours or open to
 * others; -E_CONFIG: a file system that can lose locks. */
int registry_make(struct registry *r, const char *path);
/* Only looks: -E_NOINPUT, not logged, if there is no registry. */
int registry_look(struct registry *r, const char *path);
void registry_close(struct registry *r);	/* drops the lock */

/* -E_AGAIN, not logged, if somebody alive holds it.  On success temp files
 * of dead processes are swept, a torn ledger line is cut, `current` is
 * repaired, and the epoch is read again, of `open` as well. */
int registry_lock(struct registry *r, const char *run);
void registry_unlock(struct registry *r);
/* Is it free just now?  1, 0, or -E_*.  Never takes it for longer than the
 * question, and writes nothing. */
int registry_is_free(const struct registry *r);
/* Who holds it, as far as its text says; fields may be empty. */
void registry_holder(struct registry *r, struct reg_holder *h);

/* 1 and *out, 0 if there is none. */
int registry_open_read(struct registry *r, struct reg_rec *out);
/* Removes what dead processes left half written in versions/N.  Count. */
int registry_version_sweep(struct registry *r, uint64_t version);
/* Both durable.  While `open` is there it tells the run's epoch; it goes when
 * that is kept, so that none is handed out twice. */
int registry_open_write(struct registry *r, const struct msg *open);
int registry_open_remove(struct registry *r);

/* Highest decided number, 0 if none.  Directories are synced before what
 * they show is believed. */
int registry_highest(struct registry *r, uint64_t *version);
/* Highest number that a run was opened for, decided or not; 0: none. */
int registry_tried(struct registry *r, uint64_t *version);
/* 1 and the lowest decided number above after, 0 if there is none: as numbers
 * only go up, each is met once by who asks on from the last. */
int registry_next(struct registry *r, uint64_t after, uint64_t *version);
/* Highest decided numbers, descending, into v[n].  How many. */
int registry_last(struct registry *r, uint64_t *v, size_t n);
/* 1 and the decision of a version, 0 if it is not decided. */
int registry_decision(struct registry *r, uint64_t version,
		      struct reg_rec *out);
/* 1 and the decision that this run has linked, 0 if there is none. */
int registry_decision_of(struct registry *r, const char *run, uint64_t epoch,
			 struct reg_rec *out);
/* 1 and the plan that a decided version was made by, 0 if there is none. */
int registry_plan(struct registry *r, uint64_t version, struct plan *out);
/* 1 and the highest decided number below before whose content is another one,
 * 0 if there is none. */
int registry_previous(struct registry *r, uint64_t before,
		      const struct digest *content, uint64_t *version);
/* 1 and its receipts: one per call of rec_next() on out->rec.  0 if there are
 * none. */
int registry_receipts_read(struct registry *r, uint64_t version,
			   struct reg_rec *out);
/* A fresh directory for an undecided version, with the run's plan in it
 * (hard link, or a copy on another file system).  -E_AGAIN if the version is
 * decided. */
int registry_version_make(struct registry *r, uint64_t version, int run_dirfd);
/* all: the receipts record and the receipts, as rec_append() made them. */
int registry_receipts_write(struct registry *r, uint64_t version,
			    struct slice all);
/* The point of no return.  *linked as io_create_once(): with it set, a
 * failure leaves the outcome unknown. */
int registry_decide(struct registry *r, const struct msg *decision,
		    bool *linked);
int registry_repair_current(struct registry *r);

/* All attention records, one after the other: 1 per call of rec_next() on
 * out->rec.  0 if there are none. */
int registry_attention_read(struct registry *r, struct reg_rec *out);
/* Replaces them: all as rec_append() made them; empty removes the file. */
int registry_attention_write(struct registry *r, struct slice all);

/* One event of the ledger; what is NULL or 0 is left out. */
struct reg_event {
	const char *event;		/* opened decided serving ... */
	const char *run, *engine, *cause;
	uint64_t epoch, version;
	const struct digest *content;
};
/* Appends one line.  Lines are synced before `open` is removed, or the lock
 * let go: what a power cut takes, recovery tells again.  A line that cannot be
 * written is warned of, once: the other files tell what happened. */
void registry_ledger(struct registry *r, const struct reg_event *e);
/* The last whole line, without newline, appended; 0 if there is none. */
int registry_ledger_last(struct registry *r, struct buf *out);
/* The whole lines among its last max bytes, appended; 0 or -E_*. */
int registry_ledger_tail(struct registry *r, size_t max, struct buf *out);

/* For tests: called between any two durable steps. */
extern void (*registry_step)(const char *what);

#endif
