/*
 * engine_ops.h - the seam between commit and an inference engine.
 *
 * An adapter fills one const table; no slot is NULL (what an engine cannot or
 * need not do is engine_skip).  Every call is asynchronous and is answered
 * once, by host->answer, never from inside the call: 0, or -E_* with the
 * cause in e->cause.  -E_TIMEOUT when ask->ms are over; -E_UNAVAIL when the
 * engine went away, and e->absent when its process is known not to be there:
 * then it serves nothing and has access to nothing.  A second call of the
 * same kind forgets the first one.  Calls may be made back to back; an
 * adapter keeps their order at the engine.
 *
 * One logical engine has parts: receivers (native), or the HTTP server.  A
 * call has succeeded when every part has answered well, and fails with the
 * first part that does not.  The adapter keeps what it learns (boot, facts,
 * receipts) in the parts; deciding what it means is commit's.
 *
 *	probe	    what is it, does it live?  changes nothing; fills facts
 *	begin	    a run starts to fill a version
 *	pause	    hold requests (ask->token)
 *	flush	    drop caches that the old weights filled
 *	load	    an in-place engine: take the bytes (native: transfer's offers)
 *	seal	    post-load (native: transfer's finish)
 *	receipt	    fills part->receipt
 *	swap	    serve goal->version (needs the pause of ask->token)
 *	set_version tell the engine its number, where swap does not
 *	resume	    serve again
 *	abort	    close the epoch, drop what was staged, resume
 *	close	    forget it: open calls end unanswered (not a call)
 *
 * A staged engine holds the new version beside the old one, and is paused for
 * its swap alone.  An in-place engine (SGLang, vLLM) has one set of weights:
 * its store, a weir-engine on its host, is filled and sealed as a staged
 * engine is; then commit pauses and flushes it (token 0: the server alone),
 * and has it load.  Such an engine is *poisoned* from just before its first
 * load until swap or a full load of what it served before: never resumed.
 * Whoever asks sets held and poisoned, durably, before the call that makes
 * them true.
 *
 * A server may also be *alone*: no store beside it, one part without a
 * receiver.  It loads goal->place, a directory that it can see; what it
 * serves is what its label says, its receipt proves what its own load does
 * (enum load_proof) and nothing but the registry's lock fences it.
 *
 * Of those some *pull*: they bring a copy of their own up to a version that
 * goal->disk_dir has, whole or by deltas, when asked for their receipt, and
 * load that copy.  It knows versions by number alone: it is one registry's,
 * and a number that may have been pulled never means another content.
 * Others are broadcast to (goal->plan), in a group of each one's own.
 */
#ifndef WEIR_ENGINE_OPS_H
#define WEIR_ENGINE_OPS_H

#include "common/loop.h"
#include "pipes/fan.h"
#include "pipes/groups.h"
#include "pipes/msg.h"

#define ENGINE_TEXT 65		/* names, ids: 64 bytes and NUL */
#define ENGINE_CAUSE 768	/* bytes */
#define ENGINE_PATH 4097	/* bytes */

enum engine_call {
	EC_PROBE, EC_BEGIN, EC_PAUSE, EC_FLUSH, EC_LOAD, EC_SEAL, EC_RECEIPT,
	EC_SWAP, EC_SET_VERSION, EC_RESUME, EC_ABORT,
	EC_N
};
const char *engine_call_name(enum engine_call c);	/* "probe" */

struct plan;

/* What of a version the workers of one source rank are to hold. */
struct engine_share {
	const struct m_slotfile *files;
	uint32_t nfiles;
	uint64_t bytes;
	struct digest content;
};

/* What a run wants of its engines; lent, unchanged while calls are open. */
struct engine_goal {
	const char *registry, *run;
	uint64_t epoch;
	uint32_t instance;		/* of commit */
	uint64_t version;
	uint32_t buckets;
	uint8_t proof;			/* enum proof_level asked for */
	struct digest structure, content;
	struct engine_share *share;	/* by source rank */
	uint32_t nshares;		/* 1: all workers hold the same */
	bool is_again;			/* content is known: a kept slot will do */
	bool whole;			/* it comes by load (TR_WHOLE) */
	const char *disk_dir;		/* of version directories; or NULL */
	const struct plan *plan;	/* to be broadcast; or NULL */
	char *place;			/* directory of the version, absolute:
					 * what a server loads that has no
					 * store beside it; or NULL */
	bool joins;			/* version is published: see
					   engine_part_is_there() */
	uint64_t lease_ms;		/* of a pause */
	/* In-place engines: */
	const char *model;		/* the fleet's; "": any */
	const char *token;		/* to its server; NULL: none */
	const char *architecture;	/* of config.json; NULL: any */
	const char *quantization;	/* the same */
	const char *const *sample;	/* LOAD_SAMPLES tensors' names, or NULL */
	bool abort_requests;		/* at a pause; else they wait */
	bool rollback;			/* an abort loads what was before */
};

struct engine_ask {
	enum engine_call call;
	int64_t ms;			/* until it must have answered */
	uint64_t token;			/* pause, swap, resume */
	const char *cause;		/* abort */
};

struct engine_facts {			/* of the last probe */
	char registry[ENGINE_TEXT];	/* empty: none yet */
	uint64_t epoch, serving, staged, room;
	struct digest structure, content; /* of what it serves */
	bool sealed, paused, adopts;
	bool keeps;			/* a slot with that content */
	char *store;			/* absolute; owned; NULL: none */
};

struct engine_receipt {
	char engine[ENGINE_TEXT], boot[ENGINE_TEXT];
	char registry[ENGINE_TEXT], run[ENGINE_TEXT];
	uint32_t worker, workers;
	uint64_t epoch, version, bytes;
	struct digest received, installed;
	uint8_t proof;
	char post_load[1025];
	char place[4097];		/* where others may read it; or "" */
	bool varies;
};

struct engine_part {
	char *endpoint;
	uint32_t worker, workers;	/* first worker, count */
	char boot[ENGINE_TEXT];		/* "": not probed yet */
	bool reborn;			/* a probe met another boot */
	struct engine_facts facts;
	struct engine_receipt *receipt;	/* NULL: none yet; owned */
	uint64_t pause_us;		/* of the last resume */
	uint32_t receiver;		/* native: id in the fan, or ID_NONE */
	uint32_t route;			/* native: in the host */
};

/* How a server shows what it has loaded: by its word, by the values of a few
 * tensors, by checksums of all. */
enum load_proof { LOAD_ACK, LOAD_SAMPLED, LOAD_CHECKED, LOAD_N };
const char *load_proof_name(enum load_proof p);		/* "checked" */
/* As a receipt's: of one alone, all that there is. */
enum proof_level load_proof_level(enum load_proof p);

#define LOAD_SAMPLES 3

/* What an in-place engine is known to hold. */
struct engine_live {
	bool held;			/* a pause of ours may have reached it */
	bool poisoned;			/* a load may have begun */
	bool loaded;			/* goal->version: it says so */
	uint8_t proof;			/* enum load_proof: ... and how */
	uint8_t offers;			/* the best it can; of the probe */
	bool paused;			/* when it was probed */
	uint64_t label;			/* the number it tells; 0: none */
	uint32_t ranks;			/* workers of a server; 0: unknown */
	char *previous;			/* directory it served; owned; or NULL */
	struct groups groups;		/* of ours; it may be in them still */
	struct digest sum;		/* what it showed */
	struct digest layout;		/* sums of one layout are comparable */
};

struct engine {
	const struct engine_ops *ops;
	struct engine_host *host;
	const struct engine_goal *goal;
	uint32_t id;
	char *name, *url;
	bool alone;
	char *pull;			/* where its copies are; or NULL */
	struct engine_part *part;
	uint32_t nparts;
	char cause[ENGINE_CAUSE];	/* of the last failed answer */
	bool absent;			/* ... it said: nobody is there */
	bool said;			/* ... it is the engine's own word */
	struct engine_live live;	/* in-place engines */
	void *own;			/* the adapter's */
	struct engine_open {		/* a call that is not answered yet */
		uint32_t left;		/* parts; 0: no such call */
		uint32_t round;		/* tells its replies from older ones */
	} open[EC_N];
	struct engine_pending {		/* answers on their way (engine_skip) */
		bool due;
		int rc;
	} pending[EC_N];
};

typedef void engine_fn(struct engine *e, const struct engine_ask *ask);

struct engine_ops {
	const char *name;
	enum engine_kind kind;
	bool in_place;
	int (*open)(struct engine *e);	/* parts are there; -E_* logged */
	engine_fn *call[EC_N];
	/* One part of an open call has ended: rc < 0, or all but one have. */
	void (*ended)(struct engine *e, enum engine_call c, int rc);
	void (*close)(struct engine *e);
};

/* What this part is to hold. */
const struct engine_share *engine_share(const struct engine *e,
					const struct engine_part *p);
/* It serves what is joined already: it has no share in that, is not begun and
 * gives no receipt, whatever the engine's other parts need. */
bool engine_part_is_there(const struct engine *e,
			  const struct engine_part *p);
/* The content of the version and, of several source ranks, of their shares
 * (else n is 0).  -E_DATA, logged, if they are not as many. */
int engine_goal_content(struct engine_goal *g, const struct digest *content,
			const struct m_share *share, uint32_t n);
/* For records: the shares; room for g->nshares.  Returns how many, 0 of one
 * source. */
uint32_t engine_goal_shares(const struct engine_goal *g, struct m_share *out);

extern const struct engine_ops en_native_ops, en_sglang_ops, en_vllm_ops;
/* The receivers' share of a call, for adapters that have more parts. */
int native_open(struct engine *e);
void native_close(struct engine *e);
void native_ask(struct engine *e, const struct engine_ask *ask,
		uint32_t more);

/* What a record says of an in-place engine. */
void engine_restore(struct engine *e, const struct m_opened_engine *m);
/* The same, for a record: lent until the next call. */
void engine_record(struct engine *e, struct m_opened_engine *m);
/* It brings its own copy up to the version, and loads that. */
bool engine_pulls(const struct engine *e);
/* It takes it by broadcast: en_cast.c. */
bool engine_casts(const struct engine *e);
/* Before a load: from now on it may be in the group that is named by this
 * instance of commit.  A late call of an older one must not meet it. */
void engine_note_group(struct engine *e);
/* Its server, if it has one, tells that it serves this version.  A label is
 * no word of what a later run may have loaded over it. */
bool engine_tells(const struct engine *e, uint64_t version);
/* What the receivers serve and the server tells is the same, or newer. */
bool engine_is_there(const struct engine *e);
bool engine_is_paused(const struct engine *e);
/* It serves a blend, or what nobody decided, if it is resumed. */
bool engine_is_poisoned(const struct engine *e);

/* Who asks: one event loop, one fan, many engines. */
struct engine_host {
	struct loop *loop;
	struct fan *fan;
	void (*answer)(void *arg, struct engine *e, enum engine_call call,
		       int rc);
	/* A part's process went away (its open calls are answered first). */
	void (*lost)(void *arg, struct engine *e);
	void *arg;
	struct engine **engine;		/* all that were added; owned */
	uint32_t nengines;
	uint32_t expect;		/* receivers, for the descriptors */
	struct engine_route {		/* native: whose receiver is it? */
		struct engine *e;
		uint32_t part;
	} *route;
	uint32_t nroutes;
	uint32_t nreceivers;		/* added to the fan */
	struct loop_timer soon;
};

void engine_host_init(struct engine_host *h, struct loop *l, void *arg);
void engine_host_release(struct engine_host *h);	/* closes all */

/* m names the engine and its workers' endpoints; neighbours with the same
 * endpoint become one part.  goal is kept.  NULL: refused, logged. */
struct engine *engine_add(struct engine_host *h, uint32_t id,
			  const struct m_opened_engine *m,
			  const struct engine_goal *goal);
/* Through the table, never past it. */
void engine_ask(struct engine *e, const struct engine_ask *ask);
/* Answers 0 a moment later: nothing to do for this kind of engine. */
void engine_skip(struct engine *e, const struct engine_ask *ask);
/* For adapters: part answered an open call. */
void engine_part_done(struct engine *e, enum engine_call c, int rc);
/* The same, a moment later: for failures inside the call. */
void engine_fail_soon(struct engine *e, enum engine_call c, int rc);
/* For adapters: n parts are asked; returns the round. */
uint32_t engine_open_call(struct engine *e, enum engine_call c, uint32_t n);

#endif
