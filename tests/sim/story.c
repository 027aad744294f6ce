/* Engines and stages of the world, started as by services and `weir push`. */
#include "story.h"

#include "watch.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>

#define ARGS_MAX 40
#define PUSH_END_MS 10000 /* as pipes/push.c */
#define TICK_MS 100
#define HOOK_MS 2000
#define EARLY 100   /* calls of a stage that dies at each start */
#define ECHO_MS 300 /* after a stage is started again, at most */

static prog_main *const programs[STAGE_N] = {
	[STAGE_PLAN] = plan_main,
	[STAGE_ADMIT] = admit_main,
	[STAGE_TRANSFER] = transfer_main,
	[STAGE_COMMIT] = commit_main,
};

/* ---- command lines ---- */

struct args {
	char *v[ARGS_MAX + 1];
	int n;
};

static void arg(struct args *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void arg(struct args *a, const char *fmt, ...)
{
	char text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	a->v[a->n] = sim_alloc(strlen(text) + 1);
	strcpy(a->v[a->n++], text);
}

static void args_release(struct args *a)
{
	while (a->n > 0)
		sim_free(a->v[--a->n]);
}

const char *world_registry(const struct push *p)
{
	return p->kind == PUSH_FOREIGN ? "/reg2" : "/reg";
}

/* Planned from what the registry knows. */
static void again_args(struct args *a, const struct push *p)
{
	arg(a, "--registry=%s", world_registry(p));
	if (p->kind == PUSH_BACK) {
		arg(a, "--to=%llu", (unsigned long long)p->number);
		return;
	}
	for (uint32_t i = 0; i < p->nfleet; i++)
		arg(a, "--only=engine-%u", p->fleet[i]);
}

static void plan_args(struct args *a, const struct push *p)
{
	if (p->kind == PUSH_BACK || p->kind == PUSH_JOIN) {
		again_args(a, p);
		return;
	}
	arg(a, "--source=/src/%u", p->source);
	if (world.in_place)
		arg(a, "--fleet=/fleet.yaml");
	for (uint32_t i = 0; i < world.engines && !world.in_place; i++)
		arg(a, "--engine=ipc:///sock/e%u", i);
	arg(a, "--bucket-size=%llu", (unsigned long long)world.bucket_size);
}

static void admit_args(struct args *a)
{
	arg(a, "--max-inflight-engine-groups=%llu",
	    (unsigned long long)world.groups);
	arg(a, "--max-inflight-buckets=%llu",
	    (unsigned long long)world.buckets);
	arg(a, "--max-inflight-bytes=%llu", (unsigned long long)world.bytes);
	if (world.by_window)
		arg(a, "--order=window");
}

static void commit_args(struct args *a, const struct push *p)
{
	arg(a, "--registry=%s", world_registry(p));
	if (p->number && p->kind != PUSH_BACK)
		arg(a, "--weight-version=%llu", (unsigned long long)p->number);
	arg(a, "--engine-timeout=%lldms", (long long)world.engine_ms);
	arg(a, "--load-timeout=%lldms", (long long)world.load_ms);
	arg(a, "--run-timeout=%lldms", (long long)world.run_ms);
	arg(a, "--wait=60s");
	if (world.in_place && world.rolls_back)
		arg(a, "--on-failure=rollback");
	if (world.min_engines)
		arg(a, "--min-engines=%u", world.min_engines);
}

static void stage_args(struct args *a, const struct push *p, enum stage_id id,
		       bool with_run)
{
	arg(a, "weir-%s", stage_name(id));
	if (id == STAGE_PLAN)
		plan_args(a, p);
	else if (id == STAGE_ADMIT)
		admit_args(a);
	else if (id == STAGE_COMMIT)
		commit_args(a, p);
	arg(a, "--stage-timeout=%lldms", (long long)world.stage_ms);
	if (with_run)
		arg(a, "--run=/run/%s", p->run);
}

/* ---- engines ---- */

void story_make_fleet(void)
{
	char text[1024];
	int n = snprintf(text, sizeof text, "engines:\n");

	for (uint32_t i = 0; i < world.engines; i++) {
		n += snprintf(text + n, sizeof text - (size_t)n,
			      "  - name: engine-%u\n"
			      "    workers: [{endpoint: "
			      "\"ipc:///sock/e%u\"}]\n",
			      i, i);
		if (i < world.engines - world.in_place)
			continue;
		n += snprintf(text + n, sizeof text - (size_t)n,
			      "    kind: sglang\n"
			      "    url: http://sim/%u\n",
			      i);
	}
	disk_put("/fleet.yaml", text, (size_t)n);
}

static void engine_ended(struct proc *p, void *arg_)
{
	uint32_t i = p->where;

	(void)arg_;
	world.engine[i] = NULL;
	if (!world.done)
		sim_at(sim.now +
			       SIM_MS * (int64_t)(1 +
						  rng_below(&sim.rng,
							    world.restart_ms)),
		       story_start_engine, (void *)(uintptr_t)i);
}

static void sinks(struct file *f[3])
{
	for (int i = 0; i < 3; i++)
		f[i] = file_new(F_SINK);
}

void story_start_engine(void *arg_)
{
	uint32_t i = (uint32_t)(uintptr_t)arg_;
	struct args a = { .n = 0 };
	struct file *f[3];
	char name[16];

	if (world.engine[i])
		return;
	snprintf(name, sizeof name, "engine-%u", i);
	arg(&a, "weir-engine");
	arg(&a, "--name=engine-%u", i);
	arg(&a, "--store=/store/%u", i);
	arg(&a, "--listen=ipc:///sock/e%u", i);
	/* Of two threads the second bucket may be held first. */
	arg(&a, "--copy-threads=%u", world.buckets > 1 ? 2 : 1);
	arg(&a, "--keep=%u", 1 + (i & 1));
	if (world.hooks) {
		arg(&a, "--on-pause=pause");
		arg(&a, "--on-swap=swap");
		arg(&a, "--on-resume=resume");
		arg(&a, "--hook-timeout=%lldms", (long long)HOOK_MS);
	}
	if (world.post_load)
		arg(&a, "--post-load=post-load");
	sinks(f);
	world.engine[i] = proc_start(name, engine_main, a.v, f);
	world.engine[i]->where = i;
	world.engine[i]->ended = engine_ended;
	args_release(&a);
}

/* ---- stages, as `weir push` starts them ---- */

static void push_act(struct push *p, enum stage_id id, enum sup_action a);

static bool has_verdict(const struct push *p)
{
	char path[64];

	snprintf(path, sizeof path, "/run/%s/verdict", p->run);
	return disk_find(disk_root(), path, false) != NULL;
}

static void hang_up(struct push *p, unsigned id)
{
	if (p->death[id])
		file_drop(p->death[id]);
	p->death[id] = NULL;
}

static void push_over(struct push *p)
{
	if (p->over)
		return;
	p->over = true;
	p->ended = sim.now;
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++)
		hang_up(p, id);
	sim_tell("push %s is over: %d", p->run, p->code);
	sim_at(sim.now + (int64_t)rng_below(&sim.rng, SETTLE_MS * SIM_MS),
	       world_next_push, NULL);
}

static void push_ending(struct push *p)
{
	if (p->sup.ending || !has_verdict(p))
		return;
	supervisor_ending(&p->sup);
	p->stop_by = sim.now + PUSH_END_MS * SIM_MS;
}

static void stage_ended(struct proc *proc, void *arg_)
{
	struct push *p = arg_;
	bool signalled = proc->code == 128 + SIGKILL;

	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (p->stage[id] != proc)
			continue;
		p->stage[id] = NULL;
		if (p->killed || p->over)
			continue;
		push_ending(p);
		push_act(p, id,
			 supervisor_exit(&p->sup, id, proc->code, signalled));
	}
}

static void give_death_pipe(struct push *p, unsigned id, struct proc *proc)
{
	struct file *end[2];

	hang_up(p, id);
	file_pipe(end);
	end[0]->owner = proc;
	p->death[id] = end[1];
	proc->fd[3] = end[0];
	proc->supervisor_fd = 3;
}

static void start_stage(struct push *p, enum stage_id id, struct file *in,
			struct file *out, bool with_run)
{
	struct args a = { .n = 0 };
	struct file *f[3];
	struct proc *proc;

	stage_args(&a, p, id, with_run);
	sinks(f);
	if (in) {
		file_drop(f[0]);
		f[0] = in;
	}
	if (out) {
		file_drop(f[1]);
		f[1] = out;
	}
	proc = proc_start(stage_name(id), programs[id], a.v, f);
	proc->ended = stage_ended;
	proc->arg = p;
	proc->where = p->index;
	proc->again = p->started[id];
	p->started[id] = true;
	give_death_pipe(p, id, proc);
	p->stage[id] = proc;
	if (p->doomed == id)
		proc->kill_at = 1 + rng_below(&sim.rng, EARLY);
	args_release(&a);
}

/* A stage's turn to start again has come. */
struct due {
	struct push *push;
	enum stage_id id;
};

static void due(void *arg_)
{
	struct due *d = arg_;

	if (!d->push->killed && !d->push->over)
		push_act(d->push, d->id, supervisor_due(&d->push->sup, d->id));
	sim_free(d);
}

static void signal_all(struct push *p, int signo)
{
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (!p->stage[id])
			continue;
		if (signo == SIGKILL)
			proc_kill(p->stage[id], signo);
		else
			proc_signal(p->stage[id], signo);
	}
}

/* The verdict's code, or what supervise.c makes of the ends. */
static int code_of(const struct push *p)
{
	char path[64];
	struct msg m;

	snprintf(path, sizeof path, "/run/%s/verdict", p->run);
	if (seen_record(path, false, M_verdict, &m))
		return m.verdict.exit;
	return supervisor_code(&p->sup);
}

static void echo(void *unused)
{
	(void)unused;
	net_echo_of_dead(&sim.rng);
}

/* What who died had sent may still be on its way. */
static void hear_again(void)
{
	for (int i = 0; i < 3; i++)
		sim_at(sim.now + (int64_t)rng_below(&sim.rng, ECHO_MS * SIM_MS),
		       echo, NULL);
}

static void push_act(struct push *p, enum stage_id id, enum sup_action a)
{
	struct due *d;

	switch (a) {
	case SUP_NOTHING:
		break;
	case SUP_WAIT:
		d = sim_alloc(sizeof *d);
		*d = (struct due){ p, id };
		sim_at(sim.now + p->sup.stage[id].pause_ms * SIM_MS, due, d);
		break;
	case SUP_START:
		start_stage(p, id, NULL, NULL, true);
		if (world.echoes)
			hear_again();
		break;
	case SUP_TERMINATE:
		signal_all(p, SIGTERM);
		p->stop_by = sim.now + (PUSH_END_MS + world.load_ms +
					world.engine_ms + 2 * world.stage_ms) *
					       SIM_MS;
		break;
	}
	if (!supervisor_is_done(&p->sup) || p->over)
		return;
	p->code = code_of(p);
	push_over(p);
}

/* Every TICK_MS, as push: a verdict, and what does not end by itself. */
static void tick(void *arg_)
{
	struct push *p = arg_;

	if (p->killed || p->over)
		return;
	push_ending(p);
	if (p->stop_by && sim.now >= p->stop_by) {
		supervisor_ending(&p->sup);
		signal_all(p, SIGKILL);
		push_over(p);
		return;
	}
	sim_at(sim.now + TICK_MS * SIM_MS, tick, p);
}

/* ---- what it is about ---- */

static const char *const kind_names[] = {
	[PUSH_ALL] = "all",	    [PUSH_JOIN] = "join",
	[PUSH_BACK] = "back",	    [PUSH_AGAIN] = "again",
	[PUSH_FOREIGN] = "foreign",
};
static_assert(COUNT(kind_names) == PUSH_NKINDS, "name every kind");

/* Every engine belongs to the first registry. */
static bool all_are_owned(void)
{
	char path[48];
	struct msg m;

	for (uint32_t i = 0; i < world.engines; i++) {
		snprintf(path, sizeof path, "/store/%u/fence", i);
		if (!seen_record(path, true, M_fence_file, &m))
			return false;
	}
	return true;
}

static uint64_t any_decided(void)
{
	uint64_t found = 0, n = 0;

	for (uint64_t v = 1; v < VERSIONS_MAX; v++)
		if (watch.decided[v].is && rng_one_in(&sim.rng, ++n))
			found = v;
	return found;
}

static void choose_fleet(struct push *p)
{
	p->nfleet = 0;
	for (uint32_t i = 0; i < world.engines; i++)
		if (p->kind != PUSH_JOIN || rng_one_in(&sim.rng, 2))
			p->fleet[p->nfleet++] = i;
	if (p->nfleet == 0)
		p->fleet[p->nfleet++] = 0;
}

/* Of what was published before; if nothing was, a plain one. */
static void choose_subject(struct push *p)
{
	uint64_t number = any_decided();

	if (p->kind == PUSH_FOREIGN ? !all_are_owned() : !number)
		p->kind = PUSH_ALL;
	p->source = p->index;
	if (p->kind == PUSH_BACK || p->kind == PUSH_AGAIN)
		p->number = number;
	else if (p->kind == PUSH_ALL && p->index + 1 < world.pushes &&
		 !world.plain && rng_one_in(&sim.rng, 4))
		p->number = watch.top + rng_below(&sim.rng, 4);
	if (p->kind == PUSH_AGAIN && !rng_one_in(&sim.rng, 4))
		p->source = watch.decided[number].source;
	choose_fleet(p);
}

void story_start_push(struct push *p)
{
	struct file *in = NULL, *end[2];
	char path[32];

	p->began = sim.now;
	p->live = true;
	choose_subject(p);
	sim_tell("push %s: %s %llu", p->run, kind_names[p->kind],
		 (unsigned long long)p->number);
	snprintf(path, sizeof path, "/run/%s", p->run);
	disk_mkdirs(path);
	supervisor_init(&p->sup);
	for (unsigned id = STAGE_PLAN; id < STAGE_N; id++) {
		if (id == STAGE_COMMIT) {
			start_stage(p, id, in, NULL, false);
			break;
		}
		file_pipe(end);
		start_stage(p, id, in, end[1], id == STAGE_PLAN);
		in = end[0];
	}
	sim_at(sim.now + TICK_MS * SIM_MS, tick, p);
}

void story_end_push(struct push *p)
{
	p->killed = true;
	p->code = -1;
	push_over(p);
}

void story_start_beside(struct push *p, enum stage_id id)
{
	struct proc *first = p->stage[id];
	struct file *death = p->death[id];

	p->death[id] = NULL;
	start_stage(p, id, NULL, NULL, true);
	hang_up(p, id);
	p->stage[id]->supervisor_fd = -1;
	p->stage[id] = first;
	p->death[id] = death;
}
