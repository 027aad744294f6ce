/* cudart.c - a CUDA runtime without a device; see standin.h. */
#include "tests/standin/standin.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FAULTS_MAX 16
#define MAPS_MAX 4096
#define VERSION 13000

/* ---- what the environment wants ---- */

uint64_t standin_number(const char *variable, uint64_t otherwise)
{
	const char *text = getenv(variable);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

void standin_nap(uint64_t us)
{
	struct timespec t = { (time_t)(us / 1000000),
			      (long)(us % 1000000) * 1000 };

	nanosleep(&t, NULL);
}

static struct {
	const char *name;
	unsigned seen;
} fault[FAULTS_MAX];
static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned times(const char *name)
{
	unsigned i = 0;

	pthread_mutex_lock(&fault_lock);
	while (i < FAULTS_MAX - 1 && fault[i].name &&
	       strcmp(fault[i].name, name) != 0)
		i++;
	fault[i].name = name;
	i = ++fault[i].seen;
	pthread_mutex_unlock(&fault_lock);
	return i;
}

bool standin_fault(const char *name)
{
	const char *list = getenv("WEIR_STANDIN_FAULT");
	size_t n = strlen(name);

	while (list && *list) {
		size_t len = strcspn(list, ",");

		if (strncmp(list, name, n) == 0 &&
		    (n == len || list[n] == '=')) {
			unsigned from = n == len ? 1 : atoi(list + n + 1);

			return times(name) >= from;
		}
		list += len + (list[len] == ',');
	}
	return false;
}

__attribute__((constructor)) static void say(void)
{
	fprintf(stderr, "stand-in libcudart.so.13: no device is used\n");
}

/* ---- streams ---- */

struct op {
	struct op *next;
	void (*fn)(void *);
	void *arg;
};

struct CUstream_st {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct op *first, **last;
	uint64_t given, done, random;
	bool ends;
};

static atomic_uint nstreams;

static uint64_t draw(struct CUstream_st *s)
{
	s->random = s->random * 6364136223846793005u + 1442695040888963407u;
	return s->random >> 33;
}

static void pause_a_bit(struct CUstream_st *s)
{
	uint64_t most = standin_number("WEIR_STANDIN_PAUSE_US", 300);

	if (most > 0 && draw(s) % 3 == 0)
		standin_nap(draw(s) % most);
}

static struct op *take(struct CUstream_st *s)
{
	struct op *op;

	pthread_mutex_lock(&s->lock);
	while (!s->first && !s->ends)
		pthread_cond_wait(&s->cond, &s->lock);
	op = s->first;
	if (op) {
		s->first = op->next;
		if (!s->first)
			s->last = &s->first;
	}
	pthread_mutex_unlock(&s->lock);
	return op;
}

static void *work(void *arg)
{
	struct CUstream_st *s = arg;
	struct op *op;

	while ((op = take(s))) {
		pause_a_bit(s);
		op->fn(op->arg);
		free(op);
		pthread_mutex_lock(&s->lock);
		s->done++;
		pthread_cond_broadcast(&s->cond);
		pthread_mutex_unlock(&s->lock);
	}
	return NULL;
}

void standin_queue(cudaStream_t s, void (*fn)(void *), void *arg)
{
	struct op *op = calloc(1, sizeof(*op));

	*op = (struct op){ NULL, fn, arg };
	pthread_mutex_lock(&s->lock);
	*s->last = op;
	s->last = &op->next;
	s->given++;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
}

static bool is_stuck(void)
{
	return standin_fault("sticky");
}

#define REFUSE_IF_STUCK                                 \
	do {                                            \
		if (is_stuck())                         \
			return cudaErrorIllegalAddress; \
	} while (0)

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));

	(void)flags;
	REFUSE_IF_STUCK;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	s->last = &s->first;
	s->random = standin_number("WEIR_STANDIN_SEED", 1) * 7919 +
		    atomic_fetch_add(&nstreams, 1);
	if (pthread_create(&s->thread, NULL, work, s) != 0)
		return cudaErrorMemoryAllocation;
	*out = s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	uint64_t upto;

	pthread_mutex_lock(&s->lock);
	upto = s->given;
	while (s->done < upto)
		pthread_cond_wait(&s->cond, &s->lock);
	pthread_mutex_unlock(&s->lock);
	REFUSE_IF_STUCK;
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
	bool is_idle;

	REFUSE_IF_STUCK;
	pthread_mutex_lock(&s->lock);
	is_idle = s->done == s->given;
	pthread_mutex_unlock(&s->lock);
	return is_idle ? cudaSuccess : cudaErrorNotReady;
}

/* What was queued is carried out first, as the real one promises. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	pthread_mutex_lock(&s->lock);
	s->ends = true;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	free(s);
	return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
	REFUSE_IF_STUCK;
	standin_queue(s, fn, arg);
	return cudaSuccess;
}

/* ---- events: one is a point in a stream ---- */

struct CUevent_st {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	uint64_t recorded, reached;
	unsigned users;
	bool is_gone;
};

struct wait {
	cudaEvent_t e;
	uint64_t upto;
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
	(void)flags;
	REFUSE_IF_STUCK;
	*out = calloc(1, sizeof(**out));
	pthread_mutex_init(&(*out)->lock, NULL);
	pthread_cond_init(&(*out)->cond, NULL);
	return cudaSuccess;
}

/* With the lock held, which it lets go of. */
static void leave_event(cudaEvent_t e)
{
	bool is_last = e->is_gone && e->users == 0;

	pthread_mutex_unlock(&e->lock);
	if (is_last)
		free(e);
}

static void reach(void *arg)
{
	cudaEvent_t e = arg;

	pthread_mutex_lock(&e->lock);
	e->reached++;
	e->users--;
	pthread_cond_broadcast(&e->cond);
	leave_event(e);
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
	REFUSE_IF_STUCK;
	pthread_mutex_lock(&e->lock);
	e->recorded++;
	e->users++;
	pthread_mutex_unlock(&e->lock);
	standin_queue(s, reach, e);
	return cudaSuccess;
}

static void await(void *arg)
{
	struct wait *w = arg;
	cudaEvent_t e = w->e;

	pthread_mutex_lock(&e->lock);
	while (e->reached < w->upto)
		pthread_cond_wait(&e->cond, &e->lock);
	e->users--;
	leave_event(e);
	free(w);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
	struct wait *w;

	(void)flags;
	REFUSE_IF_STUCK;
	w = calloc(1, sizeof(*w));
	pthread_mutex_lock(&e->lock);
	*w = (struct wait){ e, e->recorded };
	e->users++;
	pthread_mutex_unlock(&e->lock);
	standin_queue(s, await, w);
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	pthread_mutex_lock(&e->lock);
	e->is_gone = true;
	leave_event(e);
	return cudaSuccess;
}

/* ---- devices ---- */

static _Thread_local int in_use;

/* The machine's number of the n-th visible device; -1: there is none. */
static int visible(int n)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	int all = (int)standin_number("WEIR_STANDIN_DEVICES", 8);

	if (standin_fault("no-device"))
		return -1;
	if (!list)
		return n < all ? n : -1;
	for (int i = 0; *list; i++) {
		int device = (int)strtol(list, (char **)&list, 10);

		if (i == n)
			return device < all ? device : -1;
		list += *list == ',';
	}
	return -1;
}

cudaError_t cudaGetDeviceCount(int *n)
{
	int count = 0;

	while (visible(count) >= 0)
		count++;
	/* As the real one without a driver: *n stays what it was. */
	if (count == 0)
		return cudaErrorInsufficientDriver;
	*n = count;
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
	if (visible(device) < 0)
		return cudaErrorInvalidDevice;
	in_use = device;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
	*device = in_use;
	return cudaSuccess;
}

static void uuid_of(int device, unsigned char uuid[16])
{
	memcpy(uuid, "weir-standin-gpu", 16);
	uuid[15] = (unsigned char)visible(device);
}

void standin_uuid(unsigned char uuid[16])
{
	uuid_of(in_use, uuid);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	if (visible(device) < 0)
		return cudaErrorInvalidDevice;
	*p = (struct cudaDeviceProp){ .major = 7, .minor = 5 };
	snprintf(p->name, sizeof(p->name), "stand-in %d", visible(device));
	uuid_of(device, (unsigned char *)p->uuid.bytes);
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *v)
{
	*v = VERSION;
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *v)
{
	*v = VERSION;
	return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
	*can = a != b;
	return cudaSuccess;
}

/* ---- memory ---- */

struct map {
	void *p;
	size_t n;
	int fd;
	bool is_import;
};

static struct map map[MAPS_MAX];
static size_t in_maps;
static pthread_mutex_t map_lock = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t add_map(void **out, size_t n, int fd, bool is_import)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	size_t i = 0;

	if (p == MAP_FAILED)
		return cudaErrorMemoryAllocation;
	pthread_mutex_lock(&map_lock);
	while (map[i].p)
		i++;
	map[i] = (struct map){ p, n, fd, is_import };
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

static size_t memory(void)
{
	return standin_number("WEIR_STANDIN_MEMORY", 1u << 30);
}

cudaError_t cudaMalloc(void **out, size_t n)
{
	int fd;

	REFUSE_IF_STUCK;
	if (standin_fault("oom") || n > memory() || in_maps > memory() - n)
		return cudaErrorMemoryAllocation;
	fd = memfd_create("weir-standin", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)n) < 0)
		return cudaErrorMemoryAllocation;
	return add_map(out, n, fd, false);
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

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n,
			    enum cudaMemcpyKind kind, cudaStream_t s)
{
	struct copy *c = calloc(1, sizeof(*c));

	(void)kind;
	REFUSE_IF_STUCK;
	*c = (struct copy){ to, from, n };
	standin_queue(s, standin_fault("bad-copy") ? damage : carry_out, c);
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n,
		       enum cudaMemcpyKind kind)
{
	(void)kind;
	REFUSE_IF_STUCK;
	memcpy(to, from, n);
	return cudaSuccess;
}

/* Streams of ours are waited for one by one. */
cudaError_t cudaDeviceSynchronize(void)
{
	REFUSE_IF_STUCK;
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

	(void)flags;
	memcpy(&h, &handle, sizeof(h));
	standin_uuid(uuid);
	if (h.pid == getpid() || memcmp(uuid, h.uuid, sizeof(uuid)) != 0)
		return cudaErrorInvalidDevice;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
	f = fopen(path, "r+e");
	if (!f)
		return cudaErrorMapBufferObjectFailed;
	fd = dup(fileno(f));
	fclose(f);
	return add_map(out, h.n, fd, true);
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
	struct map *m = find_map(p);

	return m && m->is_import ? drop_map(p) : cudaErrorInvalidValue;
}

/* ---- words ---- */

const char *cudaGetErrorString(cudaError_t e)
{
	switch (e) {
	case cudaSuccess:
		return "no error";
	case cudaErrorMemoryAllocation:
		return "out of memory";
	case cudaErrorInsufficientDriver:
		return "CUDA driver version is insufficient for CUDA runtime "
		       "version";
	case cudaErrorInvalidDevice:
		return "invalid device ordinal";
	case cudaErrorIllegalAddress:
		return "an illegal memory access was encountered";
	case cudaErrorNotReady:
		return "device not ready";
	default:
		return "invalid argument";
	}
}

cudaError_t cudaGetLastError(void)
{
	return cudaSuccess;
}
