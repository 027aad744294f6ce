/*
 * limit.c - what a device can do, to compare with; for tests/gpu/run.
 *
 *	limit info		versions and devices, as lines of JSON members
 *	limit free		bytes of memory that device 0 has left
 *	limit d2d|h2d BYTES	GB/s of plain copies on it: best of five
 *	limit nccl BYTES	a group of one rank: formed, broadcast, ended
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/gpu.h"
#include "common/log.h"
#include "common/nccl.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMES 5

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

static int nccl(size_t n)
{
	struct gpu_device d;
	struct nccl_id id;
	void *comm, *memory, *stream;
	int64_t deadline = clock_mono_ms() + 60000;
	int rc = gpu_open(0, &d), state = 0;

	if (rc == 0)
		rc = gpu_alloc(&memory, n);
	if (rc == 0)
		rc = gpu_stream_new(&stream);
	if (rc == 0)
		rc = nccl_new_id(&id);
	if (rc == 0)
		rc = nccl_begin(&comm, &id, 0, 1);
	while (rc == 0 && (state = nccl_state(comm)) == 0)
		if (clock_mono_ms() > deadline)
			return log_error(E_TIMEOUT, "a group of one rank does "
						    "not form");
	if (rc == 0 && state < 0)
		rc = state;
	if (rc == 0)
		rc = nccl_broadcast(comm, memory, n, stream);
	if (rc == 0)
		rc = gpu_stream_wait(stream);
	if (rc < 0)
		return rc;
	nccl_end(comm);
	printf("formed, broadcast, ended\n");
	return 0;
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
	else if (n && strcmp(what, "d2d") == 0)
		rc = copy(n, false);
	else if (n && strcmp(what, "h2d") == 0)
		rc = copy(n, true);
	else if (n && strcmp(what, "nccl") == 0)
		rc = nccl(n);
	return err_exit_code(rc);
}
