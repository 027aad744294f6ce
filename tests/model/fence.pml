/*
 * fence.pml - the version fence as a Promela model: open, decide, swap, abort
 * and recovery, with commits that are killed, power that fails, engines that
 * restart, leases that end, and calls that arrive late or never.
 *
 *	tests/model/run		every property, in every interleaving
 *
 * What is modelled, what is not, and where model and code differ:
 * share/doc/reliability.md.  Two engines.  Three commits: of a run, of the
 * same run started again, of another run; in any order, and each may have
 * read the registry long before it gets the lock.
 *
 * Properties, by the design's numbers (deadlock is spin's own):
 *   I1   decided only when every engine staged this run's bytes
 *   I2   an engine serves only what is decided, durably
 *   I3   nothing resumes on another version (by I2, at the swap)
 *   I10  late calls change nothing: what a receipt vouched for is still
 *        there when it is decided and when it is swapped, and nothing is
 *        staged for a run that was aborted
 *   I12  numbers only go up, and a number never has two contents
 *   home whoever ends with `open` removed leaves every engine that is not in
 *        `attention` on the highest decided version, with nothing staged,
 *        and not paused but by a call that came late (its lease ends it)
 */

#define ENGINES	2
#ifdef LAGGING		/* version 2 was decided, one engine is in attention */
#define TOP	6
#else
#define TOP	5	/* versions are below; 1 is served at the start */
#endif
#define TRIES	2	/* of bringing an engine home */

/* FAULT: what the properties must find.
 *  1 an engine takes an older epoch	 2 and one that was cancelled
 *  3 a decision is believed unsynced	 4 and swapped unsynced
 *  5 receipts are not waited for	 6 a number is used again
 *  7 an engine is not cancelled	 8 what is open is left open
 *  9 who is fenced off counts as home, though it lags
 * 10 an instance that saw nothing open does not look again with the lock
 * 11 one that goes on does not count on from who recovered its run
 * 12 an aborted run's record replaces that of a decided version */
#ifndef FAULT
#define FAULT	0
#endif
#ifndef KILLS
#define KILLS	1	/* commits that die, each at any step */
#endif
#ifndef REBOOTS
#define REBOOTS	1	/* engines that start again */
#endif
#ifndef LEASES
#define LEASES	1	/* pauses that end by themselves */
#endif
#ifndef LOSSES
#define LOSSES	2	/* calls or replies lost, or late; fsyncs that fail */
#endif

mtype = { PROBE, BEGIN, LOAD, RECEIPT, PAUSE, SWAP, RESUME, CANCEL };
mtype = { NONE, LINKED, DURABLE };
mtype = { OK, FENCED, FAILED };
mtype = { HEARD, UNHEARD, LATE, DROPPED };

typedef Engine {
	/* durable */
	byte epoch, owner, inst;	/* the fence */
	bool closed;
	byte serving, staged, staged_for;
	/* of this boot */
	byte boot;
	bool paused;
	bool stray;			/* ghost: paused by a late call */
	bool proven;			/* staged was hashed in this boot */
};

typedef Call {
	mtype what;			/* 0: none */
	byte owner, epoch, inst, boot, version;
};

typedef Decision {
	mtype state;
	byte owner, epoch;
};

typedef Open {				/* registry/open; owner 0: none */
	byte owner, epoch, inst, version;
	byte boot[ENGINES];
};

typedef Attention {
	bool is, decided;
	byte owner, epoch, version;
};

/* ---- disks ---- */

byte lock = 0;
byte reg_epoch = 0;
Open open;
Decision decision[TOP];
Attention attention[ENGINES];
byte instances[3];			/* RUN/commit.N, by run */
bool ended[3];				/* RUN/verdict */

Engine engine[ENGINES];
Call late[ENGINES];
byte kills = KILLS, reboots = REBOOTS, leases = LEASES, losses = LOSSES;

/* ---- an engine ---- */

Call m;					/* the one that is looked at */
mtype ret;

/* Refused: another boot; an older epoch, another run of this one, a closed
 * one, an older instance.  A begin or a cancel moves the fence first.  Loads
 * are of transfer, whose instances a commit's do not count. */
inline pass_fence(e)
{
	ret = OK;
	if
	:: m.what != CANCEL && m.boot != engine[e].boot -> ret = FAILED
	:: m.epoch < engine[e].epoch && FAULT != 1 -> ret = FENCED
	:: m.epoch > engine[e].epoch && m.what != BEGIN && m.what != CANCEL ->
		ret = FENCED
	:: m.epoch == engine[e].epoch && (m.owner != engine[e].owner ||
	   (m.what != LOAD && m.inst < engine[e].inst) ||
	   (engine[e].closed && m.what != CANCEL && FAULT != 2)) ->
		ret = FENCED
	:: else
	fi;
	if
	:: ret == OK && m.epoch > engine[e].epoch ->
		engine[e].epoch = m.epoch;
		engine[e].owner = m.owner;
		engine[e].inst = m.inst;
		engine[e].closed = false;
		unstage(e)
	:: ret == OK && m.epoch == engine[e].epoch && m.what != LOAD ->
		engine[e].inst = m.inst
	:: else
	fi
}

inline unstage(e)
{
	engine[e].staged = 0;
	engine[e].staged_for = 0;
	engine[e].proven = false
}

inline unpause(e)
{
	engine[e].paused = false;
	engine[e].stray = false
}

inline load(e)
{
	if
	:: engine[e].serving == m.version || engine[e].staged == m.version
	:: else ->
		/* I10 */
		assert(!engine[e].closed);
		engine[e].staged = m.version;
		engine[e].staged_for = m.owner;
		engine[e].proven = true
	fi
}

inline prove(e)
{
	if
	:: engine[e].staged == m.version -> engine[e].proven = true
	:: engine[e].serving == m.version
	:: else -> ret = FENCED
	fi
}

inline swap(e)
{
	if
	:: engine[e].serving == m.version		/* again: done */
	:: engine[e].serving != m.version && engine[e].staged != m.version ->
		ret = FENCED
	:: engine[e].serving != m.version && engine[e].staged == m.version &&
	   (!engine[e].paused || !engine[e].proven) ->
		ret = FAILED
	:: else ->
		/* I2, I3 */
		assert(decision[m.version].state == DURABLE);
		/* I10 */
		assert(engine[e].staged_for == decision[m.version].owner);
		/* I12 */
		assert(m.version > engine[e].serving);
		engine[e].serving = m.version;
		unstage(e)
	fi
}

inline act(e)
{
	if
	:: m.what == BEGIN && m.version <= engine[e].serving -> ret = FENCED
	:: m.what == LOAD -> load(e)
	:: m.what == RECEIPT -> prove(e)
	:: m.what == PAUSE -> engine[e].paused = true
	:: m.what == SWAP -> swap(e)
	:: m.what == RESUME -> unpause(e)
	:: m.what == CANCEL ->
		engine[e].closed = true;
		unstage(e);
		unpause(e)
	:: else
	fi
}

inline serve(e)
{
	ret = OK;
	if
	:: m.what != PROBE -> pass_fence(e)
	:: else
	fi;
	if
	:: ret == OK -> act(e)
	:: else
	fi
}

inline forget(c)
{
	c.what = 0;
	c.owner = 0;
	c.epoch = 0;
	c.inst = 0;
	c.boot = 0;
	c.version = 0
}

inline copy(to, from)
{
	to.what = from.what;
	to.owner = from.owner;
	to.epoch = from.epoch;
	to.inst = from.inst;
	to.boot = from.boot;
	to.version = from.version
}

inline arrive(e)
{
	copy(m, late[e]);
	forget(late[e]);
	serve(e);
	if
	:: ret == OK && m.what == PAUSE -> engine[e].stray = true
	:: else
	fi;
	forget(m);
	ret = 0
}

inline reboot(e)
{
	reboots--;
	engine[e].boot++;
	engine[e].proven = false;
	unpause(e)
}

proctype World()
{
end:
	do
	:: d_step { late[0].what != 0 -> arrive(0) }
	:: d_step { late[1].what != 0 -> arrive(1) }
	:: d_step { reboots > 0 -> reboot(0) }
	:: d_step { reboots > 0 -> reboot(1) }
	:: d_step { leases > 0 && engine[0].paused -> leases--; unpause(0) }
	:: d_step { leases > 0 && engine[1].paused -> leases--; unpause(1) }
	od
}

/* ---- a commit ---- */

/* What only the holder of the lock uses; zero while nobody has it. */
byte who, goal, epoch, inst;		/* for whom it asks */
byte boot[ENGINES];
byte e, n, item, served;
bool back, first, opened, has_open, unknown, is_decided, dead;
bool is_so;				/* answer of look_at_decision */
bool away[6];
mtype ans, fate, worst;
bool seen_paused;
byte seen_serving, seen_epoch;

/* Between two steps it may be killed. */
#define STEP							\
	if							\
	:: atomic { kills > 0 -> kills-- }; goto killed		\
	:: true							\
	fi

/* A call is one step: nothing else of this commit happens until it ends.
 * Who is killed may have sent it. */
#define ASK(w)							\
	atomic {						\
		if						\
		:: fate = HEARD					\
		:: losses > 0 -> losses--; fate = UNHEARD	\
		:: losses > 0 && late[e].what == 0 ->		\
			losses--; fate = LATE			\
		:: losses > 0 && late[e].what != 0 ->		\
			losses--; fate = DROPPED		\
		:: kills > 0 && late[e].what == 0 ->		\
			kills--; dead = true; fate = LATE	\
		:: kills > 0 && late[e].what != 0 ->		\
			kills--; dead = true; fate = DROPPED	\
		fi;						\
		ask(w)						\
	};							\
	if							\
	:: dead -> goto killed					\
	:: else							\
	fi

inline ask(w)
{
	d_step {
		m.what = w;
		m.owner = who;
		m.epoch = epoch;
		m.inst = inst;
		m.boot = boot[e];
		m.version = goal;
		if
		:: fate == HEARD || fate == UNHEARD -> serve(e)
		:: fate == LATE && w != PROBE -> copy(late[e], m)
		:: else
		fi;
		ans = (fate == HEARD -> ret : FAILED);
		ret = 0;
		if
		:: fate == HEARD && w == PROBE ->
			seen_serving = engine[e].serving;
			seen_paused = engine[e].paused;
			seen_epoch = engine[e].epoch
		:: else
		fi;
		if
		:: ans == OK && w == PROBE && boot[e] == 0 ->
			boot[e] = engine[e].boot
		:: ans == OK && w == PROBE && boot[e] != engine[e].boot ->
			ans = FAILED;		/* reborn */
			boot[e] = engine[e].boot
		:: else
		fi;
		forget(m);
		fate = 0
	}
}

inline forget_seen()
{
	seen_serving = 0;
	seen_paused = false;
	seen_epoch = 0
}

/* Whose is it?  The directory is synced before a decision is believed. */
inline look_at_decision(num, by, in)
{
	if
	:: decision[num].state == LINKED && FAULT != 3 ->
		decision[num].state = DURABLE
	:: else
	fi;
	is_so = (decision[num].state != NONE &&
		 decision[num].owner == by && decision[num].epoch == in)
}

inline find_highest()
{
	goal = TOP - 1;
	do
	:: decision[goal].state == NONE -> goal--
	:: else -> break
	od
}

/* What is true of the engines when nothing is open. */
inline settled()
{
	d_step {
		find_highest();
		e = 0;
		do
		:: e < ENGINES && !attention[e].is ->
			assert(engine[e].serving == goal);
			assert(engine[e].staged == 0);
			assert(!engine[e].paused || engine[e].stray);
			e++
		:: e < ENGINES && attention[e].is -> e++
		:: else -> break
		od;
		e = 0;
		goal = 0
	}
}

/* Whom to bring home, and how: of `open` 0, 1; in attention 2, 3; of this run
 * 4, 5. */
inline take_item()
{
	d_step {
		e = item % ENGINES;
		first = (first && item >= 4);
		if
		:: item < 2 && has_open ->
			who = open.owner;
			goal = open.version;
			epoch = open.epoch;
			inst = open.inst;
			back = !is_decided;
			n = TRIES
		:: item >= 2 && item < 4 && attention[e].is ->
			who = attention[e].owner;
			goal = attention[e].version;
			epoch = attention[e].epoch;
			inst = 9;
			back = !attention[e].decided;
			n = TRIES
		:: item >= 4 -> n = TRIES
		:: else -> n = 0
		fi;
		if
		:: item < 4 -> boot[e] = 0
		:: else
		fi;
		if
		:: FAULT == 7 && item == 5 && back -> n = 0
		:: else
		fi
	}
}

/* pipes/homing.c.  n: attempts left; 0: it is home, 9: it is away. */
#define RETRY_OR_AWAY	n = (n > 1 -> n - 1 : 9)
#define FENCED_OFF	n = (FAULT == 9 && item < 4 -> 0 : 9)

inline clear_attention(i)
{
	attention[i].is = false;
	attention[i].decided = false;
	attention[i].owner = 0;
	attention[i].epoch = 0;
	attention[i].version = 0
}

/* What was decided is owed, whatever an undecided run leaves.  The registry
 * keeps both records. */
inline put_attention(i)
{
	if
	:: back && attention[i].decided && FAULT != 12
	:: else ->
		attention[i].is = true;
		attention[i].decided = !back;
		attention[i].owner = who;
		attention[i].epoch = epoch;
		attention[i].version = goal
	fi
}

inline remove_open()
{
	open.owner = 0;
	open.epoch = 0;
	open.inst = 0;
	open.version = 0;
	open.boot[0] = 0;
	open.boot[1] = 0
}

inline forget_all()
{
	who = 0; goal = 0; epoch = 0; inst = 0;
	boot[0] = 0; boot[1] = 0;
	e = 0; n = 0; item = 0; served = 0;
	back = false; first = false; opened = false; has_open = false;
	unknown = false; is_decided = false; dead = false;
	away[0] = false; away[1] = false; away[2] = false; away[3] = false;
	away[4] = false; away[5] = false;
	fate = 0; worst = 0; ans = 0;
	forget_seen()
}

proctype Commit(byte me; byte my)
{
	byte mine, mine_epoch, mine_version;
	bool resumed, ahead;

	/* prepare: before the lock. */
	d_step {
		instances[my]++;
		mine = instances[my];
		if
		:: open.owner == my ->
			mine_epoch = open.epoch;
			mine_version = open.version;
			look_at_decision(open.version, my, open.epoch);
			ahead = is_so;
			resumed = !is_so;
			is_so = false
		:: else
		fi
	}
	atomic { lock == 0 -> lock = me };
	if
	:: ended[my] -> goto unlock
	:: else
	fi;
	STEP;
	/* check_mine */
	d_step {
		opened = ((resumed || ahead) && open.owner == my);
		if
		:: opened && resumed ->
			look_at_decision(open.version, my, open.epoch);
			ahead = is_so;
			resumed = !is_so;
			is_so = false
		:: else
		fi;
		mine_epoch = (opened -> open.epoch : mine_epoch);
		mine_version = (opened -> open.version : mine_version);
		mine = (opened && open.inst >= mine && FAULT != 11 ->
			open.inst + 1 : mine)
	}
	if
	:: resumed && !opened -> back = true; goto own
	:: !resumed && !ahead && open.owner == my && FAULT != 10 -> goto refuse
	:: else
	fi;

	/* recover */
	if
	:: FAULT == 8 -> goto recovered
	:: open.owner != 0 && open.owner != my ->
		d_step {
			has_open = true;
			look_at_decision(open.version, open.owner, open.epoch);
			is_decided = is_so;
			is_so = false;
			open.inst++
		}
	:: else
	fi;
	item = 0;
	goto home;

own:
	skip;
	d_step {
		who = my;
		goal = (goal -> goal : mine_version);
		epoch = (epoch -> epoch : mine_epoch);
		inst = mine;
		item = 4
	}
home:
	skip;
	take_item();
	if		/* no answer in time */
	:: atomic { n > 0 && losses > 0 -> losses--; n = 9 }
	:: true
	fi;
	do
	:: n == 0 || n == 9 -> break
	:: n > 0 && n < 9 && back ->
		ASK(CANCEL);
		d_step {
			if
			:: ans == OK || ans == FENCED -> n = 0
			:: else -> RETRY_OR_AWAY
			fi;
			ans = 0
		}
	:: n > 0 && n < 9 && !back ->
		if
		:: first && n == TRIES -> goto swap_it
		:: else
		fi;
		boot[e] = 0;
		ASK(PROBE);
		if
		:: atomic { ans != OK -> RETRY_OR_AWAY; ans = 0; forget_seen() }
		:: atomic { ans == OK && seen_serving == goal && !seen_paused ->
			n = 0; ans = 0; forget_seen() }
		:: atomic { ans == OK && seen_serving == goal && seen_paused ->
			ans = 0; forget_seen() }; goto swap_it
		:: atomic { ans == OK && seen_serving != goal ->
			served = seen_serving; ans = 0; forget_seen() };
			ASK(RECEIPT);
			if
			:: atomic { ans == OK -> ans = 0; served = 0 };
				goto swap_it
			:: d_step { ans == FENCED && served >= goal ->
				ans = 0; n = 0; served = 0 }
			:: d_step { ans == FENCED && served < goal ->
				ans = 0; FENCED_OFF; served = 0 }
			:: d_step { ans == FAILED -> ans = 0; RETRY_OR_AWAY;
				served = 0 }
			fi
		fi;
		goto tried;
swap_it:
		ASK(PAUSE);
		worst = ans;
		ASK(SWAP);
		worst = (worst == OK -> ans : worst);
		ASK(RESUME);
		d_step {
			worst = (worst == OK -> ans : worst);
			if
			:: worst == OK -> n = 0
			:: worst == FENCED -> FENCED_OFF
			:: else -> RETRY_OR_AWAY
			fi;
			worst = 0;
			ans = 0
		}
tried:
		skip
	od;
	skip;
	d_step {
		away[item] = (n == 9);
		n = 0;
		item++
	}
	if
	:: item != 4 && item != 6 -> goto home
	:: item == 6 -> goto verdict
	:: else
	fi;

	/* settle */
	STEP;
	d_step {
		e = 0;
		do
		:: e < ENGINES ->
			if
			:: attention[e].is && !away[2 + e] -> clear_attention(e)
			:: else
			fi;
			if
			:: away[e] ->
				who = open.owner;
				goal = open.version;
				epoch = open.epoch;
				back = !is_decided;
				put_attention(e)
			:: else
			fi;
			away[e] = false;
			away[2 + e] = false;
			e++
		:: else -> break
		od;
		e = 0; who = 0; goal = 0; epoch = 0; inst = 0; back = false;
		boot[0] = 0; boot[1] = 0; item = 0; is_decided = false
	}
	if
	:: has_open ->
		STEP;
		d_step { remove_open(); has_open = false }
	:: else
	fi;
	if
	:: open.owner == 0 -> settled()
	:: else
	fi;
recovered:
	if
	:: ahead -> goto own
	:: else
	fi;

	/* probe */
	d_step {
		who = my;
		inst = mine;
		if
		:: resumed ->
			boot[0] = open.boot[0];
			boot[1] = open.boot[1];
			goal = mine_version;
			epoch = mine_epoch
		:: else -> epoch = reg_epoch
		fi;
		e = 0
	}
	do
	:: e < ENGINES ->
		ASK(PROBE);
		if
		:: ans != OK && resumed -> goto undo
		:: ans != OK && !resumed -> goto refuse
		:: else
		fi;
		d_step {
			epoch = (!resumed && seen_epoch > epoch ->
				 seen_epoch : epoch);
			served = (seen_serving > served ->
				  seen_serving : served);
			forget_seen();
			ans = 0;
			e++
		}
	:: else -> break
	od;

	/* open */
	if
	:: resumed -> served = 0
	:: else ->
		d_step {
			epoch++;
			find_highest();
			goal = (served > goal || FAULT == 6 -> served : goal);
			goal++;
			served = 0
		}
		if
		:: goal >= TOP -> goto refuse
		:: else
		fi;
		STEP;
		reg_epoch = epoch
	fi;
	STEP;
	d_step {
		open.owner = my;
		open.epoch = epoch;
		open.inst = mine;
		open.version = goal;
		open.boot[0] = boot[0];
		open.boot[1] = boot[1];
		opened = true;
		e = 0
	}

	do
	:: e < ENGINES ->
		ASK(BEGIN);
		if
		:: ans != OK -> goto undo
		:: else -> e++
		fi
	:: else -> break
	od;
	e = 0;
	do
	:: e < ENGINES ->
		ASK(LOAD);
		if
		:: ans != OK && FAULT != 5 -> goto undo
		:: else -> e++
		fi
	:: else -> break
	od;
	e = 0;
	do
	:: e < ENGINES ->
		ASK(RECEIPT);
		if
		:: ans != OK && FAULT != 5 -> goto undo
		:: else -> e++
		fi
	:: else -> break
	od;
	e = 0;
	ans = 0;

	/* decide: a link is made once. */
	STEP;
	if
	:: decision[goal].state != NONE && FAULT != 6 -> goto undo
	:: else ->
		d_step {
			/* I1, I10 */
			assert(engine[0].staged == goal);
			assert(engine[0].staged_for == my);
			assert(engine[1].staged == goal);
			assert(engine[1].staged_for == my);
			/* I12 */
			assert(decision[goal].state == NONE);
			decision[goal].state = LINKED;
			decision[goal].owner = my;
			decision[goal].epoch = epoch
		}
	fi;
	STEP;
	if
	:: decision[goal].state = (FAULT == 4 -> LINKED : DURABLE)
	:: atomic { losses > 0 -> losses-- };	/* fsync failed */
		unknown = true; goto refuse
	fi;
	first = true;
	goto own;
undo:
	skip;
	d_step { ans = 0; forget_seen(); back = true; served = 0 }
	goto own;

verdict:
	skip;
	STEP;
	d_step {
		e = 0;
		do
		:: e < ENGINES && opened ->
			if
			:: away[4 + e] -> put_attention(e)
			:: !away[4 + e] && !back -> clear_attention(e)
			:: else
			fi;
			e++
		:: else -> break
		od;
		e = 0
	}
refuse:
	STEP;
	ended[my] = true;
	STEP;
	if
	:: opened && !unknown ->
		d_step { remove_open(); opened = false };
		settled()
	:: else
	fi;
	goto unlock;
killed:
	/* The power may have gone with it. */
	if
	:: true
	:: d_step {
		goal > 0 && goal < TOP && decision[goal].state == LINKED ->
		decision[goal].state = NONE;
		decision[goal].owner = 0;
		decision[goal].epoch = 0
	   }
	fi;
unlock:
	skip;
	d_step {
		forget_all();
		mine = 0; mine_epoch = 0; mine_version = 0;
		resumed = false; ahead = false;
		lock = 0
	}
}

init {
	d_step {
		engine[0].serving = 1;
		engine[1].serving = 1;
		engine[0].boot = 1;
		engine[1].boot = 1;
		e = 2;
		do
		:: e < TOP -> decision[e].state = NONE; e++
		:: else -> break
		od;
		e = 0;
		decision[0].state = DURABLE;
		decision[1].state = DURABLE;
#ifdef LAGGING
		decision[2].state = DURABLE;
		decision[2].owner = 3;
		decision[2].epoch = 1;
		reg_epoch = 1;
		engine[0].epoch = 1;
		engine[0].owner = 3;
		engine[0].inst = 1;
		engine[0].staged = 2;
		engine[0].staged_for = 3;
		engine[0].proven = true;
		engine[1].epoch = 1;
		engine[1].owner = 3;
		engine[1].inst = 1;
		engine[1].serving = 2;
		attention[0].is = true;
		attention[0].decided = true;
		attention[0].owner = 3;
		attention[0].epoch = 1;
		attention[0].version = 2;
#endif
		is_so = false
	}
	atomic {
		run World();
		run Commit(1, 1);
		run Commit(2, 1);
		run Commit(3, 2)
	}
}
