/*
 * transfer_io.h - weir-transfer: the machine of transfer.h between two links,
 * receivers, a transport and the source.
 *
 * Split by direction: transfer_io.c (the stage: links in, what the machine
 * says out), transfer_move.c (receivers, transport and hasher; everything
 * that touches bytes), transfer_seek.c (a published version's source).  All
 * turn what happens into events for one queue, so that the machine is never
 * entered from inside itself.
 */
#ifndef WEIR_TRANSFER_IO_H
#define WEIR_TRANSFER_IO_H

#include "pipes/fan.h"
#include "pipes/options.h"
#include "pipes/srchash.h"
#include "pipes/stage.h"
#include "pipes/transfer.h"
#include "pipes/transport.h"

#define XFER_CAUSE_MAX 1024
#define SEEK_TRIED_MAX 1024	/* bytes of causes; the last may reach beyond */

struct xfer_input {			/* an event that waits for its turn */
	struct xf_event ev;
	char *cause;			/* owned, or NULL */
};

/* What `opened` said: offers carry it. */
struct xfer_opened {
	char *registry;
	char **boot;			/* per receiver; "": it is not begun,
					   as its engine is out or it needs
					   nothing */
	uint64_t epoch, version, engine_ms, load_ms;
	uint8_t proof;
	struct tr_base base;		/* owned */
	bool known;
};

/* Of a join or a rollback: is its content somewhere? */
struct xfer_seek {
	bool is_on, is_found, is_right;
	bool asked;			/* commit waits for the answer */
	uint32_t next;			/* place to be tried */
	struct buf tried;		/* why those before were not it */
	char *needy;			/* an engine that needs the bytes */
	bool *waits;			/* receivers to be attached then */
	struct srchash *hash;
	struct loop_timer turn;
};

struct xfer {
	const struct transfer_conf *conf;
	struct stage *s;
	struct plan plan;
	bool has_plan;
	struct transfer m;
	struct xfer_input *queue;
	size_t head, n, cap;
	bool driving;
	int rc;				/* the first failed send of a step */

	struct xfer_opened opened;
	struct xfer_cause {		/* per engine, of its failure */
		char *text;		/* owned, or NULL */
		bool said;		/* on our stderr */
	} *cause;
	struct log_few lost;		/* what is told of engines */
	bool source_failed;		/* said once: nothing can mend it */

	struct srcfiles files;
	struct xfer_seek seek;
	struct srchash *hash;
	uint8_t *awaited;		/* buckets offered when hashed */
	uint8_t *every;			/* bit of each bucket */
	struct transport tr;
	struct tr_env env;
	bool is_moving;			/* transport and fan are open */
	bool has_drained;		/* commit was told so */
	struct {			/* whole: the version, once it is */
		bool is;
		struct digest content;
		uint64_t bytes;
	} placed;
	struct loop_timer poll;
	struct fan *fan;		/* holding, finish */
	struct digest content;
	struct m_share *share;		/* of each source rank */
	enum source_proof proof;
};

/* Runs to the end; returns the exit code. */
int transfer_run(struct transfer_conf *conf);

/* ---- between the files ---- */

/* Queues an event; cause is copied. */
void xfer_add(struct xfer *x, const struct xf_event *ev, const char *cause);
#define XFER(x, name, ...)						\
	xfer_add(x, &(struct xf_event){ .on = XF_EV_##name, __VA_ARGS__ }, \
		 NULL)
/* Steps the machine until nothing waits; stage_fail()s what fails. */
void xfer_drive(struct xfer *x);

/* Source: opened and checked before any engine is touched; that of a
 * published version only when it is needed. */
int xfer_open_source(struct xfer *x);
bool xfer_is_again(const struct xfer *x);	/* a join or a rollback */
/* Its transport carries versions whole. */
bool xfer_is_whole(const struct xfer *x);
/* Descriptors to a receiver; then it is asked what it holds. */
void xfer_attach(struct xfer *x, uint32_t receiver);

/* transfer_seek.c */
void xfer_seek_init(struct xfer *x);
/* commit wants to know; `found` or a fault follows. */
void xfer_seek(struct xfer *x, const struct m_seek *m);
/* A receiver holds nothing: it is attached when the source is found. */
void xfer_need_source(struct xfer *x, uint32_t receiver);
void xfer_seek_stop(struct xfer *x);
void xfer_seek_release(struct xfer *x);
/* Starts the hasher; with engines, transport and fan too. */
int xfer_start_moving(struct xfer *x, bool hash_only);
/* Of the machine's actions, those that touch receivers or bytes. */
void xfer_do(struct xfer *x, const struct xf_action *a);
/* Lets go of all engines and frees what moved; not from inside of their
 * callbacks. */
void xfer_close_moving(struct xfer *x);

#endif
