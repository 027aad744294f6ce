/*
 * en_http.h - engines that are HTTP servers with a store beside them: what
 * the adapters of SGLang and vLLM share.
 *
 * A dialect is a table: per operation one request and what its answer must
 * say; per engine call a script, the operations in order.  This driver runs
 * one operation at a time and judges each answer:
 *
 *	done	 status and body say so
 *	failed	 status or body say so (or it was never sent)
 *	lacks	 404, 405, 501: this dialect has no such path.  Optional
 *		 operations are passed over, others have failed
 *	busy	 400 to an operation that waits for requests to end: again,
 *		 backing off, until the deadline
 *	unknown	 it may have been done: no answer, half of one, a status and a
 *		 body that disagree, 202.  The row's `ask` is asked; only what
 *		 it says counts.  Nothing but a question is sent twice.
 *
 * Calls that are made back to back queue up; when one fails, those behind it
 * fail untried, so that no resume follows a failed load.  The store's
 * receivers are asked by en_native.c; swap and abort reach the server after
 * the store has agreed: the store is what fences a late commit off (I10).
 * A server that is alone answers for its store: en_alone.c.
 */
#ifndef WEIR_EN_HTTP_H
#define WEIR_EN_HTTP_H

#include "common/doc.h"
#include "common/http.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "pipes/engine_ops.h"
#include "pipes/nccl_wire.h"

#define HTTP_CITE 200		/* bytes of a body in a message */
#define HTTP_CITED (HTTP_CITE + 24)
#define HTTP_SUM_MAX (16u << 20) /* of a checksum for each tensor and rank */
#define HTTP_BRIEF_MS 30000	/* and a quarter of the call's at most */
#define HTTP_BACKOFF_MIN_MS 50
#define HTTP_BACKOFF_MAX_MS 2000

enum http_op {
	HO_NONE,
	HO_INFO, HO_SERVER, HO_MODELS, HO_LABEL, HO_ASLEEP, HO_PAUSED,
	HO_CAN_PAUSE, HO_CAN_FLUSH, HO_CAN_LOAD, HO_CAN_LABEL,
	HO_CAN_SAMPLE, HO_CAN_SUM, HO_CAN_PULL,
	HO_WORLD, HO_CONFIG, HO_CAN_PACK, HO_CAN_MEET, HO_CAN_END, HO_CAN_CAST,
	HO_PAUSE_KEEP, HO_PAUSE_ABORT,
	HO_STILL,			/* is it paused still? */
	HO_LOOK, HO_HOLD,		/* ... else it is paused again */
	HO_FLUSH, HO_FLUSH_MM, HO_FLUSH_ENCODER,
	HO_END, HO_LEAVE,		/* what an earlier cast has left */
	HO_PULL, HO_CAST, HO_LOAD, HO_LOADED, HO_SUM, HO_SAMPLE,
	HO_OURS, HO_SET, HO_TOLD, HO_RESUME, HO_HEALTH,
	HO_STAY,			/* no request: the call has failed */
	HO_N
};

struct http_engine;

struct http_row {
	const char *method, *path;
	const char *older;		/* path of an older dialect, or NULL */
	/* The request's body; NULL: none. */
	void (*body)(const struct http_engine *h, struct jsonw *j);
	/* The answer must have this member: a string, or true. */
	const char *key, *want;
	/* What it says; 0, or -E_* and h->why.  NULL: nothing. */
	int (*take)(struct http_engine *h, const struct doc *body);
	long also;			/* another status that is an answer */
	enum http_op ask;		/* when the outcome is unknown */
	bool (*is_done)(const struct http_engine *h);
	/* Else it is passed over.  NULL: always. */
	bool (*is_wanted)(const struct http_engine *h);
	unsigned (*turns)(const struct http_engine *h);	/* NULL: one */
	bool optional;			/* may be lacking */
	bool soft;			/* may fail, too, but as -E_CONFIG */
	bool big;			/* the answer: up to HTTP_SUM_MAX bytes */
	bool patient;			/* busy: see above */
	bool brief;			/* its answer is not waited for long */
};

struct http_dialect {
	const char *name;
	struct http_row row[HO_N];
	const enum http_op *script[EC_N];	/* up to HO_NONE; or NULL */
	const enum http_op *back;	/* load what was before, serve it */
	const enum http_op *stay;	/* paused, it waits for a full load */
	const char *hint;		/* when a needed path is lacking */
	const char *const *reloads;	/* quantisations that it loads again */
};

struct http_job {
	enum engine_call call;
	int64_t due_ms;
	bool waits;			/* for the store */
};

struct http_engine {
	struct engine *e;
	const struct http_dialect *d;
	struct http *http;
	struct http_cast *cast;		/* under way; or NULL */
	struct loop_timer retry;
	struct http_job job[EC_N];
	unsigned njobs;
	const enum http_op *script;	/* of job[0] */
	enum http_op asking;		/* its ask, or HO_NONE */
	unsigned turn;			/* of the operation at hand, from 0 */
	unsigned tries;
	bool older;			/* the operation's older path */
	bool told_before;		/* the path to load, before the load */
	bool unheard;			/* a brief operation had no answer */
	enum nccl_packing packing;	/* of a broadcast */
	int64_t paused_ms;		/* when it had been; 0: not by us */
	long status;			/* of the answer at hand */
	/* what it says of itself */
	char path[ENGINE_PATH];		/* "": it does not say */
	char loaded[ENGINE_PATH];	/* ... when it had loaded it */
	char start[DIGEST_HEX];		/* of its process; "": it does not */
	bool paused;
	uint64_t label;
	char why[ENGINE_CAUSE / 2];
	char first[ENGINE_CAUSE / 4];	/* why the outcome is unknown */
	int first_rc;
};

/* en_alone.c */
int alone_check(struct http_engine *h);
/* Is that the copy that it brings up to versions itself? */
bool alone_is_own_copy(const struct engine *e, const char *path);
/* The directory that it loads, perhaps in out. */
const char *alone_path(const struct engine *e, char out[ENGINE_PATH]);
void alone_probed(struct http_engine *h);
void alone_receipt(struct engine *e);

/* en_cast_plan.c: can all of the plan be broadcast?  For a row. */
int http_cast_check(struct http_engine *h, const struct doc *none);
/* en_cast.c: HO_CAST, which is many requests and a broadcast.  Answered by
 * http_cast_ended(), perhaps from inside; rc < 0: h->why. */
void http_cast_start(struct http_engine *h);
void http_cast_free(struct http_cast *c);	/* unanswered; NULL is fine */
void http_cast_ended(struct http_engine *h, int rc);

enum http_verdict { V_DONE, V_FAILED, V_LACKS, V_BUSY, V_UNKNOWN };

/* en_http_judge.c.  rc and h->why say how it failed. */
enum http_verdict http_judge(struct http_engine *h, const struct http_reply *r,
			     int *rc);
/* What a status that is no success stands for. */
int http_refusal(long status);
/* "400: BODY": its first bytes, as text that a message may carry. */
void http_cite(const struct http_reply *r, char out[HTTP_CITED]);
/* Of the operation at hand. */
const struct http_row *http_row_of(const struct http_engine *h);

int http_engine_open(struct engine *e, const struct http_dialect *d);
void http_engine_close(struct engine *e);
void http_engine_ended(struct engine *e, enum engine_call c, int rc);
/* The two halves of every call table. */
void http_engine_store(struct engine *e, const struct engine_ask *ask);
void http_engine_receipt(struct engine *e, const struct engine_ask *ask);
void http_engine_both(struct engine *e, const struct engine_ask *ask);
void http_engine_server(struct engine *e, const struct engine_ask *ask);

/* For rows. */
/* The directory that the call at hand loads, absolute; perhaps in out. */
const char *http_load_path(const struct http_engine *h, char out[ENGINE_PATH]);
int64_t http_left_ms(const struct http_engine *h);
LOG_PRINTF(3, 4)
int http_say(struct http_engine *h, int rc, const char *fmt, ...);
/* A label is a canonical number, or "default": nobody gave one yet. */
int http_take_label(struct http_engine *h, const struct doc *label);
/* Is it the label that was to be set? */
int http_take_told(struct http_engine *h, const struct doc *label);
bool http_is_told(const struct http_engine *h);
bool http_is_paused(const struct http_engine *h);
bool http_is_running(const struct http_engine *h);
/* It was paused again. */
int http_take_held(struct http_engine *h, const struct doc *d);
/* Else what it has loaded may be gone, and what it loads would be served. */
int http_check_still(struct http_engine *h);
bool http_is_loaded(const struct http_engine *h);
/* An abort waits for what is under way. */
bool http_is_aborted(const struct http_engine *h);
/* The same, of a load whose answer was lost: a path that it told before says
 * nothing of it. */
bool http_has_loaded(const struct http_engine *h);
/* An object with nothing in it. */
void http_no_body(const struct http_engine *h, struct jsonw *j);
/* Another start than last time: restarted. */
void http_take_start(struct http_engine *h, const struct doc *start);
/* Served under another name than the fleet's model; a path is no name. */
int http_check_model(struct http_engine *h, const char *served);
/* A model of another architecture than what is published; NULL: unknown. */
int http_check_architecture(struct http_engine *h, const struct doc *all);
/* Weights that it repacks at a load and cannot load again over that. */
int http_check_quantization(struct http_engine *h);
/* It can show what it loads. */
void http_offer(struct http_engine *h, enum load_proof p);
/* It has shown it.  layout: what must be equal for sums to be; or NULL. */
void http_take_sum(struct http_engine *h, const struct doc *sums,
		   const struct doc *layout);
/* The tensor whose values are asked for, or NULL: none. */
const char *http_sample(const struct http_engine *h);
void http_take_sample(struct http_engine *h, const struct doc *values);
unsigned http_samples(const struct http_engine *h);
/* How many workers that says; 0: none, NCCL_RANKS_MAX: that, or more. */
uint32_t http_ranks(const struct doc *d);
/* More workers than a group has room for, or how many is unknown.  but: of
 * which kind they must not be, too. */
int http_check_ranks(struct http_engine *h, const char *but);

/* What is wanted: */
bool http_keeps_requests(const struct http_engine *h);
bool http_aborts_requests(const struct http_engine *h);
bool http_may_pull(const struct http_engine *h);	/* it is to, one day */
bool http_pulls(const struct http_engine *h);
bool http_casts(const struct http_engine *h);
/* In this call: what is decided, or was before, it loads by path. */
bool http_casts_now(const struct http_engine *h);
bool http_loads_now(const struct http_engine *h);
bool http_has_sample(const struct http_engine *h);
/* Groups that earlier broadcasts may have left, or an update in one: all but
 * that of the load at hand.  How many. */
uint32_t http_groups(const struct http_engine *h);
bool http_is_grouped(const struct http_engine *h);
/* Without its end the weights of a broadcast would not be processed. */
bool http_must_end(const struct http_engine *h);

#define HTTP_ENGINE_CALLS                                                      \
	{                                                                      \
		[EC_PROBE] = http_engine_both,                                 \
		[EC_BEGIN] = http_engine_store,                                \
		[EC_PAUSE] = http_engine_both,                                 \
		[EC_FLUSH] = http_engine_server,                               \
		[EC_LOAD] = http_engine_server, [EC_SEAL] = engine_skip,       \
		[EC_RECEIPT] = http_engine_receipt,                            \
		[EC_SWAP] = http_engine_both,                                  \
		[EC_SET_VERSION] = http_engine_server,                         \
		[EC_RESUME] = http_engine_both, [EC_ABORT] = http_engine_both, \
	}

#endif
