/*
 * events.h - what happened, one JSON object a line, in RUN/events.
 *
 * Common fields: t_ns (CLOCK_MONOTONIC), wall_ms, stage, instance, event;
 * then whichever of these apply: version wave bucket engine worker bytes
 * credit_buckets credit_bytes limit_buckets limit_bytes ms code cause and a
 * free "info".  Names of events are those of DESIGN 10 and fixed once
 * released: planned opened granted staged moved acked released sealed
 * drained excluded decided paused swapped resumed lagging aborted published
 * failed restarted summary.
 *
 * Every stage appends with O_APPEND and one write(2) per line.  Telling is
 * best effort: a full disk costs the events, never the run (one warning).
 */
#ifndef WEIR_EVENTS_H
#define WEIR_EVENTS_H

#include "pipes/msg.h"

#define EV_NONE UINT64_MAX	/* a number that does not apply */

struct happening {
	const char *event;
	uint64_t version, wave, bucket, worker, bytes, ms;
	uint64_t credit_buckets, credit_bytes, limit_buckets, limit_bytes;
	const char *engine, *cause;
	int code;
};
/* All numbers EV_NONE, all strings NULL. */
#define HAPPENED(name, ...) ((struct happening){			\
	.event = name, .version = EV_NONE, .wave = EV_NONE,		\
	.bucket = EV_NONE, .worker = EV_NONE, .bytes = EV_NONE,		\
	.ms = EV_NONE, .credit_buckets = EV_NONE,			\
	.credit_bytes = EV_NONE, .limit_buckets = EV_NONE,		\
	.limit_bytes = EV_NONE, __VA_ARGS__ })

struct events {
	int fd;				/* -1: given up */
	bool json;			/* also on stderr for --json */
	enum stage_id stage;
	uint32_t instance;
	struct buf line;
};

int events_open(struct events *e, int run_dirfd, enum stage_id stage,
		uint32_t instance, bool json);
void events_close(struct events *e);
void events_tell(struct events *e, const struct happening *h);
/* The run's last line: `fields` is ready-made JSON members. */
void events_summary(struct events *e, struct slice fields);

#endif
