/*
 * Part of an engine's process, not of weir's own programs: nothing here logs,
 * ends the process or needs more than libcudart.  What is read of the page and
 * of the texts was written by weir-move-slot (common/devpage.h).
 */
#include "weir-client.h"

#include "common/devpage.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TRIES 1000   /* to read a page that is not being written */
#define LOOK_MS 1000 /* between two looks at whether the engine lives */
#define DIMS_MAX 64
#define TEXT_MAX ((off_t)1 << 32)

struct weir_client {
	char *store;
	int fd, device;
	const struct devpage *page;
	char error[512];
};

struct view {
	struct weir_view v; /* first */
	void *memory;
	int lock_fd, device;
	uint32_t slot;
	char *text;
	struct weir_tensor *tensor;
	uint64_t *shape;
	size_t nshape;
};

__attribute__((format(printf, 3, 4))) static int
fail(struct weir_client *c, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->error, sizeof(c->error), fmt, ap);
	va_end(ap);
	return -code;
}

static int cuda_failed(struct weir_client *c, const char *call, cudaError_t e)
{
	return fail(c, EIO, "%s: %s", call, cudaGetErrorString(e));
}

const char *weir_error(const struct weir_client *c)
{
	return c ? c->error : "out of memory";
}

/* ---- the page ---- */

/* A copy that nobody wrote meanwhile. */
static int read_page(struct weir_client *c, struct devpage *out)
{
	for (int i = 0; i < TRIES; i++) {
		uint32_t word = atomic_load(&c->page->word);

		memcpy(out, (const void *)c->page, sizeof(*out));
		atomic_thread_fence(memory_order_acquire);
		if (word % 2 == 0 && atomic_load(&c->page->word) == word) {
			atomic_init(&out->word, word);
			return 0;
		}
		sched_yield();
	}
	return fail(c, EAGAIN, "%s: weir-engine ended while it published",
		    c->store);
}

static int lock_slot(int fd, short type, off_t byte)
{
	struct flock f = { .l_type = type,
			   .l_whence = SEEK_SET,
			   .l_start = byte,
			   .l_len = 1 };

	return fcntl(fd, F_OFD_SETLK, &f);
}

int weir_is_live(struct weir_client *c)
{
	struct flock f = { .l_type = F_RDLCK,
			   .l_whence = SEEK_SET,
			   .l_start = DEVPAGE_OWNER,
			   .l_len = 1 };

	return fcntl(c->fd, F_OFD_GETLK, &f) == 0 && f.l_type != F_UNLCK;
}

static int open_page(struct weir_client *c, struct devpage *out)
{
	char path[PATH_MAX];
	struct stat st;
	void *p;
	int rc;

	snprintf(path, sizeof(path), "%s/" DEVPAGE_DIR "/page", c->store);
	c->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (c->fd < 0 || fstat(c->fd, &st) < 0)
		return fail(c, errno,
			    "%s: %s (is it the store of a "
			    "weir-engine --device?)",
			    path, strerror(errno));
	if (st.st_size < (off_t)sizeof(*c->page))
		return fail(c, ENOENT, "%s: weir-engine has just begun", path);
	p = mmap(NULL, sizeof(*c->page), PROT_READ, MAP_SHARED, c->fd, 0);
	if (p == MAP_FAILED)
		return fail(c, errno, "%s: mmap: %s", path, strerror(errno));
	c->page = p;
	rc = read_page(c, out);
	if (rc < 0)
		return rc;
	if (atomic_load(&out->word) == 0)
		return fail(c, ENOENT, "%s: weir-engine has just begun", path);
	if (memcmp(out->magic, DEVPAGE_MAGIC, sizeof(out->magic)) ||
	    out->format != DEVPAGE_FORMAT)
		return fail(c, EPROTO, "%s: of another build of weir", path);
	return 0;
}

/* ---- devices, by UUID ---- */

static void uuid_text(const unsigned char u[16], char text[41])
{
	char *at = text + sprintf(text, "GPU-");

	for (int i = 0; i < 16; i++)
		at += sprintf(at, "%s%02x",
			      i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
			      u[i]);
}

static int device_of(const unsigned char uuid[16])
{
	struct cudaDeviceProp p;
	int n = 0;

	if (cudaGetDeviceCount(&n) != cudaSuccess)
		return -1;
	for (int i = 0; i < n; i++)
		if (cudaGetDeviceProperties(&p, i) == cudaSuccess &&
		    memcmp(p.uuid.bytes, uuid, 16) == 0)
			return i;
	return -1;
}

static int find_device(struct weir_client *c, const unsigned char uuid[16],
		       int wanted)
{
	struct cudaDeviceProp p;
	char has[41], other[41] = "none";

	uuid_text(uuid, has);
	c->device = device_of(uuid);
	if (c->device < 0)
		return fail(c, ENODEV,
			    "the weights are on %s, which this process does "
			    "not see",
			    has);
	if (wanted < 0 || wanted == c->device)
		return 0;
	if (cudaGetDeviceProperties(&p, wanted) == cudaSuccess)
		uuid_text((unsigned char *)p.uuid.bytes, other);
	return fail(c, ENODEV, "the weights are on %s, device %d here is %s",
		    has, wanted, other);
}

int weir_open(struct weir_client **out, const char *store, int device)
{
	struct weir_client *c = calloc(1, sizeof(*c));
	struct devpage p;
	int rc;

	*out = c;
	if (!c)
		return -ENOMEM;
	c->fd = -1;
	c->store = strdup(store);
	if (!c->store)
		return fail(c, ENOMEM, "out of memory");
	rc = open_page(c, &p);
	return rc < 0 ? rc : find_device(c, p.uuid, device);
}

void weir_close(struct weir_client *c)
{
	if (!c)
		return;
	if (c->page)
		munmap((void *)c->page, sizeof(*c->page));
	if (c->fd >= 0)
		close(c->fd);
	free(c->store);
	free(c);
}

uint64_t weir_version(struct weir_client *c)
{
	struct devpage p;

	return weir_is_live(c) && read_page(c, &p) == 0 ? p.version : 0;
}

/* ---- waiting ---- */

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

typedef bool enough_fn(struct weir_client *c, uint32_t word);

static bool is_published(struct weir_client *c, uint32_t word)
{
	struct devpage p;

	return weir_is_live(c) && read_page(c, &p) == 0 && p.version &&
	       atomic_load(&p.word) != word;
}

static bool is_withdrawn(struct weir_client *c, uint32_t word)
{
	uint32_t now = atomic_load(&c->page->word);

	return (now % 2 == 0 && now != word) || !weir_is_live(c);
}

/* Nobody wakes us when the engine is killed. */
static void nap(struct weir_client *c, uint32_t now, int64_t ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	syscall(SYS_futex, &c->page->word, FUTEX_WAIT, now, &t, NULL, 0);
}

static int wait_for(struct weir_client *c, uint32_t word, int ms,
		    enough_fn *is_enough)
{
	int64_t end = now_ms() + ms;

	for (;;) {
		uint32_t now = atomic_load(&c->page->word);
		int64_t left = ms < 0 ? LOOK_MS : end - now_ms();

		if (is_enough(c, word))
			return 0;
		if (left <= 0)
			return fail(c, ETIMEDOUT,
				    "no other version within %d ms", ms);
		nap(c, now, left < LOOK_MS ? left : LOOK_MS);
	}
}

int weir_wait(struct weir_client *c, uint32_t word, int ms)
{
	return wait_for(c, word, ms, is_published);
}

int weir_wait_change(struct weir_client *c, uint32_t word, int ms)
{
	return wait_for(c, word, ms, is_withdrawn);
}

/* ---- what is in a slot ---- */

static char *read_text(struct weir_client *c, uint32_t slot, size_t *n)
{
	char path[PATH_MAX], *text = NULL;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/" DEVPAGE_DIR "/%u", c->store, slot);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
	    st.st_size < TEXT_MAX)
		text = malloc((size_t)st.st_size);
	*n = 0;
	while (text && *n < (size_t)st.st_size) {
		ssize_t got = read(fd, text + *n, (size_t)st.st_size - *n);

		if (got <= 0)
			break;
		*n += (size_t)got;
	}
	if (fd >= 0)
		close(fd);
	/* Terminated, so that its strings can be read as such. */
	if (text && (*n == 0 || text[*n - 1])) {
		free(text);
		text = NULL;
	}
	return text;
}

/* "2,3" or "-" into x->shape; *at is what follows.  False: neither. */
static bool take_shape(struct view *x, struct weir_tensor *t, char **at)
{
	char *p = *at;

	t->shape = x->shape + x->nshape;
	*at = p + 1;
	if (*p == '-')
		return true;
	for (;; p++) {
		if (*p < '0' || *p > '9' || t->dims == DIMS_MAX)
			return false;
		x->shape[x->nshape++] = strtoull(p, &p, 10);
		t->dims++;
		*at = p;
		if (*p != ',')
			return true;
	}
}

static bool take_tensor(struct view *x, struct weir_tensor *t, char *p,
			uint64_t bytes)
{
	uint64_t at = strtoull(p, &p, 10);

	t->bytes = strtoull(p, &p, 10);
	if (*p++ != ' ' || at > bytes || t->bytes > bytes - at)
		return false;
	t->data = (char *)x->memory + at;
	t->dtype = p;
	p = strchr(p, ' ');
	if (!p)
		return false;
	*p++ = '\0';
	if (!take_shape(x, t, &p) || *p != ' ')
		return false;
	t->name = p + 1;
	return true;
}

static int compare(const void *a, const void *b)
{
	return strcmp(((const struct weir_tensor *)a)->name,
		      ((const struct weir_tensor *)b)->name);
}

static size_t count(const char *p, size_t n, char what)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		k += p[i] == what;
	return k;
}

static int parse(struct weir_client *c, struct view *x, size_t n, uint64_t room)
{
	unsigned long long version, bytes;
	char *p = x->text, *end = p + n, *next;
	unsigned count_of;

	if (sscanf(p, "1 %llu %u %llu", &version, &count_of, &bytes) != 3 ||
	    version != x->v.version || bytes != room ||
	    count(p, n, '\0') != count_of + 1u)
		return fail(c, EPROTO, "%s: what is in the slot cannot be read",
			    c->store);
	x->tensor = calloc(count_of + 1u, sizeof(*x->tensor));
	x->shape = calloc(count(p, n, ',') + count_of + 1u, sizeof(*x->shape));
	if (!x->tensor || !x->shape)
		return fail(c, ENOMEM, "out of memory");
	for (p += strlen(p) + 1; p < end; p = next) {
		next = p + strlen(p) + 1;
		if (!take_tensor(x, &x->tensor[x->v.ntensors++], p, bytes))
			return fail(c, EPROTO, "%s: \"%s\" is no tensor",
				    c->store, p);
	}
	qsort(x->tensor, x->v.ntensors, sizeof(*x->tensor), compare);
	x->v.tensor = x->tensor;
	return 0;
}

static int import(struct weir_client *c, struct view *x,
		  const struct devpage *p)
{
	cudaIpcMemHandle_t h;
	cudaError_t e = cudaSetDevice(c->device);

	_Static_assert(sizeof(h) == sizeof(p->handle), "a handle is as long");
	if (e != cudaSuccess)
		return cuda_failed(c, "cudaSetDevice", e);
	memcpy(&h, p->handle, sizeof(h));
	e = cudaIpcOpenMemHandle(&x->memory, h, cudaIpcMemLazyEnablePeerAccess);
	if (e == cudaSuccess)
		return 0;
	x->memory = NULL;
	return fail(c, EIO,
		    "cudaIpcOpenMemHandle: %s (another container's IPC or PID "
		    "namespace, or ptrace_scope, may be why)",
		    cudaGetErrorString(e));
}

/* The slot that the page names, held: it cannot change from then on. */
static int hold(struct weir_client *c, struct view *x, struct devpage *p)
{
	char path[PATH_MAX];
	int rc;

	snprintf(path, sizeof(path), "%s/" DEVPAGE_DIR "/page", c->store);
	x->lock_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (x->lock_fd < 0)
		return fail(c, errno, "%s: %s", path, strerror(errno));
	for (int i = 0; i < TRIES; i++) {
		rc = read_page(c, p);
		if (rc < 0)
			return rc;
		if (!p->version || !weir_is_live(c))
			return fail(c, EAGAIN, "%s: no version is published",
				    c->store);
		if (lock_slot(x->lock_fd, F_RDLCK, DEVPAGE_SLOT + p->slot) ==
			    0 &&
		    atomic_load(&c->page->word) == atomic_load(&p->word))
			return 0;
		lock_slot(x->lock_fd, F_UNLCK, DEVPAGE_SLOT + p->slot);
		sched_yield();
	}
	return fail(c, EAGAIN, "%s: versions change too quickly", c->store);
}

static int take_slot(struct weir_client *c, struct view *x,
		     const struct devpage *p)
{
	size_t n;
	int rc;

	x->v.version = p->version;
	x->v.word = atomic_load(&p->word);
	x->v.device = x->device = c->device;
	x->slot = p->slot;
	if (asprintf(&x->v.directory, "%s/versions/%06llu", c->store,
		     (unsigned long long)p->version) < 0)
		x->v.directory = NULL;
	x->text = read_text(c, p->slot, &n);
	if (!x->text || !x->v.directory)
		return fail(c, EIO, "%s: what is in the slot cannot be read",
			    c->store);
	rc = import(c, x, p);
	return rc < 0 ? rc : parse(c, x, n, p->bytes);
}

/* The lock holds off the engine whose memory it is, not its end, nor the
 * engine's next life. */
static int fill(struct weir_client *c, struct view *x)
{
	struct devpage p;
	int rc = hold(c, x, &p);

	if (rc < 0)
		return rc;
	rc = take_slot(c, x, &p);
	if (rc < 0 && is_withdrawn(c, x->v.word))
		return fail(c, EAGAIN, "%s: weir-engine ended meanwhile",
			    c->store);
	return rc;
}

int weir_map(struct weir_client *c, struct weir_view **out)
{
	struct view *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return fail(c, ENOMEM, "out of memory");
	x->lock_fd = -1;
	rc = fill(c, x);
	if (rc < 0)
		weir_release(&x->v);
	else
		*out = &x->v;
	return rc;
}

/* Closed before it is let go of: it may be written into then. */
void weir_release(struct weir_view *v)
{
	struct view *x = (struct view *)v;

	if (!x)
		return;
	if (x->memory) {
		cudaSetDevice(x->device);
		cudaDeviceSynchronize();
		cudaIpcCloseMemHandle(x->memory);
	}
	/* A child that was forked meanwhile has the descriptor as well. */
	if (x->lock_fd >= 0) {
		lock_slot(x->lock_fd, F_UNLCK, DEVPAGE_SLOT + x->slot);
		close(x->lock_fd);
	}
	free(x->v.directory);
	free(x->tensor);
	free(x->shape);
	free(x->text);
	free(x);
}

const struct weir_tensor *weir_find(const struct weir_view *v, const char *name)
{
	const struct weir_tensor key = { .name = name };

	return bsearch(&key, v->tensor, v->ntensors, sizeof(key), compare);
}
