/*
 * watch.h - what the checks of I1-I13 know.  They see every frame that is
 * sent or taken, every name that changes on the disk and every end of a
 * process, and they know the truth: the bytes of the sources and slots, and
 * what the disk would keep.  They share no code with what they check, but for
 * the decoder.
 */
#ifndef WEIR_SIM_WATCH_H
#define WEIR_SIM_WATCH_H

#include "pipes/msg.h"
#include "world.h"

#define ASKED_MAX 64	/* requests of an engine that may yet be answered */
#define GRANTS_SEEN 512
#define VERSIONS_MAX 64

/* Who asked, in small numbers. */
struct word {
	uint64_t epoch;
	uint32_t push, instance;
	uint8_t stage;
};

struct asked {
	const void *conn;
	uint64_t seq, version;
	enum msg_type type;
	struct word by;
	uint32_t bucket;
	bool stale, used;
};

struct seen_engine {
	/* What it has acted upon, for ever. */
	uint64_t epoch;
	uint32_t push, instance[STAGE_N];
	bool closed;
	/* Of the run that it has begun. */
	bool begun, sealed, gave_receipt, failed, out, lied;
	bool lied_ack;	/* to a transfer that lives */
	uint32_t out_of;	/* out: of which push */
	uint64_t version, begun_epoch;
	struct digest received;
	bool held[BUCKETS_MAX];
	uint64_t said;		/* highest version it told to serve */
	struct asked asked[ASKED_MAX];
	uint32_t next;
};

/* One run's flow of buckets. */
struct seen_run {
	struct {
		uint32_t wave, bucket;
		bool back;
	} grant[GRANTS_SEEN];
	uint32_t head, n;	/* of the session of admit at hand */
	uint32_t nbuckets;
	uint64_t bytes[BUCKETS_MAX];
	struct digest content;	/* of the source, as transfer found it */
	bool has_content, aborts;
	/* That transfer has given back, by wave: no bytes of it go again. */
	bool released[ENGINES_MAX][BUCKETS_MAX];
	int transfer_pid;	/* the newest one */
	int aborted_pid;	/* transfer that knows it */
	const void *below[2];	/* whose hello transfer, admit took last */
};

struct decided {
	bool is;
	uint32_t push, source;
	int64_t wall_ms;	/* of the record, which is written once */
	struct digest content;
	bool in[ENGINES_MAX];	/* of its publish set */
};

struct watch {
	struct seen_engine engine[ENGINES_MAX];
	struct seen_run run[PUSHES_MAX];
	struct decided decided[VERSIONS_MAX];
	uint64_t top;		/* highest decided number */
	uint64_t begun;		/* highest epoch that an engine was begun in */
	struct msg_arena arena;
};
extern struct watch watch;

/* Content of a file as it is, or as a power cut would leave it at best. */
bool seen_file(const char *path, bool durable, struct slice *out);
/* The one record in it. */
bool seen_record(const char *path, bool durable, enum msg_type type,
		 struct msg *m);
/* Is this version decided, by this push, and for good? */
bool seen_decided(uint64_t version, bool durable);
/* Do the engine's bytes under this number equal that source? */
bool seen_bytes(uint32_t engine, const char *where, uint64_t version,
		uint32_t source);
/* A decided version with this content; NULL: none. */
const struct decided *seen_content(const struct digest *content);

void watch_from_engine(uint32_t e, const void *conn, const struct msg *m,
		       bool lied);
void watch_to_engine(uint32_t e, const void *conn, const struct msg *m);
/* Sent by stages to engines, before they arrive. */
void watch_request(struct proc *from, uint32_t e, const struct msg *m);
void watch_link(struct proc *from, const void *conn, const struct msg *m,
		bool sent);
/* Is there a bucket that no credit could hold? (I8) */
bool watch_oversize(uint32_t push);
/* The engines of a wave by their numbers in the plan: *first up to, not
 * including, *end. */
void watch_wave(const struct push *p, uint32_t wave, uint32_t *first,
		uint32_t *end);
void watch_end_of_world(void);

#endif
