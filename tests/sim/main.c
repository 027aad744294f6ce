/*
 * sim - runs seeds of the simulator.
 *
 *	sim [--seed N] [--seeds N] [--jobs N]	seeds N, N + 1, ...
 *	sim --seed N [--only I,J,...] [--trace]	one of them again
 *	sim --check				those that a check has time for
 *	sim --mutants [--seeds N]		how soon each one is found; with
 *						--check without the rarest
 *	sim --is-slow				0: yes, with sanitizers
 *	sim --coverage ...			what was crossed, and how often
 *
 * 0: no invariant was broken (with --mutants: each mutant broke one; with
 * --check --coverage: each row and each durable move was crossed as often as
 * rows.c says).
 */
#include "sim.h"

#include "common/fsm.h"
#include "count.h"
#include "mutant.h"
#include "world.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64
#define CHECK_SEEDS (SIM_WITH_ASAN ? 100 : 20000)
#define CLOSE_SEEDS (SIM_WITH_ASAN ? 60 : 20300)
#define CHECK_JOBS 2

struct conf {
	uint64_t seed, seeds, only, jobs;
	bool mutants, coverage, check, is_slow;
	const char *mutant;
};

struct tally {
	uint64_t seeds, broken, first; /* first: a seed that broke */
	int64_t ns;		       /* simulated */
	uint64_t hash;		       /* of all traces */
	char invariant[16], why[512];
	struct counts counts;
};

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- a seed that broke ---- */

static bool breaks(const struct tally *t, uint64_t only)
{
	return !world_run(t->first, only) &&
	       strcmp(t->invariant, sim.broken) == 0;
}

/* The fewest faults with which the same invariant breaks: each is left out
 * in turn, and stays out if that changes nothing. */
static uint64_t shorten(const struct tally *t, uint64_t only)
{
	if (!breaks(t, only))
		printf("  (not alone: something outlives a seed)\n");
	only &= ((uint64_t)1 << world.nfaults) - 1;
	for (uint32_t i = 0; i < world.nfaults; i++) {
		uint64_t less = only & ~((uint64_t)1 << i);

		if (less != only && breaks(t, less))
			only = less;
	}
	return only;
}

static void print_schedule(uint64_t only)
{
	for (uint32_t i = 0; i < world.nfaults; i++) {
		const struct fault *f = &world.fault[i];

		if (only >> i & 1)
			printf("  fault %u: push r%u, %.6f s after %s%s %s: "
			       "%s %u, step %llu, %.3f s\n",
			       i, f->push, (double)f->when / 1e9,
			       f->again ? "a restarted " : "",
			       f->machine ? f->machine->name : "its",
			       f->machine ? world_fault_state(f) : "start",
			       world_fault_name(f->kind), f->who,
			       (unsigned long long)f->steps,
			       (double)f->len / 1e9);
	}
}

static void print_only(uint64_t only)
{
	const char *comma = "";

	printf(" --only=");
	for (uint32_t i = 0; i < FAULTS_MAX; i++) {
		if (!(only >> i & 1))
			continue;
		printf("%s%u", comma, i);
		comma = ",";
	}
}

static void explain(const struct conf *c, const struct tally *t)
{
	uint64_t seed = t->first, only;

	printf("seed %llu: %s: %s\n", (unsigned long long)seed, t->invariant,
	       t->why);
	only = shorten(t, c->only);
	print_schedule(only);
	printf("  replay: sim --seed=%llu", (unsigned long long)seed);
	print_only(only);
	if (c->mutant)
		printf(" --mutant=%s", c->mutant);
	printf(" --trace\n");
}

/* ---- many seeds ---- */

/* Every stride-th from first on. */
static void run_some(const struct conf *c, uint64_t first, uint64_t stride,
		     struct tally *t)
{
	counts = (struct counts){ 0 };
	for (uint64_t i = first; i < c->seeds; i += stride) {
		bool good = world_run(c->seed + i, c->only);

		t->seeds++;
		t->ns += sim.now;
		t->hash += sim.hash;
		if (good)
			continue;
		if (t->broken++ == 0) {
			t->first = c->seed + i;
			snprintf(t->invariant, sizeof t->invariant, "%s",
				 sim.broken);
			snprintf(t->why, sizeof t->why, "%s", sim.why);
		}
		if (c->mutant)
			break;
	}
	t->counts = counts;
}

static void add(struct tally *to, const struct tally *t)
{
	to->seeds += t->seeds;
	to->ns += t->ns;
	to->hash += t->hash;
	if (t->broken && (!to->broken || t->first < to->first)) {
		to->first = t->first;
		memcpy(to->invariant, t->invariant, sizeof to->invariant);
		memcpy(to->why, t->why, sizeof to->why);
	}
	to->broken += t->broken;
	counts_add(&to->counts, &t->counts);
}

static bool read_tally(int fd, struct tally *t)
{
	size_t done = 0;

	while (done < sizeof *t) {
		ssize_t n = read(fd, (char *)t + done, sizeof *t - done);

		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static int start_job(const struct conf *c, uint64_t i)
{
	struct tally t = { 0 };
	int fd[2];

	if (pipe(fd) < 0)
		return -1;
	if (fork() != 0) {
		close(fd[1]);
		return fd[0];
	}
	run_some(c, i, c->jobs, &t);
	_exit(write(fd[1], &t, sizeof t) != sizeof t);
}

/* False: a job died, which a seed's own assertions cannot have asked for. */
static bool run_jobs(const struct conf *c, struct tally *sum)
{
	int fd[JOBS_MAX];
	bool good = true;
	struct tally t;

	if (c->jobs == 1) {
		run_some(c, 0, 1, sum);
		return true;
	}
	fflush(stdout);
	for (uint64_t i = 0; i < c->jobs; i++)
		fd[i] = start_job(c, i);
	for (uint64_t i = 0; i < c->jobs; i++) {
		if (!read_tally(fd[i], &t))
			good = false;
		else
			add(sum, &t);
		close(fd[i]);
	}
	while (wait(NULL) > 0)
		;
	return good;
}

/* What is crossed too seldom is known of a whole check: with sanitizers there
 * is time for a small part.  There a row may be crossed a few times that never
 * should, which is for a soak to find. */
static bool is_covered(const struct conf *c, const struct counts *all)
{
	struct count_wrong w = counts_print(all, c->check ? COUNT_STRAY : 0);

	if (!c->check || SIM_WITH_ASAN)
		w.seldom = 0;
	if (w.seldom)
		printf("%zu rows and moves are crossed too seldom, and rows.c "
		       "does not say why\n",
		       w.seldom);
	if (w.never)
		printf("%zu rows are crossed that rows.c says never are\n",
		       w.never);
	return !w.seldom && !w.never;
}

/* False: one broke, or a job died.  What they crossed is added to all. */
static bool run_part(const struct conf *c, const char *what, struct counts *all)
{
	double began = now(), took;
	struct tally t = { 0 };
	bool good = run_jobs(c, &t);

	took = now() - began;
	printf("%llu %s, %llu broken; %.0f seeds/s, %.1f simulated hours "
	       "per minute\n",
	       (unsigned long long)t.seeds, what, (unsigned long long)t.broken,
	       (double)t.seeds / took, (double)t.ns / 1e9 / 3600 / (took / 60));
	printf("trace %016llx\n", (unsigned long long)t.hash);
	if (!good)
		printf("a job died\n");
	if (t.broken && !sim.trace)
		explain(c, &t);
	else if (t.broken)
		printf("%s: %s\n", sim.broken, sim.why);
	counts_add(all, &t.counts);
	return good && !t.broken;
}

static int run_seeds(const struct conf *given)
{
	static struct counts all;
	struct conf c = *given;
	bool good = run_part(&c, "seeds", &all);

	if (c.check) {
		c.seed = WORLD_CLOSE;
		c.seeds = CLOSE_SEEDS;
		good = run_part(&c, "aimed seeds", &all) && good;
	}
	if (c.coverage && !is_covered(&c, &all))
		good = false;
	return !good;
}

/* ---- mutants ---- */

static int run_mutant(const struct conf *given, int i)
{
	struct conf c = *given;
	struct tally t = { 0 };

	sim.mutant = i;
	c.mutant = mutant_name(i);
	c.jobs = 1;
	run_jobs(&c, &t);
	sim.mutant = 0;
	printf("%-28s %-5s %8llu  %s\n", c.mutant, t.broken ? t.invariant : "-",
	       (unsigned long long)(t.broken ? t.first - c.seed + 1 : 0),
	       mutant_text(i));
	fflush(stdout);
	return t.broken == 0 || t.invariant[0] != 'I';
}

static int run_mutants(const struct conf *c)
{
	int survive = 0, tried = 0;

	printf("%-28s %-5s %8s\n", "mutant", "by", "seeds");
	for (int i = 1; i <= mutant_count(); i++) {
		if (c->check && mutant_is_rare(i))
			continue;
		survive += run_mutant(c, i);
		tried++;
	}
	printf("%d mutants, %d survive\n", tried, survive);
	return survive != 0;
}

/* ---- the command line ---- */

static bool read_number(const char *s, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(s, &end, 0);
	return errno == 0 && end != s && *end == '\0';
}

static bool read_only(char *s, uint64_t *out)
{
	uint64_t i;

	*out = 0;
	for (char *part = strtok(s, ","); part; part = strtok(NULL, ",")) {
		if (!read_number(part, &i) || i >= FAULTS_MAX)
			return false;
		*out |= (uint64_t)1 << i;
	}
	return true;
}

static const struct option options[] = {
	{ "check", no_argument, NULL, 'k' },
	{ "is-slow", no_argument, NULL, 'a' },
	{ "seed", required_argument, NULL, 's' },
	{ "seeds", required_argument, NULL, 'n' },
	{ "jobs", required_argument, NULL, 'j' },
	{ "only", required_argument, NULL, 'o' },
	{ "mutant", required_argument, NULL, 'm' },
	{ "mutants", no_argument, NULL, 'M' },
	{ "coverage", no_argument, NULL, 'c' },
	{ "trace", no_argument, NULL, 't' },
	{ 0 },
};

static bool take(struct conf *c, int o)
{
	switch (o) {
	case 'k':
		c->check = true;
		c->seeds = CHECK_SEEDS;
		c->jobs = CHECK_JOBS;
		return true;
	case 'a':
		c->is_slow = true;
		return true;
	case 's':
		return read_number(optarg, &c->seed);
	case 'n':
		return read_number(optarg, &c->seeds);
	case 'j':
		return read_number(optarg, &c->jobs) && c->jobs >= 1 &&
		       c->jobs <= JOBS_MAX;
	case 'o':
		return read_only(optarg, &c->only);
	case 'm':
		c->mutant = optarg;
		sim.mutant = mutant_number(optarg);
		return sim.mutant > 0;
	case 'M':
		c->mutants = true;
		return true;
	case 'c':
		c->coverage = true;
		return true;
	case 't':
		sim.trace = stdout;
		return true;
	default:
		return false;
	}
}

int main(int argc, char **argv)
{
	struct conf c = {
		.seed = 1, .seeds = 1, .only = UINT64_MAX, .jobs = 1
	};
	int o;

	setenv("TZ", "UTC0", 1); /* a ledger's times, without a file's help */
	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (take(&c, o))
			continue;
		fputs("usage: see tests/sim/main.c\n", stderr);
		return 64;
	}
	if (c.is_slow)
		return !SIM_WITH_ASAN;
	return c.mutants ? run_mutants(&c) : run_seeds(&c);
}
