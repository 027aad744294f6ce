/*
 * nccl.c - broadcasts between processes, without a device; see standin.h.
 *
 * A group is a piece of shared memory that rank 0 makes; its id says where.
 * Rank 0 writes a broadcast into a ring of slots, each of which it uses again
 * when every other rank has read it: each has a count of its own.
 */
#include "tests/standin/standin.h"

#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define RANKS_MAX 128
#define SLOTS 4u
#define SLOT ((size_t)64 << 10)
#define TICK_US 50

struct slot {
	_Atomic uint64_t op; /* which broadcast it belongs to */
	size_t total, n;
	char bytes[SLOT];
};

struct area {
	atomic_uint world, here;
	atomic_bool is_aborted;
	unsigned char uuid[RANKS_MAX][16];
	_Atomic uint64_t written, read[RANKS_MAX];
	float part[RANKS_MAX]; /* of a sum */
	_Atomic uint64_t summed;
	struct slot slot[SLOTS];
};

struct ncclComm {
	struct area *area;
	char at[64]; /* where it was found: there while rank 0 lives */
	pthread_t init;
	unsigned char uuid[16];
	unsigned rank, world;
	_Atomic int state;
	atomic_bool is_ended;
	uint64_t ops, slots, sums;
	_Atomic unsigned running;
};

struct id {
	pid_t pid;
	int fd;
	uint64_t nonce;
};

__attribute__((constructor)) static void say(void)
{
	fprintf(stderr, "stand-in libnccl.so.2: bytes go through shared "
			"memory\n");
}

ncclResult_t ncclGetVersion(int *v)
{
	*v = (int)standin_number("WEIR_STANDIN_NCCL", NCCL_VERSION_CODE);
	return ncclSuccess;
}

/* Its descriptor stays open while this process lives. */
ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
	struct id id = { .pid = getpid() };

	id.fd = memfd_create("weir-standin-nccl", MFD_CLOEXEC);
	if (id.fd < 0 || ftruncate(id.fd, sizeof(struct area)) < 0)
		return ncclSystemError;
	id.nonce = (uint64_t)id.pid << 32 | (unsigned)id.fd;
	memset(out, 0, sizeof(*out));
	memcpy(out->internal, &id, sizeof(id));
	return ncclSuccess;
}

static struct area *map_area(const ncclUniqueId *id, char path[64])
{
	struct id where;
	void *p;
	int fd;

	memcpy(&where, id->internal, sizeof(where));
	snprintf(path, 64, "/proc/%d/fd/%d", (int)where.pid, where.fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	p = mmap(NULL, sizeof(struct area), PROT_READ | PROT_WRITE, MAP_SHARED,
		 fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

static bool is_over(struct ncclComm *c)
{
	return atomic_load(&c->is_ended) || atomic_load(&c->area->is_aborted) ||
	       access(c->at, F_OK) < 0;
}

static bool gives_up(struct ncclComm *c)
{
	if (!is_over(c))
		return false;
	atomic_store(&c->state, ncclRemoteError);
	return true;
}

static ncclResult_t meet(struct ncclComm *c)
{
	unsigned none = 0;

	if (standin_fault("init-hang"))
		for (;;)
			standin_nap(TICK_US);
	if (!atomic_compare_exchange_strong(&c->area->world, &none, c->world) &&
	    none != c->world)
		return ncclInvalidArgument;
	memcpy(c->area->uuid[c->rank], c->uuid, 16);
	atomic_fetch_add(&c->area->here, 1);
	while (atomic_load(&c->area->here) < c->world && !is_over(c))
		standin_nap(TICK_US);
	for (unsigned r = 0; r < c->world; r++)
		if (r != c->rank && memcmp(c->area->uuid[r], c->uuid, 16) == 0)
			return ncclInvalidUsage;
	return is_over(c) ? ncclRemoteError : ncclSuccess;
}

static void *init(void *arg)
{
	struct ncclComm *c = arg;

	atomic_store(&c->state, meet(c));
	return NULL;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id,
				    int rank, ncclConfig_t *config)
{
	struct ncclComm *c = calloc(1, sizeof(*c));

	while (standin_fault("begin-hang"))
		standin_nap(TICK_US);
	if (rank < 0 || rank >= world || world > RANKS_MAX) {
		free(c);
		return ncclInvalidArgument;
	}
	if (standin_fault("init-error")) {
		free(c);
		return ncclSystemError;
	}
	standin_log("join", (unsigned)rank, (unsigned)world);
	c->area = map_area(&id, c->at);
	if (!c->area) {
		free(c);
		return ncclSystemError;
	}
	c->rank = (unsigned)rank;
	c->world = (unsigned)world;
	c->state = ncclInProgress;
	standin_uuid(c->uuid);
	*out = c;
	pthread_create(&c->init, NULL, init, c);
	if (config && config->blocking == 0)
		return ncclInProgress;
	pthread_join(c->init, NULL);
	c->init = 0;
	return (ncclResult_t)atomic_load(&c->state);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
	*out = (ncclResult_t)atomic_load(&c->state);
	if (*out == ncclSuccess && atomic_load(&c->area->is_aborted))
		*out = ncclRemoteError;
	return ncclSuccess;
}

struct cast {
	struct ncclComm *c;
	const char *from;
	char *to;
	size_t n;
	uint64_t op;
};

static bool wait_to_write(struct ncclComm *c)
{
	for (unsigned r = 1; r < c->world; r++)
		while (atomic_load(&c->area->read[r]) + SLOTS <= c->slots) {
			if (gives_up(c))
				return false;
			standin_nap(TICK_US);
		}
	return true;
}

static bool write_slot(const struct cast *k, size_t at)
{
	struct ncclComm *c = k->c;
	struct slot *s = &c->area->slot[c->slots % SLOTS];
	size_t n = k->n - at < SLOT ? k->n - at : SLOT;

	if (!wait_to_write(c))
		return false;
	s->op = k->op;
	s->total = k->n;
	s->n = n;
	memcpy(s->bytes, k->from + at, n);
	atomic_store(&c->area->written, ++c->slots);
	return true;
}

static bool read_slot(const struct cast *k, size_t at)
{
	struct ncclComm *c = k->c;
	struct slot *s = &c->area->slot[c->slots % SLOTS];

	while (atomic_load(&c->area->written) <= c->slots) {
		if (gives_up(c))
			return false;
		standin_nap(TICK_US);
	}
	/* Ranks that do not do the same: the real one hangs or mixes up. */
	if (s->op != k->op || s->total != k->n) {
		atomic_store(&c->state, ncclInvalidUsage);
		return false;
	}
	memcpy(k->to + at, s->bytes, s->n);
	atomic_store(&c->area->read[c->rank], ++c->slots);
	return true;
}

static void move_bytes(const struct cast *k)
{
	bool goes_on = true;

	while (standin_fault("broadcast-hang") ||
	       (k->c->rank == 0 && standin_fault("no-data"))) {
		if (gives_up(k->c))
			return;
		standin_nap(TICK_US);
	}
	/* What is on the device knows nothing of it, and goes on waiting. */
	if (standin_fault("async-error")) {
		atomic_store(&k->c->state, ncclRemoteError);
		while (!is_over(k->c))
			standin_nap(TICK_US);
		return;
	}
	for (size_t at = 0; goes_on && at < k->n; at += SLOT)
		goes_on =
			k->c->rank == 0 ? write_slot(k, at) : read_slot(k, at);
}

static void run_cast(void *arg)
{
	struct cast *k = arg;

	move_bytes(k);
	atomic_fetch_sub(&k->c->running, 1);
	free(k);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n,
			   ncclDataType_t type, int root, ncclComm_t c,
			   cudaStream_t s)
{
	struct cast *k = calloc(1, sizeof(*k));

	if (type != ncclUint8 || root != 0) {
		free(k);
		return ncclInvalidArgument;
	}
	*k = (struct cast){ c, from, to, n, ++c->ops };
	standin_log("cast", c->rank, n);
	atomic_fetch_add(&c->running, 1);
	standin_queue(s, run_cast, k);
	return ncclSuccess;
}

struct sum {
	struct ncclComm *c;
	const float *from;
	float *to;
	uint64_t upto;
};

static void run_sum(void *arg)
{
	struct sum *k = arg;
	struct area *a = k->c->area;
	float sum = 0;

	a->part[k->c->rank] = *k->from;
	atomic_fetch_add(&a->summed, 1);
	while (atomic_load(&a->summed) < k->upto && !is_over(k->c))
		standin_nap(TICK_US);
	for (unsigned r = 0; r < k->c->world; r++)
		sum += a->part[r];
	*k->to = sum;
	atomic_fetch_sub(&k->c->running, 1);
	free(k);
}

/* Of one float, and not while another one is under way. */
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n,
			   ncclDataType_t type, ncclRedOp_t op, ncclComm_t c,
			   cudaStream_t s)
{
	struct sum *k;

	if (type != ncclFloat32 || op != ncclSum || n != 1)
		return ncclInvalidArgument;
	k = calloc(1, sizeof(*k));
	*k = (struct sum){ c, from, to, ++c->sums * c->world };
	atomic_fetch_add(&c->running, 1);
	standin_queue(s, run_sum, k);
	return ncclSuccess;
}

static void end_init(struct ncclComm *c)
{
	if (c->init)
		pthread_join(c->init, NULL);
	c->init = 0;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
	atomic_store(&c->is_ended, true);
	atomic_store(&c->area->is_aborted, true);
	if (standin_fault("abort-hang"))
		for (;;)
			standin_nap(TICK_US);
	end_init(c);
	while (atomic_load(&c->running) > 0)
		standin_nap(TICK_US);
	munmap(c->area, sizeof(*c->area));
	free(c);
	return ncclSuccess;
}

/* Waits for what it was given. */
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	end_init(c);
	while (atomic_load(&c->running) > 0)
		standin_nap(TICK_US);
	munmap(c->area, sizeof(*c->area));
	free(c);
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t e)
{
	switch (e) {
	case ncclSuccess:
		return "no error";
	case ncclRemoteError:
		return "remote process exited or there was a network error";
	case ncclInvalidUsage:
		return "invalid usage";
	case ncclSystemError:
		return "unhandled system error";
	case ncclInvalidArgument:
		return "invalid argument";
	default:
		return "internal error";
	}
}
