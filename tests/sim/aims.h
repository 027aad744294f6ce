/*
 * aims.h - worlds that are made for what seldom happens: what an aim is made
 * of.  aims.c has those of the seeds that are always run, aims_close.c those
 * that are run beside them for the rows that they would miss.
 */
#ifndef WEIR_SIM_AIMS_H
#define WEIR_SIM_AIMS_H

#include "story.h"

#include "pipes/admit.h"
#include "pipes/commit.h"
#include "pipes/engine.h"
#include "pipes/homing.h"
#include "pipes/transfer.h"

#define MOMENTS 4

/* What the world must have. */
enum {
	SPARE = 1 << 0,	   /* an engine can be left out */
	IN_PLACE = 1 << 1, /* servers */
	AGAIN = 1 << 2,	   /* the second push: a decided number */
	JOIN = 1 << 3,
	BACK = 1 << 4,
	SLOW = 1 << 5,	    /* jobs take their time */
	HOOKS = 1 << 6,	    /* commands of engines too */
	ALONE = 1 << 7,	    /* one engine */
	ECHOES = 1 << 8,    /* old requests are heard */
	NEXT = 1 << 9,	    /* all but the first are the next push's */
	BIG = 1 << 10,	    /* many buckets */
	FAILS = 1 << 11,    /* servers that answer wrongly at times */
	WHOLE = 1 << 12,    /* no engine can be left out */
	GONE = 1 << 13,	    /* who dies is away for a while */
	DEAD = 1 << 14,	    /* ... for longer than most time-outs */
	WAVES = 1 << 15,    /* of one engine each */
	PAIR = 1 << 16,	    /* two engines */
	SERVERS = 1 << 17,  /* all of them in place */
	QUICK = 1 << 18,    /* engines have little time */
	LAZY = 1 << 19,	    /* commands that take too long, or nearly */
	UNLEASED = 1 << 20, /* no leases: all is read twice */
	PATIENT = 1 << 21,  /* engines have much time */
	SLUGGISH = 1 << 22  /* disks are slow */
};

/* How it happens. */
enum {
	AGAIN_ = 1 << 0, /* in a stage that was started again */
	LONG_ = 1 << 1,	 /* longer than all time-outs */
	LAG_ = 1 << 2,	 /* nearly as long as an engine may take */
	BRIEF_ = 1 << 3, /* not as long as any time-out */
	OTHER_ = 1 << 4, /* another engine than the others', or its messages */
	FIRST_ = 1 << 5, /* in the first push */
	LATE_ = 1 << 6,	 /* some time after the state was entered */
	LINK_ = 1 << 7,	 /* cuts: of the link that the stage has dialled */
	WIRE_ = 1 << 8,	 /* cuts: of the stage's connection to an engine */
	ALL_ = 1 << 9,	 /* kills: each that takes its place, too; of frames:
			  * each, until the moment below */
	NOW_ = 1 << 10,	 /* in the same step */
	THEN_ = 1 << 11, /* not before the moment above has come */
	LINGER_ = 1 << 12, /* a little longer than an engine may take */
	MANY_ = 1 << 13,   /* disks: not the first writes */
	LOST_ = 1 << 14	   /* cuts: nothing of what was under way arrives */
};

struct moment {
	const struct fsm_table *machine; /* or world_frames */
	uint8_t state;			 /* or a message's type */
	enum fault_kind kind;
	uint32_t who; /* a stage; the engine is drawn */
	unsigned how;
};

struct aim {
	unsigned world;
	unsigned turns; /* beside the one that each has */
	struct moment at[MOMENTS];
};

#define AT(m, s, k, w, how)                              \
	{                                                \
		&m##_table, s, FAULT_##k, STAGE_##w, how \
	}
#define STAGE(m, s, k, w) AT(m, s, k, w, 0)
#define LATER(m, s, k, w) AT(m, s, k, w, AGAIN_)
#define ENGINE(m, s, k) AT(m, s, k, NONE, 0)
#define LONG(m, s, k) AT(m, s, k, NONE, LONG_)
#define LINK(m, s, w) AT(m, s, CUT, w, LINK_)
#define WIRE(m, s, w) AT(m, s, CUT, w, WIRE_)
#define OTHER(m, s, k, how) AT(m, s, k, NONE, OTHER_ | (how))
#define FRAME(t, k, w, how)                                     \
	{                                                       \
		&world_frames, M_##t, FAULT_##k, STAGE_##w, how \
	}

extern const struct aim close_aims[];
extern const size_t nclose_aims;

#endif
