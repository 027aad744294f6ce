/*
 * move_shell.h - what the files of weir-move-nccl and weir-move-ipc share;
 * nobody else includes this.
 *
 *	move.c		start, stop, messages in and out
 *	move_group.c	groups: forming, ending
 *	move_kept.c	groups that outlive a run
 *	move_cast.c	offers: files, ring, staging
 *	move_nccl.c	the wire of weir-move-nccl: broadcasts
 *	move_ipc.c	the wire of weir-move-ipc: memory that others map
 */
#ifndef WEIR_MOVE_SHELL_H
#define WEIR_MOVE_SHELL_H

#include "common/gpu.h"
#include "common/loop.h"
#include "common/nccl.h"
#include "pipes/move.h"
#include "pipes/msg.h"

struct move;
struct group;
struct cast;

/* Something that the device tells when it is there. */
struct tick {
	struct move *m;
	void (*fn)(void *arg);	/* in the loop's thread */
	void *arg;
};

/* How what is in rank 0's staging gets to the others. */
struct move_wire {
	bool keeps_ids;	/* groups may have the same */
	/* The library's, if there is one. */
	int (*version)(uint32_t *library);
	/* Rank 0 makes g->id, the others have it. */
	int (*begin)(struct move *m, struct group *g);
	/* 1: all is well; 0: still forming; -E_UNAVAIL, logged: broken. */
	int (*state)(const struct group *g);
	/* All ranks are there: move_formed() once bytes have flowed. */
	int (*prove)(struct move *m, struct group *g);
	/* At rank 0 it is on its way to the staging, at others it is offered.
	 * -E_UNAVAIL: that cast has failed; else the process has. */
	int (*launch)(struct move *m, struct cast *c);
	/* It may hang: called under a watchdog. */
	void (*end)(struct move *m, struct group *g);
};

/* RESTS: it was formed in an older run. */
enum group_state {
	GROUP_FORMING, GROUP_PROBING, GROUP_FORMED, GROUP_RESTS, GROUP_OVER
};

struct group {
	uint32_t number, rank, world;
	enum group_state state;
	struct nccl_id id;
	void *comm, *stream;
	void *mapped[MOVE_STAGING];	/* rank 0's, where they are mapped */
	uint64_t seq, ms, room;		/* of its join */
	bool is_foreign;		/* its others know no probe */
	bool sums;			/* ... but begin with a sum */
	uint32_t flying;		/* broadcasts that have not ended */
	uint32_t joined;		/* runs that have used it */
	struct tick probed;
};

struct chunk {
	char *p;
	bool is_pinned, is_busy;
	struct cast *cast;
	size_t n;
	struct tick landed;
};

struct staging {
	void *memory;
	uint32_t users;			/* casts */
	uint32_t wave, bucket;		/* what is in it, whole; ID_NONE */
};

/* HELD: until the others have copied it. */
enum cast_state { CAST_WAITS, CAST_LOADS, CAST_FLIES, CAST_HELD, CAST_UNLOADS };

struct cast {
	struct cast *next;
	enum cast_state state;
	bool is_orphan;			/* nobody waits for its end */
	uint64_t seq, bytes;
	uint32_t wave, bucket;
	struct group *group;
	struct m_piece *piece;
	uint32_t npieces;
	struct staging *staging;
	uint8_t buffer;			/* of rank 0's staging, where mapped */
	const char *from;		/* what is unloaded */
	uint64_t queued;		/* bytes given to the device's copies */
	uint32_t at_piece;		/* where its files are read or written */
	uint64_t at_byte;
	uint64_t done;			/* bytes written */
	struct tick flown;
};

struct move {
	const struct move_wire *wire;
	int sock;
	struct loop *loop;
	struct gpu_device device;
	unsigned char peer[GPU_PEERS_MAX][GPU_UUID_LEN];
	int npeers;
	uint32_t library;
	int done_fd[2];			/* ticks that are there */
	struct buf in, out;
	struct msg_arena arena;
	int *file;			/* by number; -1: none */
	uint32_t nfiles;
	struct group **group;		/* in the order of joining */
	uint32_t ngroups;
	struct group *forming;		/* one at a time */
	struct loop_timer look, form, deadline;
	struct cast *cast;		/* in the order of their offers */
	uint32_t ncasts;
	uint64_t room;			/* bytes of each staging */
	size_t chunk_size;		/* bytes of each in the ring */
	struct staging staging[MOVE_STAGING];
	uint32_t nstagings;
	struct chunk chunk[MOVE_RING];
	void *copies;			/* stream */
	void *probe_memory;
	char *probe;
	bool probe_is_pinned;
	uint64_t pinned;		/* bytes: ring and probe */
};

/* It has a device. */
bool move_is_enrolled(const struct move *m);
/* A failure that this process cannot go on after. */
void move_give_up(struct move *m, int rc);
void move_send(struct move *m, const struct msg *reply);
/* With log_cause(), or cause. */
void move_refuse(struct move *m, uint64_t seq, int code, uint32_t bucket,
		 const char *cause);
/* fn(arg) when all that is in the stream has happened. */
int move_when_done(struct move *m, void *stream, struct tick *t,
		   void (*fn)(void *), void *arg);

/* Host memory that the device reads, counted if it could be pinned. */
int move_host_alloc(struct move *m, char **p, size_t n, bool *is_pinned);

void move_join(struct move *m, const struct m_join *j);
void move_leave(struct move *m, uint32_t number);
struct group *move_group(struct move *m, uint32_t number);	/* or NULL */
/* Its offers are refused with the cause, or dropped. */
void move_end_group(struct move *m, struct group *g, int code,
		    const char *cause);
void move_formed(struct move *m, struct group *g);
void move_look(void *arg);		/* at all groups in use */
/* Ends its communicator: what hangs there ends the process. */
void move_let_go(struct move *m, struct group *g);
void move_free_groups(struct move *m);

void move_rest(struct move *m, uint64_t seq);
/* What rests is too small for a bucket of that size, or stays. */
void move_make_room(struct move *m, uint64_t room);
/* out: room for as many as there are groups. */
uint32_t move_list_kept(const struct move *m, struct m_kept *out);
struct group *move_find_kept(const struct move *m, const struct m_join *j);

/* room: of the largest bucket. */
int move_open_ring(struct move *m, uint64_t room);
int move_open_staging(struct move *m, uint64_t room);	/* and the ring */
void move_offer(struct move *m, const struct m_offer *o);
void move_taken(struct move *m, uint64_t seq);
/* Of wires: rank 0 says that it can be had; one ends well. */
void move_launched(struct move *m, const struct cast *c);
void move_finish(struct move *m, struct cast *c);
void move_go_on(struct move *m);	/* with whatever can */
/* code 0: silently. */
void move_drop_casts(struct move *m, const struct group *g, int code,
		     const char *cause);
void move_free_casts(struct move *m);

#endif
