/*
 * events.h - what happened, one JSON object a line, in RUN/events.
 *
 * Common fields: t_ns (CLOCK_MONOTONIC), wall_ms, stage, instance, event;
 * then whichever of these apply: version wave bucket engine worker bytes
 * credit_buckets credit_bytes limit_buckets limit_bytes ms code cause.
 *
 * Names of events are those of DESIGN 10 and fixed once released: planned
 * opened granted staged moved acked released sealed drained excluded decided
 * paused swapped resumed lagging aborted published failed restarted
 * wave_complete summary.  Of stage plan, staged is of a device source
 * (worker: its rank): nothing reads the trainer's memory any more.
 *
 * Every stage appends with O_APPEND and one write(2) per line.  Telling is
 * best effort: a full disk costs the events, never the run (one warning).
 * Bounded: past EVENTS_MAX an instance tells no more of single buckets.
 */
#ifndef WEIR_EVENTS_H
#define WEIR_EVENTS_H

#include "pipes/msg.h"

#define EVENTS_MAX	(64u << 20)	/* bytes, of one instance */

/* A number that may not apply. */
struct ev_number {
	bool set;
	uint64_t n;
};
#define EV(number) ((struct ev_number){ true, (number) })

/* HAPPENED("granted", .wave = EV(w), .bucket = EV(b), .engine = name) */
struct happening {
	const char *event;
	struct ev_number version, wave, bucket, worker, bytes, ms;
	struct ev_number credit_buckets, credit_bytes, limit_buckets;
	struct ev_number limit_bytes;
	const char *engine, *cause;	/* engine: its name */
	int code;			/* 0: does not apply */
};
#define HAPPENED(...) ((struct happening){ .event = __VA_ARGS__ })

struct events {
	int fd;				/* -1: given up */
	bool json;			/* also on stderr for --json */
	enum stage_id stage;
	uint32_t instance;
	struct buf line;
	uint64_t told, max;		/* bytes: so far, and EVENTS_MAX */
};

int events_open(struct events *e, int run_dirfd, enum stage_id stage,
		uint32_t instance, bool json);
void events_close(struct events *e);
void events_tell(struct events *e, const struct happening *h);
/* The run's last line: `fields` is ready-made JSON members. */
void events_summary(struct events *e, struct slice fields);

#endif
