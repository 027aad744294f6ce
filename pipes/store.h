/*
 * store.h - an engine's durable state, and all that touches it.
 *
 *	STORE/lock		held while an engine lives; its pid
 *	STORE/fence		record fence_file: whose word counts
 *	STORE/versions/000042/	sealed, byte-identical checkpoint (or what
 *				post-load made of it)
 *	STORE/staging/000043/	being filled, or sealed and not yet served
 *	STORE/slots/000042	record slot: that version is sealed
 *	STORE/current		-> versions/000042, switched by rename
 *	STORE/paused		empty; the engine process may be paused
 *	STORE/device/		of versions on a device: devpage.h; not the
 *				store's, and made anew by every start
 *	STORE/reserve		room to write a fence where a slot has taken
 *				all the rest, so that a cancel can free it
 *
 * A version is sealed if and only if its slot record is there; `current`
 * alone says what is served.  share/doc/internals.md ("Store") lists what is
 * true after a crash at each step; store_open() puts it right.
 *
 * Nobody else writes here, and a file that anybody has open or mapped is
 * never written: it is unlinked and made anew.  Not for threads, except the
 * functions that say so.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include "common/fence.h"
#include "common/slotfile.h"
#include "pipes/msg.h"

#include <stdatomic.h>

#define STORE_PATH_MAX	255	/* bytes of a file's path in a version */
#define STORE_DEPTH_MAX 16	/* components of it */
#define STORE_NAME_SIZE 64	/* "versions/000042" and its like */
#define STORE_FILES_MAX 8192	/* of a version, as in msg.def */
#define STORE_BOOT_LEN	32	/* characters of an engine's boot id */

struct store_file {
	char *path;
	uint64_t bytes, header;
	struct digest digest;		/* of the header */
	enum file_kind kind;
};

/* What is known of a version: the slot record, owned.  {0} is an empty one. */
struct store_slot {
	char *registry, *run, *post_load;
	uint64_t epoch, version, bytes;
	uint64_t spare;			/* beside bytes, for post-load; not
					 * recorded */
	bool whole;			/* comes as a directory; not recorded */
	struct digest structure, received, installed;
	enum proof_level proof;
	bool varies;
	uint32_t worker, workers;	/* served, as begun */
	struct store_file *file;	/* in path order */
	uint32_t nfiles;
};

/* A version's files, open for writing, in the order of its slot.  Kept from
 * push to push, so that the pages of a retired version need not be mapped
 * anew.  {0} is an empty one. */
struct store_files {
	uint64_t version;
	char **path;
	struct slotfile *file;
	uint32_t n;
};

struct store {
	char *path;
	int dirfd, lock_fd;
	int versions_fd, staging_fd;	/* open: a pause waits for no open */
	unsigned keep;			/* versions; at least 1 */
	char boot[STORE_BOOT_LEN + 1];	/* random, new at each open */
	struct fence fence;
	uint64_t highest;		/* number ever held */
	uint64_t serving;		/* 0: nothing */
	uint64_t staged;		/* sealed in staging/; 0: none */
	bool paused;			/* STORE/paused is there */
	bool has_reserve;		/* STORE/reserve is */
	bool unsure;			/* of what is served on disk */
	uint64_t *version;		/* in versions/, ascending */
	uint32_t nversions;
	struct store_files *kept;	/* of served and retired versions */
	uint32_t nkept;
};

/* May be closed. */
#define STORE_CLOSED ((struct store){ .dirfd = -1, .lock_fd = -1, \
				      .versions_fd = -1, .staging_fd = -1 })

/* Makes what is missing, locks, recovers.  -E_AGAIN naming the pid if
 * another engine holds it. */
int store_open(struct store *s, const char *dir, unsigned keep);
void store_close(struct store *s);

/* Durable when it returns; s->fence and s->highest follow only then. */
int store_set_fence(struct store *s, const struct fence *f, uint64_t highest);

/* The engine process may be paused by --on-pause, whoever dies: durable
 * before it is, and s->paused tells the next life. */
int store_set_paused(struct store *s);
void store_unset_paused(struct store *s);

/* Bytes that a new version may take: free ones, and those that reuse and the
 * removal of retired versions and of staging give back.  0 on failure. */
uint64_t store_room(const struct store *s);

/* A version whose place is being made; see below.  Owned by who makes it. */
struct store_making {
	struct store *s;
	const struct store_slot *slot;	/* lent until the end */
	int dirfd;			/* staging/N; -1: none */
	char from[STORE_NAME_SIZE];	/* versions/R, or "" */
	struct store_files old;		/* what was kept open of R */
	struct store_files made;
};

/*
 * Makes staging/N with all files of slot at their sizes, space reserved,
 * contents undefined, and opens them.  Whatever was in staging is dropped;
 * the oldest version beyond keep gives its files, others beyond keep are
 * removed.  Of a slot that comes whole (fetch.h makes its files) staging/N is
 * empty, and what retires is removed.  -E_IO naming need (spare included) and
 * have if space lacks (then
 * staging/N is gone again).
 *
 * In two steps: fresh pages of a large version take seconds, which a loop
 * must not wait for.  store_make_space() may run in a thread and ends early,
 * with -E_AGAIN, when cancel is set; k is used up by it, and by a failed
 * store_make_names().
 */
int store_make_names(struct store *s, const struct store_slot *slot,
		     struct store_making *k);
int store_make_space(struct store_making *k, const atomic_bool *cancel,
		     struct store_files *out);
/* Gives up between the two; fine on one that is {0} or used up. */
void store_make_undo(struct store_making *k);
/*
 * A version whose content is known already may be kept under another number.
 * store_find() gives the record of the newest such: 1, or 0.  store_link()
 * makes staging/VERSION of it, by hard links to all that is there, and retires
 * what is beyond keep; its files have two names from then on, so that nothing
 * is ever written into them again.
 */
struct store_want {
	struct digest content, structure;	/* as received */
	const char *post_load;
};
int store_find(const struct store *s, const struct store_want *w,
	       struct store_slot *out);
int store_link(struct store *s, uint64_t kept, uint64_t version);
/* Keeps the open files of a version that was published. */
void store_keep_take(struct store *s, struct store_files *f);
void store_files_release(struct store_files *f);
/* The directory of a version, wherever it is; descriptor or -E_*.
 * Thread-safe, as are the next two. */
int store_open_dir(const struct store *s, uint64_t version);
/* Its absolute path.  Owned string. */
char *store_slot_path(const struct store *s, uint64_t version);
/* The same of where it will be once it is served.  Owned string. */
char *store_version_path(const struct store *s, uint64_t version);
/* Readable for all, and fsync of everything below staging/N. */
int store_sync(const struct store *s, uint64_t version);

/* Seals: the record, durable.  The content must have been synced. */
int store_seal(struct store *s, const struct store_slot *slot);
/* The record of a sealed version.  -E_NOINPUT, unlogged, if there is none. */
int store_slot_load(const struct store *s, uint64_t version,
		    struct store_slot *out);
void store_slot_release(struct store_slot *slot);
/* Copies what begin says of a version.  -E_DATA: a path that is absolute,
 * escapes or is out of order, a sum that is wrong; -E_FENCED never. */
int store_slot_init(struct store_slot *slot, const struct m_begin *b);

/* Drops whatever staging holds, sealed or not. */
int store_drop_staging(struct store *s);

/* Serves the sealed version of staging/: rename, then `current`.  On failure
 * the old version is served still, or s->unsure says that even that is not
 * known: then only a new start can tell. */
int store_publish(struct store *s);
/* Back again: `old` (0: nothing) is served, the version is staged. */
int store_unpublish(struct store *s, uint64_t old);

#endif
