/* cudart.c - a CUDA runtime without a device; see standin.h. */
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAULTS_MAX 16
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

void standin_log(const char *what, uint64_t a, uint64_t b)
{
	const char *path = getenv("WEIR_STANDIN_LOG");
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %llu %llu\n", what, (unsigned long long)a,
		(unsigned long long)b);
	fclose(f);
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

int standin_device(const unsigned char uuid[16])
{
	unsigned char its[16];

	for (int i = 0; visible(i) >= 0; i++) {
		uuid_of(i, its);
		if (memcmp(its, uuid, sizeof(its)) == 0)
			return i;
	}
	return -1;
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
	*can = a != b && !standin_fault("no-peer");
	return cudaSuccess;
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
