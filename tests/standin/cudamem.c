/* cudamem.c - the memory of cudart.c's devices, and handles of it. */
#include "common/leafsum.h"
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAPS_MAX 4096

struct map {
	void *p;
	size_t n;
	int fd;
	bool is_import;
	unsigned char uuid[16]; /* of the device that it is on */
};

static struct map map[MAPS_MAX];
static size_t in_maps;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t add_map(void **out, size_t n, int fd, bool is_import,
			   const unsigned char uuid[16])
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	size_t i = 0;

	if (p == MAP_FAILED)
		return cudaErrorMemoryAllocation;
	pthread_mutex_lock(&map_lock);
	while (map[i].p)
		i++;
	map[i] = (struct map){ p, n, fd, is_import, { 0 } };
	memcpy(map[i].uuid, uuid, sizeof(map[i].uuid));
	in_maps += is_import ? 0 : n;
	pthread_mutex_unlock(&map_lock);
	*out = p;
	return cudaSuccess;
}

static struct map *find_map(const void *p)
{
	for (size_t i = 0; i < MAPS_MAX; i++) {
		char *first = map[i].p;

		if (first && (const char *)p >= first &&
		    (const char *)p < first + map[i].n)
			return &map[i];
	}
	return NULL;
}

static cudaError_t drop_map(void *p)
{
	cudaError_t rc = cudaErrorInvalidValue;
	struct map *m;

	if (!p)
		return cudaSuccess;
	pthread_mutex_lock(&map_lock);
	m = find_map(p);
	if (m && m->p == p) {
		munmap(m->p, m->n);
		close(m->fd);
		in_maps -= m->is_import ? 0 : m->n;
		*m = (struct map){ 0 };
		rc = cudaSuccess;
	}
	pthread_mutex_unlock(&map_lock);
	return rc;
}

/* Of one allocation from its first byte to its last, or of none. */
static bool is_inside(const void *p, size_t n)
{
	const struct map *m;
	bool is;

	pthread_mutex_lock(&map_lock);
	m = find_map(p);
	is = !m || n <= m->n - (size_t)((const char *)p - (char *)m->p);
	pthread_mutex_unlock(&map_lock);
	return is;
}

static size_t memory(void)
{
	return standin_number("WEIR_STANDIN_MEMORY", 1u << 30);
}

cudaError_t cudaMalloc(void **out, size_t n)
{
	unsigned char uuid[16];
	int fd;

	REFUSE_IF_STUCK;
	if (standin_fault("oom") || n > memory() || in_maps > memory() - n)
		return cudaErrorMemoryAllocation;
	fd = memfd_create("weir-standin", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)n) < 0)
		return cudaErrorMemoryAllocation;
	standin_uuid(uuid);
	return add_map(out, n, fd, false, uuid);
}

cudaError_t cudaFree(void *p)
{
	return drop_map(p);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	*total = memory();
	*free_bytes = *total - in_maps;
	return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t n, unsigned flags)
{
	(void)flags;
	REFUSE_IF_STUCK;
	if (standin_fault("no-pin"))
		return cudaErrorMemoryAllocation;
	*out = malloc(n);
	return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *p)
{
	free(p);
	return cudaSuccess;
}

struct copy {
	void *to;
	const void *from;
	size_t n;
};

static void carry_out(void *arg)
{
	struct copy *c = arg;

	memcpy(c->to, c->from, c->n);
	free(c);
}

static void damage(void *arg)
{
	struct copy *c = arg;
	char *to = c->to;

	memcpy(to, c->from, c->n);
	to[c->n / 2] ^= 1;
	free(c);
}

/* The first of them alone: two may undo each other. */
static bool is_damaged(void)
{
	static atomic_bool was;

	return standin_fault("bad-copy") && !atomic_exchange(&was, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
			    enum cudaMemcpyKind kind, cudaStream_t s)
{
	struct copy *c;

	(void)kind;
	REFUSE_IF_STUCK;
	if (!is_inside(to, n) || !is_inside(from, n))
		return cudaErrorInvalidValue;
	c = calloc(1, sizeof(*c));
	*c = (struct copy){ to, from, n };
	standin_queue(s, is_damaged() ? damage : carry_out, c);
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n,
		       enum cudaMemcpyKind kind)
{
	(void)kind;
	REFUSE_IF_STUCK;
	if (!is_inside(to, n) || !is_inside(from, n))
		return cudaErrorInvalidValue;
	memcpy(to, from, n);
	return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t n)
{
	REFUSE_IF_STUCK;
	if (!is_inside(to, n))
		return cudaErrorInvalidValue;
	memset(to, value, n);
	return cudaSuccess;
}

/* Streams of ours are waited for one by one. */
cudaError_t cudaDeviceSynchronize(void)
{
	REFUSE_IF_STUCK;
	return cudaSuccess;
}

/* ---- code ---- */

struct launch {
	void (*fn)(const struct leafsum_work *w);
	struct leafsum_work w;
};

static void sums(const struct leafsum_work *w)
{
	for (uint32_t i = 0; i < w->n; i++)
		for (uint64_t t = LEAFSUM_LANES * leafsum_blocks(w->run[i].n);
		     t-- > 0;)
			leafsum_sum(w, i, t);
}

static void chains(const struct leafsum_work *w)
{
	for (uint64_t t = (uint64_t)w->n * LEAFSUM_LANES; t-- > 0;)
		leafsum_chain(w, t);
	w->lane[0] += standin_fault("bad-code");
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *code,
				enum cudaJitOption *jit, void **jit_values,
				unsigned njit, enum cudaLibraryOption *options,
				void **values, unsigned n)
{
	(void)jit, (void)jit_values, (void)njit;
	(void)options, (void)values, (void)n;
	REFUSE_IF_STUCK;
	if (standin_fault("no-code") || !strstr(code, ".visible .entry"))
		return cudaErrorInvalidPtx;
	*out = calloc(1, 1);
	return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t lib)
{
	free(lib);
	return cudaSuccess;
}

static const struct {
	const char *name;
	void (*fn)(const struct leafsum_work *w);
} kernels[] = { { "leafsum_sums", sums }, { "leafsum_chains", chains } };

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t lib,
				 const char *name)
{
	(void)lib;
	for (size_t i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (strcmp(kernels[i].name, name) == 0) {
			*out = (cudaKernel_t)(uintptr_t)&kernels[i];
			return cudaSuccess;
		}
	return cudaErrorSymbolNotFound;
}

static void launch(void *arg)
{
	struct launch *l = arg;

	l->fn(&l->w);
	free(l);
}

cudaError_t cudaLaunchKernel(const void *fn, dim3 grid, dim3 block, void **args,
			     size_t shared, cudaStream_t s)
{
	struct launch *l = calloc(1, sizeof(*l));

	(void)shared;
	REFUSE_IF_STUCK;
	if (grid.x == 0 || grid.y == 0 || block.x == 0 || block.x > 1024)
		return cudaErrorInvalidConfiguration;
	memcpy(&l->fn, (const char *)fn + sizeof(char *), sizeof(l->fn));
	memcpy(&l->w, args[0], sizeof(l->w));
	standin_queue(s, launch, l);
	return cudaSuccess;
}

/* ---- handles: who has it finds the memory through /proc ---- */

struct handle {
	pid_t pid;
	int fd;
	size_t n;
	unsigned char uuid[16];
};

_Static_assert(sizeof(struct handle) <= CUDA_IPC_HANDLE_SIZE, "it fits");

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p)
{
	struct map *m = find_map(p);
	struct handle h = { .pid = getpid() };

	if (standin_fault("no-ipc") || !m || m->is_import)
		return cudaErrorInvalidValue;
	h.fd = m->fd;
	h.n = m->n;
	standin_uuid(h.uuid);
	memset(out, 0, sizeof(*out));
	memcpy(out, &h, sizeof(h));
	return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle,
				 unsigned flags)
{
	unsigned char uuid[16];
	struct handle h;
	char path[64];
	FILE *f;
	int fd;

	memcpy(&h, &handle, sizeof(h));
	standin_uuid(uuid);
	if (h.pid == getpid())
		return cudaErrorInvalidDevice;
	if (memcmp(uuid, h.uuid, sizeof(uuid)) != 0 &&
	    (!(flags & cudaIpcMemLazyEnablePeerAccess) ||
	     standin_fault("no-peer")))
		return cudaErrorPeerAccessUnsupported;
	if (standin_fault("no-map"))
		return cudaErrorMapBufferObjectFailed;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
	f = fopen(path, "r+e");
	if (!f)
		return cudaErrorMapBufferObjectFailed;
	fd = dup(fileno(f));
	fclose(f);
	return add_map(out, h.n, fd, true, h.uuid);
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
	struct map *m = find_map(p);

	return m && m->is_import ? drop_map(p) : cudaErrorInvalidValue;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out,
				     const void *p)
{
	const struct map *m = find_map(p);

	*out = (struct cudaPointerAttributes){ .device = -1 };
	if (m) {
		out->type = cudaMemoryTypeDevice;
		out->device = standin_device(m->uuid);
	}
	return cudaSuccess;
}

/* ---- what leads to the driver ---- */

static int address_range(unsigned long long *base, size_t *n,
			 unsigned long long p)
{
	const struct map *m = find_map((const void *)(uintptr_t)p);

	if (!m)
		return 1;
	*base = (uintptr_t)m->p;
	*n = m->n;
	return 0;
}

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **fn,
				 unsigned version, unsigned long long flags,
				 enum cudaDriverEntryPointQueryResult *found)
{
	int (*range)(unsigned long long *, size_t *, unsigned long long) =
		address_range;

	(void)version;
	(void)flags;
	*fn = NULL;
	*found = cudaDriverEntryPointSymbolNotFound;
	if (strcmp(symbol, "cuMemGetAddressRange") != 0)
		return cudaSuccess;
	memcpy(fn, &range, sizeof(*fn));
	*found = cudaDriverEntryPointSuccess;
	return cudaSuccess;
}

__attribute__((destructor)) static void say_open(void)
{
	unsigned n = 0;

	for (size_t i = 0; i < MAPS_MAX; i++)
		n += map[i].p && map[i].is_import;
	standin_log("open", n, 0);
	if (n > 0)
		fprintf(stderr,
			"stand-in libcudart.so.13: %u handles are "
			"still open\n",
			n);
}
