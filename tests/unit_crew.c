/* Jobs over a few threads: what waits for what. */
#include "common/err.h"
#include "common/log.h"
#include "pipes/crew.h"
#include "tests/tap.h"

#include <pthread.h>
#include <time.h>

#define JOBS 40u
#define WAIT_S 60 /* bound on what must come anyway */
#define FAILING 3u

static struct {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	uint32_t done, at_work, most;
	bool is_full, waited;
} all = { .lock = PTHREAD_MUTEX_INITIALIZER,
	  .ended = PTHREAD_COND_INITIALIZER };

/* The first goes on when all others are done and taken. */
static int first_waits(void *ctx, uint32_t i, void *seat)
{
	struct timespec end;
	int rc = 0;

	(void)ctx, (void)seat;
	if (i > 0)
		return 0;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += WAIT_S;
	pthread_mutex_lock(&all.lock);
	while (rc == 0 && all.done < JOBS - 1)
		rc = pthread_cond_timedwait(&all.ended, &all.lock, &end);
	all.waited = rc == 0;
	pthread_mutex_unlock(&all.lock);
	return 0;
}

static int count(void *ctx, uint32_t i, void *seat)
{
	(void)ctx, (void)i, (void)seat;
	pthread_mutex_lock(&all.lock);
	all.done++;
	all.at_work--;
	pthread_cond_signal(&all.ended);
	pthread_mutex_unlock(&all.lock);
	return 0;
}

/* From its beginning until it is taken. */
static int see_most(void *ctx, uint32_t i, void *seat)
{
	(void)ctx, (void)i, (void)seat;
	pthread_mutex_lock(&all.lock);
	if (++all.at_work > all.most)
		all.most = all.at_work;
	pthread_mutex_unlock(&all.lock);
	return 0;
}

static int fail_one(void *ctx, uint32_t i, void *seat)
{
	(void)ctx, (void)seat;
	return i == FAILING ? log_error(E_DATA, "as asked for") : 0;
}

static bool is_full(const void *ctx)
{
	(void)ctx;
	return all.is_full;
}

static int run(crew_fn *work)
{
	struct crew c = {
		.threads = 3,
		.seat_size = 1,
		.work = work,
		.done = count,
		.is_full = is_full,
	};

	all.done = 0;
	return crew_run(&c, JOBS);
}

int main(void)
{
	eq_i64(run(first_waits), 0, "all have run");
	ok(all.waited, "a long one holds up no other");
	eq_u64(all.done, JOBS, "each was taken");
	all.is_full = true;
	all.at_work = 0;
	eq_i64(run(see_most), 0, "full from the first on, all have run");
	eq_u64(all.most, 1, "one at a time");
	eq_u64(all.done, JOBS, "each was taken");
	all.is_full = false;
	eq_i64(run(fail_one), -E_DATA, "one fails");
	ok(all.done < JOBS, "and is not taken");
	return tap_done();
}
