/*
 * limit.c - what a device can do, to compare with; for tests/gpu/run.
 *
 *	limit info		versions and devices, as lines of JSON members
 *	limit free		bytes of memory that device 0 has left
 *	limit peak		bytes of it that were taken until stdin ends
 *	limit d2d|h2d BYTES	GB/s of plain copies on it: best of five
 *	limit nccl BYTES	a group of one rank: formed, broadcast, ended;
 *				and what must fail, or end before its time
 *	limit cast BYTES FILE RANK	GB/s of broadcasts of two processes,
 *				which meet by a file that rank 0 makes
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/gpu.h"
#include "common/io.h"
#include "common/log.h"
#include "common/nccl.h"
#include "common/watchdog.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMES 5
#define FORM_MS 60000
#define ALONE_MS 300 /* in a group whose other rank never comes */
#define END_MS 10000
#define LOOK_MS 1

static int info(void)
{
	struct gpu_device d;
	uint32_t code;
	char nccl[NCCL_TEXT], uuid[GPU_UUID_TEXT];
	int n = 0, rc = gpu_open(0, &d);

	if (rc == 0)
		rc = nccl_version(&code);
	if (rc < 0)
		return rc;
	cudaGetDeviceCount(&n);
	nccl_version_text(code, nccl);
	gpu_uuid_text(d.uuid, uuid);
	printf("\"nccl\": \"%s\",\n\"cuda_driver\": %d,\n\"cuda_runtime\": "
	       "%d,\n\"device\": \"%s\",\n\"uuid\": \"%s\",\n\"devices\": "
	       "%d,\n",
	       nccl, d.driver, d.runtime, d.name, uuid, n);
	return 0;
}

static int free_memory(void)
{
	struct gpu_device d;
	size_t have = 0, all = 0;
	int rc = gpu_open(0, &d);

	if (rc < 0)
		return rc;
	cudaMemGetInfo(&have, &all);
	printf("%zu\n", have);
	return 0;
}

static int time_copy(void *to, const void *from, size_t n, double *best)
{
	void *stream;
	int rc = gpu_stream_new(&stream);

	*best = 0;
	for (int i = 0; i < TIMES && rc == 0; i++) {
		int64_t start = clock_mono_ns();

		rc = gpu_copy(stream, to, from, n);
		if (rc == 0)
			rc = gpu_stream_wait(stream);
		double rate = (double)n / (double)(clock_mono_ns() - start);

		if (rate > *best)
			*best = rate;
	}
	gpu_stream_free(stream);
	return rc;
}

static int copy(size_t n, bool is_from_host)
{
	struct gpu_device d;
	void *to, *from;
	bool is_pinned = false;
	double best = 0;
	int rc = gpu_open(0, &d);

	if (rc == 0)
		rc = gpu_alloc(&to, n);
	if (rc == 0)
		rc = is_from_host ? gpu_host_alloc(&from, n, &is_pinned)
				  : gpu_alloc(&from, n);
	if (rc == 0)
		rc = time_copy(to, from, n, &best);
	if (rc < 0)
		return rc;
	printf("%.2f\n", best);
	return 0;
}

/* What is taken while this looks, which is not all the time. */
static int peak(void)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	size_t first = 0, have = 0, all = 0, least;
	struct gpu_device d;
	int rc = gpu_open(0, &d);

	if (rc < 0)
		return rc;
	cudaMemGetInfo(&first, &all);
	for (least = first; poll(&in, 1, LOOK_MS) == 0;) {
		cudaMemGetInfo(&have, &all);
		least = have < least ? have : least;
	}
	printf("%zu\n", first - least);
	return 0;
}

/* ---- groups ---- */

struct ring {
	void *comm, *memory, *stream;
};

static int form(struct ring *g, const struct nccl_id *id, uint32_t rank,
		uint32_t world)
{
	int64_t deadline = clock_mono_ms() + FORM_MS;
	int rc = nccl_begin(&g->comm, id, rank, world);

	while (rc == 0 && (rc = nccl_state(g->comm)) == 0)
		if (clock_mono_ms() > deadline)
			return log_error(E_TIMEOUT,
					 "a group of %u does not form", world);
	return rc < 0 ? rc : 0;
}

static void end(struct ring *g, const char *what)
{
	watchdog_set(what, END_MS);
	nccl_end(g->comm);
	watchdog_clear();
}

static int whole(struct ring *g, size_t n)
{
	struct nccl_id id;
	int rc = nccl_new_id(&id);

	if (rc == 0)
		rc = form(g, &id, 0, 1);
	if (rc == 0)
		rc = nccl_broadcast(g->comm, g->memory, n, g->stream);
	if (rc == 0)
		rc = gpu_stream_wait(g->stream);
	if (rc == 0)
		end(g, "the end of a group");
	return rc;
}

static int under_way(struct ring *g, size_t n)
{
	struct nccl_id id;
	int rc = nccl_new_id(&id);

	if (rc == 0)
		rc = form(g, &id, 0, 1);
	for (int i = 0; i < TIMES && rc == 0; i++)
		rc = nccl_broadcast(g->comm, g->memory, n, g->stream);
	if (rc == 0)
		end(g, "the abort of broadcasts");
	return rc < 0 ? rc : gpu_stream_wait(g->stream);
}

static int alone(struct ring *g)
{
	int64_t deadline = clock_mono_ms() + ALONE_MS;
	struct nccl_id id;
	int rc = nccl_new_id(&id);

	if (rc == 0)
		rc = nccl_begin(&g->comm, &id, 0, 2);
	while (rc == 0 && clock_mono_ms() < deadline)
		rc = nccl_state(g->comm);
	if (rc > 0)
		return log_error(E_IO, "a group of two formed without one");
	if (rc == 0)
		end(g, "the abort of a group that forms");
	return rc;
}

static int refused(struct ring *g)
{
	struct nccl_id id;
	int was = log_quiet_thread(1), rc = nccl_new_id(&id), got = 0;

	if (rc == 0)
		got = nccl_begin(&g->comm, &id, 2, 1);
	log_quiet_thread(was);
	if (rc == 0 && got == 0)
		return log_error(E_IO, "rank 2 of 1 is let in");
	return rc;
}

static int open_ring(struct ring *g, size_t n)
{
	struct gpu_device d;
	int rc = gpu_open(0, &d);

	if (rc == 0)
		rc = gpu_alloc(&g->memory, n);
	if (rc == 0)
		rc = gpu_stream_new(&g->stream);
	return rc == 0 ? watchdog_start() : rc;
}

static int nccl(size_t n)
{
	struct ring g;
	int rc = open_ring(&g, n);

	if (rc == 0)
		rc = whole(&g, n);
	if (rc == 0)
		rc = under_way(&g, n);
	if (rc == 0)
		rc = alone(&g);
	if (rc == 0)
		rc = refused(&g);
	if (rc == 0)
		printf("formed, broadcast, ended; aborted under way and while "
		       "it forms; a wrong rank is refused\n");
	return rc;
}

static int meet(const char *path, uint32_t rank, struct nccl_id *id)
{
	int64_t deadline = clock_mono_ms() + FORM_MS;
	struct buf b = { 0 };
	int rc;

	if (rank == 0) {
		rc = nccl_new_id(id);
		return rc < 0 ? rc
			      : io_replace(AT_FDCWD, path, id, sizeof(*id));
	}
	while ((rc = io_read_file(AT_FDCWD, path, sizeof(*id), &b)) ==
	       -E_NOINPUT) {
		if (clock_mono_ms() > deadline)
			return log_error(E_TIMEOUT, "rank 0 does not come");
		poll(NULL, 0, LOOK_MS);
	}
	if (rc >= 0 && b.n == sizeof(*id))
		memcpy(id, b.p, sizeof(*id));
	buf_release(&b);
	return rc < 0 ? rc : 0;
}

static int time_casts(struct ring *g, size_t n, double *best)
{
	int rc = 0;

	for (int i = 0; i < TIMES && rc == 0; i++) {
		int64_t start = clock_mono_ns();
		double rate;

		rc = nccl_broadcast(g->comm, g->memory, n, g->stream);
		if (rc == 0)
			rc = gpu_stream_wait(g->stream);
		rate = (double)n / (double)(clock_mono_ns() - start);
		*best = rate > *best ? rate : *best;
	}
	return rc;
}

static int cast(size_t n, const char *path, uint32_t rank)
{
	struct nccl_id id = { 0 };
	struct ring g;
	double best = 0;
	int rc = open_ring(&g, n);

	if (rc == 0)
		rc = meet(path, rank, &id);
	if (rc == 0)
		rc = form(&g, &id, rank, 2);
	if (rc == 0)
		rc = time_casts(&g, n, &best);
	if (rc == 0)
		end(&g, "the end of a group of two");
	if (rc == 0)
		printf("%.2f\n", best);
	return rc;
}

int main(int argc, char **argv)
{
	size_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	const char *what = argc > 1 ? argv[1] : "";
	int rc = -E_USAGE;

	log_init("limit", LOG_INFO);
	if (strcmp(what, "info") == 0)
		rc = info();
	else if (strcmp(what, "free") == 0)
		rc = free_memory();
	else if (strcmp(what, "peak") == 0)
		rc = peak();
	else if (n && strcmp(what, "d2d") == 0)
		rc = copy(n, false);
	else if (n && strcmp(what, "h2d") == 0)
		rc = copy(n, true);
	else if (n && strcmp(what, "nccl") == 0)
		rc = nccl(n);
	else if (n && argc == 5 && strcmp(what, "cast") == 0)
		rc = cast(n, argv[3], (uint32_t)atoi(argv[4]));
	return err_exit_code(rc);
}
