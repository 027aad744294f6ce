/*
 * engine_shell.h - what the files of weir-engine's shell share; nobody else
 * includes this.
 *
 *	engine_run.c	start, stop, requests in
 *	engine_answer.c	replies out, to peers that may not read them
 *	engine_do.c	what the machine asks for
 *	engine_copy.c	offers: copies in the pool, acks
 *	engine_fd.c	PATH.fd: who may connect, descriptors of source files
 *	engine_mover.c	groups: buckets that a mover writes into the slot
 *	engine_device.c	--device: versions in a device's memory
 *	engine_hook.c	--on-pause, --on-swap, --on-resume
 */
#ifndef WEIR_ENGINE_SHELL_H
#define WEIR_ENGINE_SHELL_H

#include "common/child.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/loop.h"
#include "common/pool.h"
#include "pipes/engine.h"
#include "pipes/engine_run.h"
#include "pipes/fetch.h"
#include "pipes/fill.h"
#include "pipes/mover.h"
#include "pipes/seal.h"

#define SHELL_CONNS_MAX 64	/* on PATH.fd */
#define SHELL_JOBS_MAX (1u << 17)
#define SHELL_OUT_MAX 65536u	/* replies that wait for their peers */
#define SHELL_OUT_BYTES (64u << 20) /* of them */
#define SHELL_TURN 256		/* requests before others have their turn */
#define SHELL_RETRY_MS 5	/* until they are tried again */
#define SHELL_LAST_MS 500	/* at the end, for those under way */

struct shell;

struct conn {			/* on PATH.fd */
	struct shell *sh;
	int fd;			/* -1: free */
};

struct asker {			/* of a pending request */
	struct sock_peer peer;
	uint64_t seq;
	struct conn *conn;	/* set: it came there */
	unsigned stage;		/* who asked, as the fence let it pass */
	uint32_t instance;
};

struct waiting {		/* a reply at the high-water mark */
	struct sock_peer to;
	struct buf frame;
};

struct source_fd {
	int fd;			/* -1: not attached */
	struct conn *conn;
};

struct errand {			/* the mover is asked for somebody */
	struct errand *next;
	uint64_t seq;		/* as the mover knows it */
	struct asker from;
	enum msg_type type;	/* enroll, join, offer */
	uint32_t bucket;
	bool is_held;		/* of an offer: received and dropped */
};

typedef void shell_then_fn(struct shell *sh, int rc);

struct device_call {		/* the device's mover is asked */
	struct device_call *next;
	uint64_t seq;
	shell_then_fn *then;	/* rc < 0: as log_cause() says */
};

struct seal_job {
	struct job job;		/* first: the pool's */
	struct seal seal;
	struct fetch fetch;	/* before it, if there is a place */
	bool is_check;
	struct slotstill *still;	/* filled by what is read; or NULL */
	uint64_t kept;		/* the check is of a link to this version */
	int rc;
	char cause[256];
};

struct make_job {
	struct job job;		/* first: the pool's */
	struct store_making making;
	struct store_files made;
	const atomic_bool *cancel;
	int rc;
	char cause[256];
};

struct shell {
	const struct engine_conf *conf;
	struct loop *loop;
	struct sock sock;
	char *path;		/* of the endpoint */
	char *fd_path;
	int listener;		/* on fd_path; -1: none */
	struct conn conn[SHELL_CONNS_MAX];
	struct pool *pool;
	struct store store;
	struct engine m;
	bool adopt;		/* armed */
	uint64_t seals;		/* so far, for --reread */

	struct asker asker[EN_NREQ];
	const struct msg *now;	/* the request being handled */
	const int *now_fds;	/* that came with it */
	size_t now_nfds;

	/* the slot, and the one that a pending begin wants */
	struct store_slot slot, next;
	struct digest next_content;	/* zero: none need be kept */
	bool linked;			/* the slot is a kept version */
	uint8_t proof, next_proof;
	struct store_files files;
	struct fill fill;
	struct slotstill still;		/* of what was sealed last, if known */
	struct source_fd *source;	/* by file */
	int *grave;			/* replaced while copies ran */
	size_t ngrave;
	struct copy_task **task;	/* by bucket; NULL: none on its way */
	struct mover *mover;		/* NULL: none; writes the slot's files */
	struct errand *errand;
	uint64_t mover_seq;
	struct {			/* its groups may outlive the run */
		uint64_t ms;		/* for so long; 0: they may not */
		bool is;		/* the run has ended, none has begun */
		const struct mover_kind *kind;
		char registry[FENCE_ID_MAX + 1];
		struct loop_timer over;
	} rest;
	struct {			/* --device */
		struct mover *mover;	/* NULL: none */
		struct device_call *call;
		uint64_t seq, install;	/* of the call; 0: none */
		int dirfd;		/* that it was sent */
		shell_then_fn *served, *replaced;
	} device;
	struct seal_job seal;
	struct make_job make;
	atomic_bool cancel;

	struct child hook;
	enum engine_hook hook_kind;
	struct loop_timer hook_timer, lease, retry;
	int64_t paused_ns;		/* when the pause applied */
	uint64_t pause_us;		/* length of the last one */
	uint64_t before_swap;		/* version served until then */
	struct {			/* why it is served again */
		int code;
		char cause[512];
	} undo;

	bool in_turn;		/* more requests may be at hand */
	struct waiting *out;
	uint32_t nout;
	size_t out_bytes;
	struct msg_arena arena;
	struct buf frame, packed;
	/* of what peers can make us log */
	struct log_few junk, refusals, strangers;
};

/* Steps the machine and performs all it asks for. */
void shell_step(struct shell *sh, const struct en_event *ev);
void shell_report(struct shell *sh, enum en_ev on, int rc);
void shell_perform(struct shell *sh, const struct en_action *a);
/* One request, from the endpoint (conn NULL) or from PATH.fd. */
void shell_request(struct shell *sh, const struct asker *from,
		   const struct msg *m);

/* The same user, root, those of --allow. */
bool shell_may_connect(const struct shell *sh, uid_t uid);

/* sh->frame as a message; the text of what is none is log_cause(). */
int shell_unpack(struct shell *sh, struct msg *m);
void shell_answer(struct shell *sh, const struct asker *to,
		  const struct msg *m);
void shell_send_waiting(struct shell *sh);
void shell_refuse(struct shell *sh, const struct asker *to, int code,
		  uint32_t bucket, const char *cause);
/* What takes long may end when who asked has been replaced (I10): it is not
 * answered, for the newer one asks for itself. */
bool shell_is_overtaken(const struct shell *sh, const struct asker *to);

void shell_made(struct shell *sh);	/* sh->make came back */
void shell_checked_link(struct shell *sh);	/* sh->seal did, for a link */
/* 1 and the record of a kept version with that content, or 0. */
int shell_find_kept(const struct shell *sh, const struct digest *content,
		    const struct digest *structure, struct store_slot *out);
void shell_offer(struct shell *sh);
void shell_pool_ready(void *arg);
/* Lets go of everything that belongs to the slot; no job may run. */
void shell_drop_slot(struct shell *sh);
void shell_close_sources(struct shell *sh);

int shell_fd_listen(struct shell *sh);
void shell_fd_close(struct shell *sh);
void shell_attach(struct shell *sh);

/* enroll, join; offers with a group, whose bucket was claimed. */
void shell_enroll(struct shell *sh);
void shell_join(struct shell *sh);
void shell_offer_group(struct shell *sh, bool is_held);
/* It has ended when this returns; its offers fail, as if cancelled. */
void shell_mover_stop(struct shell *sh);
/* Nobody writes into the slot any more: it has ended, or rests. */
void shell_mover_rest(struct shell *sh);
/* A bucket is in the slot, or will not be (rc < 0). */
void shell_landed(struct shell *sh, uint32_t bucket, int rc,
		  const char *cause);
void shell_ack(struct shell *sh, const struct asker *to, uint32_t bucket);

/* With the version that is served offered on the device.  Without --device
 * all of these do nothing, successfully, at once. */
void shell_device_open(struct shell *sh, shell_then_fn *then);
/* A sealed version's bytes are on the device, hashed there, beside what is
 * offered (nothing, in place).  A version that may be switched to takes the
 * place of what is offered (in place; else nothing); unless the old one is
 * still there then (-E_AGAIN), the engine ends if this fails. */
void shell_device_stage(struct shell *sh, uint64_t version,
			shell_then_fn *then);
void shell_device_replace(struct shell *sh, uint64_t version,
			  shell_then_fn *then);
void shell_device_show(struct shell *sh, uint64_t version, shell_then_fn *then);
/* What the store serves is offered again; in place it has to be loaded. */
void shell_device_restore(struct shell *sh, shell_then_fn *then);
/* An install fails soon, if there is one. */
void shell_device_give_up(struct shell *sh);
void shell_device_close(struct shell *sh);

void shell_hook(struct shell *sh, enum engine_hook kind);
void shell_hook_stop(struct shell *sh);

#endif
