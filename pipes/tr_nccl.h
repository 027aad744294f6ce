/*
 * tr_nccl.h - what the files of transports nccl and cuda-ipc share; nobody
 * else includes this.
 *
 *	tr_nccl.c	the table, enrolling, what receivers say
 *	tr_nccl_root.c	rank 0 of a source rank's groups: its mover
 *	tr_nccl_group.c	groups: who is in one, forming, breaking
 *	tr_nccl_cast.c	buckets on their way, posts and their ends
 */
#ifndef WEIR_TR_NCCL_H
#define WEIR_TR_NCCL_H

#include "common/gputext.h"
#include "pipes/fan.h"
#include "pipes/kept.h"
#include "pipes/mover.h"
#include "pipes/transport.h"

/* Tags on the fan; the rest is the number of a group or a bucket. */
#define TAG_ENROLL ((uint64_t)1 << 32)
#define TAG_JOIN   ((uint64_t)2 << 32)
#define TAG_OFFER  ((uint64_t)3 << 32)

/* Of a device that takes part. */
struct device {
	bool is_known;
	unsigned char uuid[GPU_UUID_LEN];
	uint32_t library;
	unsigned char peers[1024]; /* uuids of those that it reads directly */
	size_t peers_len;
	struct kept kept; /* groups that its mover has of older runs */
};

/* Rank 0 of all groups of one source rank: worker r of each engine receives
 * from source rank r, and is in no group of another. */
struct root {
	struct transport *t;
	uint32_t rank;	     /* the source's */
	struct mover *mover; /* NULL: it has ended */
	uint64_t keep_ms;    /* it is lent, and may be returned; 0: ours */
	int gone_code;	     /* why */
	char gone[TR_CAUSE_MAX];
	bool has_files; /* the mover has the rank's */
	uint64_t pinned; /* bytes, by it */
	struct device device;
	uint64_t room; /* bytes of the rank's largest share */
	struct loop_timer silence;
	uint64_t patience_ms; /* with it */
};

enum group_state { GROUP_NEW, GROUP_FORMING, GROUP_FORMED, GROUP_BROKEN };

struct group {
	struct root *root;
	uint32_t number; /* from 1; of all roots' */
	enum group_state state;
	uint32_t n;
	uint32_t *member; /* receivers, ascending */
	bool *entered;	  /* of each: its mover waits for the others */
	uint32_t missing; /* ranks that have not said that it has formed */
	uint64_t seq;	  /* of rank 0's join */
	bool is_kept;	  /* of an older run, with this token */
	struct digest token;
};

struct post {
	uint32_t receiver;
	bool has_ended;
	uint32_t acks; /* that came */
	struct tr_event *ack;
};

/* A bucket on its way to a group. */
struct cast {
	struct cast *next;
	struct group *group;
	uint32_t wave, bucket;
	uint64_t seq; /* rank 0's; 0: not sent yet */
	bool is_launched, is_taken, is_moved;
	uint8_t buffer; /* cuda-ipc: that receivers copy it from */
	struct post *post; /* one for each member */
};

struct pending {
	uint32_t wave, bucket, receiver;
};

/* What differs. */
struct tr_nccl_way {
	const char *name;
	const struct mover_kind *mover;
	/* Receivers copy it from the source's device, theirs too, and rank 0
	 * keeps it until they have; else it is a broadcast to others. */
	bool is_mapped;
};

struct nccl {
	const struct tr_nccl_way *way;
	struct fan *fan;
	struct root *root;	/* of each source rank */
	struct device *device;	/* of each receiver */
	bool *wants, *attached; /* receivers */
	struct group **group;
	uint32_t ngroups;
	struct cast *cast; /* in the order of posting */
	struct pending *pending;
	size_t npending, cap;
	uint64_t seq;
	uint32_t wave;
	uint32_t bucket;
	struct loop_timer turn;
	struct msg_arena arena;
	struct tr_pieces pieces;
};

struct nccl *tr_nccl_of(const struct transport *t);
const char *tr_nccl_name_of(const struct transport *t, uint32_t receiver);
/* That it receives from. */
struct root *tr_nccl_root_of(const struct transport *t, uint32_t receiver);
void tr_nccl_take_device(struct device *d, const struct m_enrolled *e);
/* Attached when it and all roots have told their device, and if it may. */
void tr_nccl_try_attach(struct transport *t, uint32_t receiver);

void tr_nccl_init_root(struct root *r, struct transport *t, uint32_t rank);
/* Starts its mover on a device of its own: that of the rank's number. */
int tr_nccl_start_root(struct root *r);
/* Its mover has the source's files.  -E_*: it has not, and why (log_cause()). */
int tr_nccl_give_files(struct root *r);
/* (Re)arms the deadline for its next word, if it owes one: its device, a group
 * that forms, a bucket. */
void tr_nccl_watch_root(struct root *r);
/* It is of use to the next run, if it is lent; gone from here. */
void tr_nccl_return_root(struct root *r);
void tr_nccl_free_root(struct root *r);

/* The group of exactly these receivers, sorted, of one source rank. */
struct group *tr_nccl_group_of(struct transport *t, const uint32_t *member,
			       uint32_t count);
void tr_nccl_form(struct transport *t, struct group *g);
void tr_nccl_ask_to_join(struct transport *t, struct group *g,
		      const struct m_grouped *id);
/* Another rank says that the group is there. */
void tr_nccl_one_formed(struct transport *t, struct group *g);
/* Those that never came are named; if all came, nobody is. */
void tr_nccl_not_formed(struct transport *t, struct group *g, int code,
		     const char *cause);
/* Why is told for each of its posts; the guilty have been told before. */
void tr_nccl_break_group(struct transport *t, struct group *g, int code,
		      const char *cause);
/* A receiver failed: its groups cannot go on without it. */
void tr_nccl_lose(struct transport *t, uint32_t receiver, int code,
	       const char *cause);
void tr_nccl_free_groups(struct nccl *n);

/* Looks at what was posted since the last turn of the loop. */
void tr_nccl_turn(void *transport);
/* Rank 0 has read it, and begun its broadcast or has it in that buffer. */
void tr_nccl_launched(struct transport *t, struct cast *c, uint8_t buffer);
void tr_nccl_moved(struct transport *t, struct cast *c);
/* It owes a word on this one. */
bool tr_nccl_is_owed(const struct nccl *n, const struct cast *c);
struct post *tr_nccl_find_post(struct nccl *n, uint32_t receiver, uint32_t bucket,
			    struct cast **of_cast);
/* Its acks are passed on if all are there and rank 0 has let go. */
void tr_nccl_settle(struct transport *t, struct cast *c, struct post *p);
void tr_nccl_fail_post(struct transport *t, struct cast *c, struct post *p,
		    int code, const char *cause);
void tr_nccl_fail_cast(struct transport *t, struct cast *c, int code,
		    const char *cause);
/* Frees casts whose every post has ended, and which the mover does not know
 * or has let go of. */
void tr_nccl_sweep(struct nccl *n);
void tr_nccl_free_casts(struct nccl *n);

#endif
