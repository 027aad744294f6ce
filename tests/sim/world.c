/* A fleet and its pushes: what is drawn from a seed.  See world.h. */
#include "story.h"

#include "server.h"
#include "watch.h"

#include <string.h>

#define SLOW_ONE_IN 50 /* of a pool's jobs, mostly */
#define AIMED_OF 7     /* seeds, all but one are aimed */
#define RESTART_MS 400 /* an engine's service manager takes, mostly */

struct world world;

const struct push *world_push(struct slice run)
{
	for (uint32_t i = 0; i < world.pushes; i++)
		if (slice_eq(run, slice_of(world.push[i].run)))
			return &world.push[i];
	return NULL;
}

bool world_is_kind(void)
{
	return world.now + 1 == world.pushes;
}

/* The last push shall meet nothing but what the others have left. */
static void be_kind(void)
{
	sim.disk_slow_ns = 0;
	sim.disk_full_until = 0;
	world.hook_fails_one_in = world.hook_long_one_in = 0;
	world.slow_one_in = SLOW_ONE_IN;
	world.http_fails_one_in = 0;
	world.restart_ms = RESTART_MS;
	net_flow();
	for (uint32_t i = 0; i < world.engines; i++)
		server_busy(i, 0);
	for (struct proc *p = sim.procs; p; p = p->next) {
		p->kill_at = p->kill_move = p->fail_at = 0;
		p->job_ns = 0;
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

void world_next_push(void *arg_)
{
	struct push *p;

	(void)arg_;
	if (world.now + 1 >= world.pushes) {
		world.done = true;
		return;
	}
	if (world.now + 2 == world.pushes && !all_engines_up()) {
		sim_at(sim.now + SETTLE_MS * SIM_MS, world_next_push, NULL);
		return;
	}
	p = &world.push[++world.now];
	world.lies = 0;
	if (world_is_kind())
		be_kind();
	story_start_push(p);
	for (uint32_t i = 0; i < world.nfaults; i++) {
		struct fault *f = &world.fault[i];

		if (f->push == p->index && !f->machine && (world.only >> i & 1))
			sim_at(sim.now + f->when, world_befall, f);
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
	world.pushes = (uint32_t)PICK(r, 2, 2, 3);
	world.groups = rng_below(r, world.engines + 1);
	world.buckets = PICK(r, 0, 1, 2, 3);
	world.bytes = PICK(r, 0, 0, 200, 1000);
	world.bucket_size = PICK(r, 16, 40, 80, 4096);
	world.stage_ms = (int64_t)PICK(r, 2000, 5000, 10000);
	world.engine_ms = (int64_t)PICK(r, 2000, 5000, 10000);
	world.load_ms = 30000;
	world.run_ms = 300000;
	world.by_window = rng_one_in(r, 4);
	world.min_engines = rng_one_in(r, 2)
				    ? 1 + (uint32_t)rng_below(r, world.engines)
				    : 0;
	if (rng_one_in(r, 4))
		sim.disk_slow_ns = (uint64_t)PICK(r, 5, 100, 1500) * SIM_MS;
	world.restart_ms = RESTART_MS;
	world.slow_one_in = (uint32_t)PICK(r, 4, SLOW_ONE_IN, SLOW_ONE_IN);
	world.hooks = rng_one_in(r, 3);
	world.post_load = rng_one_in(r, 5);
	world.hook_fails_one_in = (uint32_t)PICK(r, 0, 3, 8);
	world.hook_long_one_in = (uint32_t)PICK(r, 0, 2, 8);
	world.echoes = rng_one_in(r, 2);
	if (rng_one_in(r, 3))
		world.in_place = 1 + (uint32_t)rng_below(r, world.engines);
	world.http_fails_one_in = (uint32_t)PICK(r, 0, 15, 60);
	world.rolls_back = rng_one_in(r, 2);
	for (uint32_t i = 1; i + 1 < world.pushes; i++)
		world.push[i].kind = (enum push_kind)PICK(
			r, PUSH_ALL, PUSH_JOIN, PUSH_JOIN, PUSH_BACK, PUSH_BACK,
			PUSH_AGAIN, PUSH_AGAIN, PUSH_FOREIGN);
	world.nfaults = (uint32_t)rng_below(r, 6);
	for (uint32_t i = 0; i < world.nfaults; i++)
		world_make_fault(r, &world.fault[i]);
	if (world.nfaults >= 2 && rng_one_in(r, 2))
		world_make_couple(r, world.fault);
}

static void build(struct rng *r)
{
	uint32_t shards = 1 + (uint32_t)rng_below(r, 2);
	uint32_t tensors = 2 + (uint32_t)rng_below(r, 3);

	world_write_boot_id();
	disk_mkdirs("/sock");
	disk_mkdirs("/run");
	disk_mkdirs("/reg")->mode = 0700;
	disk_mkdirs("/reg2")->mode = 0700;
	for (uint32_t i = 0; i < world.pushes; i++) {
		struct push *p = &world.push[i];

		p->index = i;
		p->code = -1;
		snprintf(p->run, sizeof p->run, "r%u", i);
		story_make_source(i, shards, tensors, r);
	}
	if (world.in_place)
		story_make_fleet();
	for (uint32_t i = 0; i < world.engines; i++) {
		char path[32];

		snprintf(path, sizeof path, "/store/%u", i);
		disk_mkdirs(path);
		story_start_engine((void *)(uintptr_t)i);
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
	if (seed >= WORLD_CLOSE)
		world_aim_close(&r, seed - WORLD_CLOSE);
	else if (seed % AIMED_OF)
		world_aim(&r, seed - seed / AIMED_OF);
	build(&r);
	servers_begin();
	watch_begin();
	sim_at(sim.now + 200 * SIM_MS, world_next_push, NULL);
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
