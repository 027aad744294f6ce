/* A fleet, its pushes and what befalls them.  See world.h. */
#include "world.h"

#include "watch.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 40
#define RESTART_MS 400	  /* an engine's service manager, at most */
#define PUSH_END_MS 10000 /* as pipes/push.c */
#define TICK_MS 100
#define SETTLE_MS 500  /* between pushes */
#define BEFALLS_MS 400 /* when faults begin, at most, mostly */

struct world world;

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

static void plan_args(struct args *a, const struct push *p)
{
	arg(a, "--source=/src/%u", p->index);
	for (uint32_t i = 0; i < world.engines; i++)
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

static void commit_args(struct args *a)
{
	arg(a, "--registry=/reg");
	arg(a, "--engine-timeout=%lldms", (long long)world.engine_ms);
	arg(a, "--load-timeout=%lldms", (long long)world.load_ms);
	arg(a, "--run-timeout=%lldms", (long long)world.run_ms);
	arg(a, "--wait=60s");
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
		commit_args(a);
	arg(a, "--stage-timeout=%lldms", (long long)world.stage_ms);
	if (with_run)
		arg(a, "--run=/run/%s", p->run);
}

/* ---- engines ---- */

static void start_engine(void *arg_);

static void engine_ended(struct proc *p, void *arg_)
{
	uint32_t i = p->where;

	(void)arg_;
	world.engine[i] = NULL;
	if (!world.done)
		sim_at(sim.now + SIM_MS * (int64_t)(1 + rng_below(&sim.rng,
								  RESTART_MS)),
		       start_engine, (void *)(uintptr_t)i);
}

static void sinks(struct file *f[3])
{
	for (int i = 0; i < 3; i++)
		f[i] = file_new(F_SINK);
}

static void start_engine(void *arg_)
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
	arg(&a, "--copy-threads=1");
	arg(&a, "--keep=%u", 1 + (i & 1));
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

static void next_push(void *arg_);

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
	       next_push, NULL);
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
	give_death_pipe(p, id, proc);
	p->stage[id] = proc;
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
		break;
	case SUP_TERMINATE:
		signal_all(p, SIGTERM);
		p->stop_by = sim.now + PUSH_END_MS * SIM_MS +
			     (world.engine_ms + 2 * world.stage_ms) * SIM_MS;
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

static void start_push(struct push *p)
{
	struct file *in = NULL, *end[2];
	char path[32];

	p->began = sim.now;
	p->live = true;
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

/* ---- the source ---- */

static uint64_t put_header(char *out, const char *json)
{
	uint64_t n = strlen(json);

	while (n % 8)
		n++;
	memcpy(out, &n, 8);
	memset(out + 8, ' ', n);
	memcpy(out + 8, json, strlen(json));
	return 8 + n;
}

/* One shard of 2 to 6 tensors: every push has other bytes in them. */
static void put_shard(const char *path, uint32_t shard, uint32_t tensors,
		      struct rng *r)
{
	char json[1024], out[4096];
	size_t at = 0, start = 0, data;

	at += (size_t)snprintf(json, sizeof json, "{");
	for (uint32_t i = 0; i < tensors; i++) {
		size_t n = 8 * (1 + (shard + 3 * i) % 5);

		at += (size_t)snprintf(json + at, sizeof json - at,
				       "%s\"s%u.t%u\":{\"dtype\":\"U8\","
				       "\"shape\":[%zu],"
				       "\"data_offsets\":[%zu,%zu]}",
				       i ? "," : "", shard, i, n, start,
				       start + n);
		start += n;
	}
	snprintf(json + at, sizeof json - at, "}");
	data = put_header(out, json);
	for (size_t i = 0; i < start; i++)
		out[data + i] = (char)rng_next(r);
	disk_put(path, out, data + start);
}

static void put_index(uint32_t push, uint32_t shards, uint32_t tensors)
{
	char json[2048], path[64];
	int n = snprintf(json, sizeof json, "{\"weight_map\":{");

	for (uint32_t i = 0; i < shards * tensors; i++)
		n += snprintf(json + n, sizeof json - (size_t)n,
			      "%s\"s%u.t%u\":\"m%u.safetensors\"", i ? "," : "",
			      i / tensors, i % tensors, i / tensors);
	n += snprintf(json + n, sizeof json - (size_t)n, "}}");
	snprintf(path, sizeof path, "/src/%u/model.safetensors.index.json",
		 push);
	disk_put(path, json, (size_t)n);
}

static void make_source(uint32_t push, uint32_t shards, uint32_t tensors,
			struct rng *r)
{
	char path[64];
	static const char config[] = "{\"model_type\":\"sim\"}\n";

	snprintf(path, sizeof path, "/src/%u", push);
	disk_mkdirs(path);
	for (uint32_t i = 0; i < shards; i++) {
		snprintf(path, sizeof path, "/src/%u/m%u.safetensors", push, i);
		put_shard(path, i, tensors, r);
	}
	if (shards > 1)
		put_index(push, shards, tensors);
	snprintf(path, sizeof path, "/src/%u/config.json", push);
	disk_put(path, config, sizeof config - 1);
}

struct node *world_source(uint32_t push)
{
	char path[32];

	snprintf(path, sizeof path, "/src/%u", push);
	return disk_find(disk_root(), path, true);
}

const struct push *world_push(struct slice run)
{
	for (uint32_t i = 0; i < world.pushes; i++)
		if (slice_eq(run, slice_of(world.push[i].run)))
			return &world.push[i];
	return NULL;
}

/* ---- what befalls it ---- */

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
};
static_assert(COUNT(fault_names) == FAULT_NKINDS, "name every fault");

const char *world_fault_name(enum fault_kind k)
{
	return fault_names[k];
}

static bool is_engine_fault(enum fault_kind k)
{
	return k == FAULT_KILL_ENGINE || k == FAULT_STOP_ENGINE ||
	       k == FAULT_LIE;
}

static struct proc *target(const struct fault *f)
{
	struct push *p = &world.push[f->push];

	if (is_engine_fault(f->kind))
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

static void write_boot_id(void)
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
			p->killed = true;
			p->code = -1;
			push_over(p);
		}
	}
	for (struct proc *p = sim.procs; p; p = p->next)
		proc_kill(p, SIGKILL);
}

static void after_power_cut(void *arg_)
{
	(void)arg_;
	disk_power_cut();
	watch_power_cut();
	write_boot_id();
}

static void kill_push(struct push *p)
{
	sim_tell("push %s is killed", p->run);
	p->killed = true;
	p->code = -1;
	push_over(p);
}

/* By hand, beside one that may be stopped for a while. */
static void start_twice(struct push *p, enum stage_id id, int64_t ns)
{
	struct proc *first = p->stage[id];
	struct file *death = p->death[id];

	if (first && ns)
		stop_for(first, ns);
	p->death[id] = NULL;
	start_stage(p, id, NULL, NULL, true);
	hang_up(p, id);
	p->stage[id]->supervisor_fd = -1;
	p->stage[id] = first;
	p->death[id] = death;
}

static void befall_stage(const struct fault *f, struct push *p)
{
	struct proc *at = target(f);

	switch (f->kind) {
	case FAULT_KILL_STAGE:
	case FAULT_KILL_ENGINE:
		if (at)
			at->kill_at = at->steps + 1 + f->steps;
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
	case FAULT_TWICE:
		start_twice(p, (enum stage_id)f->who,
			    f->steps & 1 ? f->len : 0);
		break;
	default:
		break;
	}
}

static void befall(void *arg_)
{
	const struct fault *f = arg_;
	struct push *p = &world.push[f->push];
	struct rng r = { f->steps };

	if (p->over)
		return;
	sim_tell("fault %zu: %s %u", (size_t)(f - world.fault),
		 fault_names[f->kind], f->who);
	switch (f->kind) {
	case FAULT_CUT:
		net_cut(&r);
		break;
	case FAULT_STALL:
		net_stall(&r, f->len);
		break;
	case FAULT_ECHO:
		for (uint64_t i = 0; i < 1 + f->steps % 8; i++)
			net_echo(&r);
		break;
	case FAULT_POWER:
		power_cut();
		sim_at(sim.now, after_power_cut, NULL);
		break;
	case FAULT_PUSH:
		kill_push(p);
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

static int64_t length(struct rng *r)
{
	/* Mostly shorter than all time-outs, at times longer than most. */
	return rng_one_in(r, 3) ? (int64_t)rng_below(r, 30 * SIM_S)
				: (int64_t)rng_below(r, 2 * SIM_S);
}

static void make_fault(struct rng *r, struct fault *f)
{
	f->kind = (enum fault_kind)rng_below(r, FAULT_NKINDS);
	/* Half of all: the plain deaths that weir is about. */
	if (rng_one_in(r, 2))
		f->kind = (enum fault_kind)rng_below(r, 2);
	f->push = (uint32_t)rng_below(r, world.pushes - 1);
	f->when = (int64_t)rng_below(r, BEFALLS_MS * SIM_MS);
	f->steps = rng_below(r, rng_one_in(r, 2) ? 60 : 400);
	f->len = length(r);
	f->who = (uint32_t)(STAGE_PLAN + rng_below(r, STAGE_N - STAGE_PLAN));
	if (is_engine_fault(f->kind))
		f->who = (uint32_t)rng_below(r, world.engines);
	else if (f->kind == FAULT_DISK && rng_one_in(r, 2))
		f->who = STAGE_N + (uint32_t)rng_below(r, world.engines);
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

/* ---- one seed ---- */

/* The last push shall meet nothing but what the others have left. */
static void be_kind(void)
{
	sim.disk_slow_ns = 0;
	for (struct proc *p = sim.procs; p; p = p->next) {
		p->kill_at = p->fail_at = 0;
		if (p->stopped && strncmp(p->name, "engine-", 7) == 0)
			proc_continue(p);
	}
}

/* Up for as long as a start takes. */
static bool all_engines_up(void)
{
	for (uint32_t i = 0; i < world.engines; i++) {
		const struct proc *p = world.engine[i];

		if (!p || p->stopped || sim.now - p->began < SETTLE_MS * SIM_MS)
			return false;
	}
	return true;
}

static void next_push(void *arg_)
{
	struct push *p;

	(void)arg_;
	if (world.now + 1 >= world.pushes) {
		world.done = true;
		return;
	}
	if (world.now + 2 == world.pushes && !all_engines_up()) {
		sim_at(sim.now + SETTLE_MS * SIM_MS, next_push, NULL);
		return;
	}
	p = &world.push[++world.now];
	world.lies = 0;
	if (p->index + 1 == world.pushes)
		be_kind();
	start_push(p);
	for (uint32_t i = 0; i < world.nfaults; i++) {
		struct fault *f = &world.fault[i];

		if (f->push == p->index && (world.only >> i & 1))
			sim_at(sim.now + f->when, befall, f);
	}
}

static uint64_t pick(struct rng *r, const uint64_t *v, size_t n)
{
	return v[rng_below(r, n)];
}

#define PICK(r, ...)                               \
	pick(r, (const uint64_t[]){ __VA_ARGS__ }, \
	     COUNT(((const uint64_t[]){ __VA_ARGS__ })))

static void choose_world(struct rng *r)
{
	world.engines = (uint32_t)PICK(r, 1, 2, 2, 3, 3, 4);
	world.pushes = rng_one_in(r, 4) ? 3 : 2;
	world.groups = rng_below(r, world.engines + 1);
	world.buckets = PICK(r, 0, 1, 2, 3);
	world.bytes = PICK(r, 0, 0, 200, 1000);
	world.bucket_size = PICK(r, 16, 40, 80, 4096);
	world.stage_ms = (int64_t)PICK(r, 2000, 5000, 10000);
	world.engine_ms = (int64_t)PICK(r, 2000, 5000, 10000);
	world.load_ms = 30000;
	world.run_ms = 300000;
	world.by_window = rng_one_in(r, 4);
	world.min_engines = rng_one_in(r, 4)
				    ? 1 + (uint32_t)rng_below(r, world.engines)
				    : 0;
	if (rng_one_in(r, 4))
		sim.disk_slow_ns = (uint64_t)PICK(r, 5, 100, 1500) * SIM_MS;
	world.nfaults = (uint32_t)rng_below(r, 5);
	for (uint32_t i = 0; i < world.nfaults; i++)
		make_fault(r, &world.fault[i]);
}

static void build(struct rng *r)
{
	uint32_t shards = 1 + (uint32_t)rng_below(r, 2);
	uint32_t tensors = 2 + (uint32_t)rng_below(r, 3);

	write_boot_id();
	disk_mkdirs("/sock");
	disk_mkdirs("/run");
	disk_mkdirs("/reg")->mode = 0700;
	for (uint32_t i = 0; i < world.pushes; i++) {
		struct push *p = &world.push[i];

		p->index = i;
		p->code = -1;
		snprintf(p->run, sizeof p->run, "r%u", i);
		make_source(i, shards, tensors, r);
	}
	for (uint32_t i = 0; i < world.engines; i++) {
		char path[32];

		snprintf(path, sizeof path, "/store/%u", i);
		disk_mkdirs(path);
		start_engine((void *)(uintptr_t)i);
	}
}

static bool is_done(void)
{
	return world.done;
}

bool world_run(uint64_t seed, uint64_t only)
{
	struct rng r = { seed ^ 0x5eed5eed5eed5eedu };

	kern_begin(seed);
	disk_begin();
	net_begin();
	world = (struct world){ .only = only, .now = (uint32_t)-1 };
	choose_world(&r);
	build(&r);
	watch_begin();
	sim_at(sim.now + 200 * SIM_MS, next_push, NULL);
	sim_run(is_done);
	if (!sim.broken && !world.done)
		sim_break("I9", "nothing moves, and push %u is not over",
			  world.now);
	watch_end_of_world();
	watch_end();
	net_end();
	disk_end();
	kern_end();
	return !sim.broken;
}
