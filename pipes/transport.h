/*
 * transport.h - how bytes get from the source to receivers.
 *
 * One table of operations per transport, none of them NULL; callers use the
 * functions below, which check the order of calls, never t->ops->x.
 *
 *	open -> attach (each receiver) -> offer, post ... -> keep or abort? -> close
 *
 * A transport that carries versions *whole* (TR_WHOLE: disk, delta) has no
 * buckets: from open on it puts the version where receivers find it
 * (TR_PLACED), and load takes the place of offers, posts and finish.
 *
 * Nothing blocks.  What has happened is fetched with transport_poll() after
 * env->wake() (which may come at any time, so that it only takes a note):
 *
 *	TR_ATTACHED	the receiver can reach the source
 *	TR_MOVED	receiver, bucket: the source is not read for it any more
 *	TR_ACK		receiver, bucket, worker: held, with size and digest
 *	TR_FAILED	receiver, perhaps bucket, code, cause
 *	TR_LOST		receiver: its process went away
 *	TR_PLACED	whole: it can be loaded; content and bytes of it
 *	TR_LOADED	receiver: it has loaded and sealed the version
 *
 * TR_FAILED of no receiver (ID_NONE) is the source's own failure.
 *
 * Each post ends by TR_MOVED and an ack per worker, or by TR_FAILED, or by
 * abort, in any order between posts.  transport_abort() may be called at any
 * time and any number of times; after it, nothing of that receiver reads the
 * source through this process, and no event of it comes.  Acks are not
 * judged here (transfer.h does that): what a receiver says is passed on.
 */
#ifndef WEIR_TRANSPORT_H
#define WEIR_TRANSPORT_H

#include "common/loop.h"
#include "pipes/options.h"
#include "pipes/planfile.h"
#include "pipes/trcaps.h"

enum tr_kind {
	TR_ATTACHED, TR_MOVED, TR_ACK, TR_FAILED, TR_LOST, TR_PLACED, TR_LOADED
};

#define TR_CAUSE_MAX 512

struct tr_event {
	enum tr_kind kind;
	uint32_t receiver, bucket, worker;
	uint64_t bytes;
	struct digest digest;
	int code;			/* enum err, positive */
	char cause[TR_CAUSE_MAX];
};

/* All lent, for the transport's life. */
struct tr_env {
	struct loop *loop;
	const struct plan *plan;
	const int *fd;			/* per file, read-only */
	struct m_fence fence;
	uint64_t version;
	uint8_t proof;			/* enum proof_level asked for */
	const char *const *boot;	/* per receiver */
	struct tr_base {		/* the last decided version */
		uint64_t version;	/* 0: none */
		struct digest content;
		char **place;		/* directories that may hold it */
		uint32_t nplaces;
	} base;
	const struct transfer_conf *conf;
	uint64_t engine_ms, load_ms;
	void (*wake)(void *arg);
	void *arg;
};

struct fan;
struct transport;

struct transport_ops {
	const char *name;
	int (*check)(const struct transfer_conf *conf, uint32_t ranks);
	int (*open)(struct transport *t);
	int (*attach)(struct transport *t, uint32_t receiver);
	int (*offer)(struct transport *t, uint32_t wave, uint32_t bucket);
	int (*post)(struct transport *t, uint32_t receiver);
	int (*load)(struct transport *t, uint32_t receiver);
	void (*poll)(struct transport *t);	/* may tell more */
	void (*keep)(struct transport *t);
	void (*abort)(struct transport *t, uint32_t receiver);
	void (*close)(struct transport *t);
};

struct tr_queue {			/* events that wait for poll */
	struct tr_event *v;
	size_t head, n, cap;
};

struct transport {
	const struct transport_ops *ops;
	const struct tr_env *env;
	void *self;			/* the transport's own */
	struct tr_queue queue;
	uint8_t *state;			/* per receiver; see transport.c */
	uint32_t wave, bucket;		/* offered; ID_NONE */
	uint64_t pinned;		/* bytes of host memory, by movers */
	bool is_base;			/* open: the source is what the last
					 * version was made from, untouched */
};

/* NULL if there is none of that name. */
const struct transport_ops *transport_find(const char *name);

/* Has this machine what it needs, for so many source ranks?  Asked before any
 * engine is touched.  0, or -E_*, logged, naming what is missing. */
int transport_check(const struct transport_ops *ops,
		    const struct transfer_conf *conf, uint32_t ranks);
/* env is lent until transport_close(). */
int transport_open(struct transport *t, const struct transport_ops *ops,
		   const struct tr_env *env);
/* TR_ATTACHED or TR_FAILED follows. */
int transport_attach(struct transport *t, uint32_t receiver);
/* Makes this bucket the one that is posted from now on. */
int transport_offer(struct transport *t, uint32_t wave, uint32_t bucket);
/* Sends the offered bucket to an attached receiver. */
int transport_post(struct transport *t, uint32_t receiver);
/* Has an attached receiver take the version that was placed: TR_LOADED or
 * TR_FAILED follows. */
int transport_load(struct transport *t, uint32_t receiver);
int transport_poll(struct transport *t, struct tr_event *e);	/* 1 or 0 */
/* The version is published: what can be kept for the next one is, if that was
 * asked for.  Nothing is posted after it. */
void transport_keep(struct transport *t);
void transport_abort(struct transport *t, uint32_t receiver);
void transport_abort_all(struct transport *t);
void transport_close(struct transport *t);	/* fine on a zeroed one */

/* ---- for transports ---- */

/* What transport_poll() is to give, unless its receiver is aborted before. */
void tr_tell(struct transport *t, const struct tr_event *e);
void tr_tell_attached(struct transport *t, uint32_t receiver);
void tr_tell_failed(struct transport *t, uint32_t receiver, uint32_t bucket,
		    int code, struct slice cause);
/* Its connection has ended. */
void tr_tell_lost(struct transport *t, uint32_t receiver);
/* The plan's receivers, in order; fds: descriptors that each needs besides.
 * Instances number their calls apart. */
int tr_add_receivers(const struct transport *t, struct fan *f, size_t fds);

/* A bucket as receivers get it: its parts that are not empty, with the files
 * counted as each rank's receivers count them. */
struct tr_pieces {
	struct m_piece v[MSG_PARTS_MAX];
	uint32_t *first;	/* of each rank, and one behind the last */
	uint32_t bucket;
};
void tr_pieces_init(struct tr_pieces *t, const struct plan *p);
void tr_pieces_release(struct tr_pieces *t);	/* fine on a zeroed one */
int tr_pieces_of(struct tr_pieces *t, const struct plan *p, uint32_t bucket,
		 struct msg_arena *a);

/* What a transport of the other kind has in their slots, and one that needs
 * nothing. */
int tr_no_check(const struct transfer_conf *conf, uint32_t ranks);
void tr_no_keep(struct transport *t);
int tr_no_offer(struct transport *t, uint32_t wave, uint32_t bucket);
int tr_no_post(struct transport *t, uint32_t receiver);
int tr_no_load(struct transport *t, uint32_t receiver);
void tr_no_poll(struct transport *t);	/* its loop callbacks tell all */

extern const struct transport_ops tr_host_ops, tr_mem_ops, tr_disk_ops,
	tr_delta_ops, tr_nccl_ops, tr_ipc_ops;

#endif
