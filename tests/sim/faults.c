/* What befalls the world. */
#include "story.h"

#include "server.h"
#include "watch.h"

#include "pipes/admit.h"
#include "pipes/commit.h"
#include "pipes/engine.h"
#include "pipes/homing.h"
#include "pipes/transfer.h"

#include <fnmatch.h>
#include <signal.h>
#include <string.h>

#define BEFALLS_MS 400 /* when faults begin, at most, mostly */
#define MOVES_ON 8     /* durable moves until a kill, at most */

static const char *const fault_names[] = {
	[FAULT_KILL_STAGE] = "kill-stage",
	[FAULT_KILL_ENGINE] = "kill-engine",
	[FAULT_STOP_STAGE] = "stop-stage",
	[FAULT_STOP_ENGINE] = "stop-engine",
	[FAULT_CUT] = "cut",
	[FAULT_STALL] = "stall",
	[FAULT_DISK] = "disk",
	[FAULT_POWER] = "power",
	[FAULT_SIGNAL] = "signal",
	[FAULT_PUSH] = "kill-push",
	[FAULT_TWICE] = "twice",
	[FAULT_LIE] = "lie",
	[FAULT_ECHO] = "echo",
	[FAULT_FULL] = "full",
	[FAULT_SERVER] = "server",
	[FAULT_SLOW] = "slow",
	[FAULT_BUSY] = "busy",
	[FAULT_FLOW] = "flow",
	[FAULT_RISE] = "rise",
	[FAULT_ROT] = "rot",
};
static_assert(COUNT(fault_names) == FAULT_NKINDS, "name every fault");

const char *world_fault_name(enum fault_kind k)
{
	return fault_names[k];
}

const struct fsm_table world_frames = { .name = "message" };

const char *world_fault_state(const struct fault *f)
{
	return f->machine == &world_frames ? msg_name(f->state)
					   : f->machine->states[f->state];
}

bool world_is_of_engine(enum fault_kind k)
{
	return k == FAULT_KILL_ENGINE || k == FAULT_STOP_ENGINE ||
	       k == FAULT_LIE || k == FAULT_SERVER || k == FAULT_SLOW ||
	       k == FAULT_BUSY || k == FAULT_ROT;
}

/* The one that was started again: another may be stopped beside it. */
static struct proc *restarted(int pid)
{
	struct proc *p = sim.procs;

	while (p && p->pid != pid)
		p = p->next;
	return p;
}

static struct proc *target(const struct fault *f)
{
	struct push *p = &world.push[f->push];

	if (f->again && !world_is_of_engine(f->kind))
		return restarted(f->pid);
	if (world_is_of_engine(f->kind))
		return world.engine[f->who];
	if (f->kind == FAULT_DISK && f->who >= STAGE_N)
		return world.engine[f->who - STAGE_N];
	return p->stage[f->who];
}

static void go_on(void *arg_)
{
	int pid = (int)(uintptr_t)arg_;

	for (struct proc *p = sim.procs; p; p = p->next)
		if (p->pid == pid && p->stopped)
			proc_continue(p);
}

static void stop_for(struct proc *p, int64_t ns)
{
	proc_stop(p);
	sim_at(sim.now + ns, go_on, (void *)(uintptr_t)p->pid);
}

void world_write_boot_id(void)
{
	static const char digits[] = "0123456789abcdef";
	char id[38];

	for (int i = 0; i < 36; i++)
		id[i] = i == 8 || i == 13 || i == 18 || i == 23
				? '-'
				: digits[rng_below(&sim.rng, 16)];
	id[36] = '\n';
	disk_mkdirs("/proc/sys/kernel/random");
	disk_put("/proc/sys/kernel/random/boot_id", id, 37);
}

static void power_cut(void)
{
	sim_tell("power cut");
	for (uint32_t i = 0; i < world.pushes; i++) {
		struct push *p = &world.push[i];

		if (p->live && !p->over) {
			story_end_push(p);
		}
	}
	for (struct proc *p = sim.procs; p; p = p->next)
		proc_kill(p, SIGKILL);
	for (uint32_t i = 0; i < world.engines; i++)
		server_restart(i);
}

static void after_power_cut(void *arg_)
{
	(void)arg_;
	disk_power_cut();
	watch_power_cut();
	world_write_boot_id();
}

static void start_twice(struct push *p, enum stage_id id, int64_t ns)
{
	if (p->stage[id] && ns)
		stop_for(p->stage[id], ns);
	story_start_beside(p, id);
}

static void kill_at(struct proc *p, const struct fault *f)
{
	/* What it has just said may be under way. */
	if (f->now && p != sim.p) {
		proc_kill(p, SIGKILL);
		return;
	}
	if (!f->at_move) {
		p->kill_at = p->steps + 1 + f->steps;
		return;
	}
	p->kill_move = p->moves + 1 + f->steps / 2 % MOVES_ON;
	p->kill_after = f->steps & 1;
}

static void befall_stage(const struct fault *f, struct push *p)
{
	struct proc *at = target(f);

	if (f->repeats)
		p->doomed = (enum stage_id)f->who;
	switch (f->kind) {
	case FAULT_KILL_STAGE:
	case FAULT_KILL_ENGINE:
		if (at)
			kill_at(at, f);
		break;
	case FAULT_STOP_STAGE:
	case FAULT_STOP_ENGINE:
		if (at)
			stop_for(at, f->len);
		break;
	case FAULT_DISK:
		if (at)
			at->fail_at = at->writes + 1 + f->steps;
		break;
	case FAULT_SIGNAL:
		if (at)
			proc_signal(at, f->steps & 1 ? SIGTERM : SIGINT);
		break;
	case FAULT_SLOW:
		if (at)
			at->job_ns = f->len;
		break;
	case FAULT_TWICE:
		start_twice(p, (enum stage_id)f->who,
			    f->steps & 1 ? f->len : 0);
		break;
	default:
		break;
	}
}

/* Of the engines' connections a message means one: its engine's, or the next
 * one's. */
static void name_wire(const struct fault *f, char *prefix, size_t size)
{
	uint32_t e = (f->engine + f->other) % world.engines;

	if (f->machine == &world_frames)
		snprintf(prefix, size, "ipc:///sock/e%u", e);
	else
		snprintf(prefix, size, "ipc:///sock/");
}

static void cut(const struct fault *f)
{
	struct rng r = { f->steps };
	char prefix[32];

	if (f->cut == CUT_LINK) {
		net_cut(&r, stage_name(f->who), "ipc:///run/");
	} else if (f->cut == CUT_ENGINE) {
		name_wire(f, prefix, sizeof prefix);
		net_cut(&r, stage_name(f->who), prefix);
	} else if (f->conn) {
		net_lose(f->conn, f->loses);
	} else {
		net_cut(&r, NULL, f->steps & 1 ? "ipc:///run/" : "");
	}
}

static void stall(const struct fault *f)
{
	struct rng r = { f->steps };

	if (f->cut == CUT_LINK)
		net_stall(&r, stage_name(f->who), "ipc:///run/", f->len);
	else if (f->conn)
		net_hold(f->conn, f->to_dialler, f->len);
	else
		net_stall(&r, NULL, "", f->len);
}

/* Of what the engine has not swapped in. */
static void rot(uint32_t engine)
{
	char path[32];
	struct node *dir, *n = NULL;

	snprintf(path, sizeof path, "/store/%u/staging", engine);
	dir = disk_find(disk_root(), path, true);
	if (!dir || dir->in.n == 0)
		return;
	dir = dir->in.v[0].node;
	for (size_t i = 0; i < dir->in.n; i++)
		if (fnmatch("*.safetensors", dir->in.v[i].name, 0) == 0)
			n = dir->in.v[i].node;
	if (n && n->size)
		n->data[n->size - 1] ^= 1;
}

/* By hand, as somebody does who finds its directory. */
static void rise(const struct fault *f)
{
	if (f->push > 0)
		story_start_beside(&world.push[f->push - 1],
				   (enum stage_id)f->who);
}

static void kill_stages(const struct push *p)
{
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++)
		if (p->stage[id])
			proc_kill(p->stage[id], SIGKILL);
}

void world_befall(void *arg_)
{
	struct fault *f = arg_;
	struct push *p = &world.push[f->push];
	struct rng r = { f->steps };

	if (p->over)
		return;
	f->befell = true;
	sim_tell("fault %zu: %s %u", (size_t)(f - world.fault),
		 fault_names[f->kind], f->who);
	switch (f->kind) {
	case FAULT_CUT:
		cut(f);
		break;
	case FAULT_STALL:
		stall(f);
		break;
	case FAULT_FLOW:
		net_flow();
		break;
	case FAULT_RISE:
		rise(f);
		break;
	case FAULT_ECHO:
		for (uint64_t i = 0; i < 1 + f->steps % 8; i++)
			net_echo(&r);
		break;
	case FAULT_FULL:
		sim.disk_full_until = sim.now + f->len;
		break;
	case FAULT_SERVER:
		server_restart(f->who);
		break;
	case FAULT_ROT:
		rot(f->who);
		break;
	case FAULT_BUSY:
		server_busy(f->who, f->len);
		break;
	case FAULT_POWER:
		power_cut();
		sim_at(sim.now, after_power_cut, NULL);
		break;
	case FAULT_PUSH:
		sim_tell("push %s is killed", p->run);
		if (f->loses)
			kill_stages(p);
		story_end_push(p);
		break;
	case FAULT_LIE:
		world.lies = f->who + 1;
		world.lies_early = f->steps & 1;
		break;
	default:
		befall_stage(f, p);
		break;
	}
}

/* ---- when ---- */

#define SOON_NS (20 * SIM_MS) /* after a machine has entered a state */

static const struct fsm_table
	*const machines[] = {
		&admit_table,  &transfer_table,	   &commit_table,
		&homing_table, &engine_slot_table, &engine_gate_table,
		&commit_table, /* what most rows depend on */
	};

/* Has the moment of fault i come? */
static bool is_its(uint32_t i, const struct fsm_table *machine, uint8_t state)
{
	const struct fault *f = &world.fault[i];

	if (f->machine != machine || f->state != state || f->met ||
	    f->push != world.now || (f->again && !sim.p->again) ||
	    !(world.only >> i & 1))
		return false;
	if (f->repeats && i + 1 < world.nfaults && world.fault[i + 1].befell)
		return false;
	return !f->then || world.fault[i - 1].befell;
}

/* One of an engine's machines is one of each engine. */
static bool is_engines(const struct fault *f)
{
	bool is_own = f->machine == &engine_slot_table ||
		      f->machine == &engine_gate_table;

	return !is_own || !f->own || sim.p == world.engine[f->engine];
}

void world_entered(const struct fsm_table *machine, uint8_t state)
{
	for (uint32_t i = 0; i < world.nfaults; i++) {
		struct fault *f = &world.fault[i];

		if (!is_its(i, machine, state) || !is_engines(f))
			continue;
		f->met = true;
		f->pid = sim.p->pid;
		if (f->now)
			world_befall(f);
		else
			sim_at(sim.now + f->when, world_befall, f);
	}
}

/* From or to its engine, or no engine's.  (`other` may be said of what is cut
 * then.) */
static bool is_on(const struct fault *f, const struct conn *c)
{
	bool other = f->other && f->cut != CUT_ENGINE;
	int engine = net_engine(c);

	return engine < 0 ||
	       (uint32_t)engine == (f->engine + other) % world.engines;
}

void world_sent(struct conn *c, bool to_dialler, uint8_t type)
{
	for (uint32_t i = 0; i < world.nfaults; i++) {
		struct fault *f = &world.fault[i];

		if (!is_its(i, &world_frames, type) || !is_on(f, c))
			continue;
		f->met = !f->repeats;
		f->pid = sim.p->pid;
		f->conn = c;
		f->to_dialler = to_dialler;
		sim_at(sim.now + f->when, world_befall, f);
	}
}

static int64_t soon(struct rng *r)
{
	return (int64_t)rng_below(r, rng_one_in(r, 2) ? SIM_MS : SOON_NS);
}

/* Will a machine of that push ever be there? */
static bool is_possible(const struct fault *f)
{
	enum push_kind kind = world.push[f->push].kind;

	if (f->machine == &admit_table)
		return f->state != ADM_HOLD &&
		       (f->state != ADM_HASH || kind == PUSH_AGAIN);
	if (f->machine != &commit_table)
		return true;
	switch (f->state) {
	case CS_HOLD:
	case CS_RELOAD:
		return world.in_place;
	case CS_HASH:
		return kind == PUSH_AGAIN;
	case CS_SEEK:
		return kind == PUSH_JOIN || kind == PUSH_BACK;
	default:
		return true;
	}
}

static void choose_state(struct rng *r, struct fault *f)
{
	do
		f->state = (uint8_t)rng_below(r, f->machine->nstates);
	while (!is_possible(f));
}

static void choose_moment(struct rng *r, struct fault *f)
{
	if (rng_one_in(r, 3)) {
		f->when = (int64_t)rng_below(r, BEFALLS_MS * SIM_MS);
		return;
	}
	f->machine = machines[rng_below(r, COUNT(machines))];
	choose_state(r, f);
	f->when = soon(r);
}

static int64_t length(struct rng *r)
{
	/* Mostly shorter than all time-outs, at times longer than most. */
	return rng_one_in(r, 3) ? (int64_t)rng_below(r, 30 * SIM_S)
				: (int64_t)rng_below(r, 2 * SIM_S);
}

void world_make_fault(struct rng *r, struct fault *f)
{
	f->kind = (enum fault_kind)rng_below(r, FAULT_NDRAWN);
	/* Half of all: the plain deaths that weir is about. */
	if (rng_one_in(r, 2))
		f->kind = (enum fault_kind)rng_below(r, 2);
	f->push = (uint32_t)rng_below(r, world.pushes - 1);
	choose_moment(r, f);
	f->steps = rng_below(r, rng_one_in(r, 2) ? 60 : 400);
	f->len = length(r);
	f->at_move = rng_one_in(r, 4);
	f->who = (uint32_t)(STAGE_PLAN + rng_below(r, STAGE_N - STAGE_PLAN));
	f->own = world_is_of_engine(f->kind);
	if (f->own)
		f->engine = f->who = (uint32_t)rng_below(r, world.engines);
	else if (f->kind == FAULT_DISK && rng_one_in(r, 2))
		f->who = STAGE_N + (uint32_t)rng_below(r, world.engines);
}

/* What comes to a stage while it does again what was done before. */
void world_make_couple(struct rng *r, struct fault first[2])
{
	static const struct {
		enum stage_id stage;
		const struct fsm_table *machine;
	} of[] = {
		{ STAGE_COMMIT, &commit_table },
		{ STAGE_COMMIT, &commit_table },
		{ STAGE_TRANSFER, &transfer_table },
		{ STAGE_ADMIT, &admit_table },
	};
	size_t which = rng_below(r, COUNT(of));
	const struct fsm_table *m = of[which].machine;

	world_make_fault(r, &first[0]);
	world_make_fault(r, &first[1]);
	first[0].kind = FAULT_KILL_STAGE;
	first[0].who = of[which].stage;
	first[0].steps = rng_below(r, 20);
	first[1].push = first[0].push;
	first[1].again = true;
	for (int i = 0; i < 2; i++) {
		first[i].machine = m;
		choose_state(r, &first[i]);
		first[i].when = soon(r);
	}
}

/* One digest of an ack or a receipt is another; commit and transfer find out,
 * or they do not. */
struct slice world_lie(const struct proc *p, struct slice frame, int *how)
{
	static struct msg_arena arena;
	static struct buf out;
	struct proc *running = sim.p;
	struct msg m;

	if (!world.lies || p != world.engine[world.lies - 1])
		return frame;
	sim.p = NULL;
	if (msg_unpack(&m, &arena, frame) >= 0 &&
	    (m.type == M_receipt || (m.type == M_ack && world.lies_early))) {
		if (m.type == M_ack)
			m.ack.digest.b[0] ^= 1;
		else
			m.receipt.received.b[3] ^= 1;
		buf_clear(&out);
		if (msg_pack(&out, &m) == 0) {
			frame = buf_slice(&out);
			*how = FRAME_LIE;
			world.lies = 0;
			sim_tell("%s lies: %s", p->name, msg_name(m.type));
		}
	}
	sim.p = running;
	return frame;
}
