#include "pipes/move_slot_part.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/watchdog.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define CODE "weir-leafsum.ptx" /* beside this program */
#define CODE_MAX ((size_t)1 << 20)
#define RUNS_MAX 1024u		       /* at once */
#define BLOCKS_MAX ((uint64_t)1 << 20) /* of them: 64 MiB of sums */
#define WIDTH_MAX 512u
#define LANES_BYTES (LEAFSUM_LANES * sizeof(uint64_t))
#define CHECKED 5000u /* bytes, of which the digest is known */

static_assert(DIGEST_SECRET == LEAFSUM_SECRET, "one secret");
static_assert(DIGEST_SECRET + RUNS_MAX * sizeof(struct leafsum_run) <=
		      MOVE_SLOT_CHUNK,
	      "what goes there fits into a chunk");
static_assert(RUNS_MAX * LANES_BYTES <= MOVE_SLOT_CHUNK, "what comes as well");

/* ---- runs ---- */

static uint64_t blocks_of(const struct leafsum_run *run, uint32_t n)
{
	return run[n - 1].first + leafsum_blocks(run[n - 1].n);
}

/* Of the longest. */
static unsigned width_of(const struct leafsum_run *run, uint32_t n)
{
	uint64_t most = 0, width;

	for (uint32_t i = 0; i < n; i++)
		if (leafsum_blocks(run[i].n) > most)
			most = leafsum_blocks(run[i].n);
	width = (most * LEAFSUM_LANES + GPU_THREADS - 1) / GPU_THREADS;
	return width > WIDTH_MAX ? WIDTH_MAX : (unsigned)width;
}

static unsigned chains_width(uint32_t n)
{
	return (n * LEAFSUM_LANES + GPU_THREADS - 1) / GPU_THREADS;
}

/* On the device: secret, runs, lanes, sums.  The lanes end in the chunk. */
static int queue(const struct hasher *h, struct chunk *c,
		 const struct leafsum_run *run, uint32_t n, char *p)
{
	size_t there = LEAFSUM_SECRET + n * sizeof(*run);
	struct leafsum_work w = {
		.secret = (unsigned char *)p,
		.run = (struct leafsum_run *)(p + LEAFSUM_SECRET),
		.lane = (uint64_t *)(p + there),
		.sum = (uint64_t *)(p + there + n * LANES_BYTES),
		.n = n,
	};
	int rc;

	memcpy(c->p, h->secret, LEAFSUM_SECRET);
	memcpy(c->p + LEAFSUM_SECRET, run, n * sizeof(*run));
	rc = gpu_copy(c->stream, p, c->p, there);
	if (rc == 0)
		rc = gpu_run(c->stream, h->sums, width_of(run, n), n, &w);
	if (rc == 0)
		rc = gpu_run(c->stream, h->chains, chains_width(n), 1, &w);
	if (rc == 0)
		rc = gpu_copy(c->stream, c->p, w.lane, n * LANES_BYTES);
	return rc == 0 ? gpu_stream_wait(c->stream) : rc;
}

/* -E_NOMEM: no room for the sums.  Under the caller's watchdog. */
static int hash_runs(const struct hasher *h, struct chunk *c,
		     const struct leafsum_run *run, uint32_t n, struct buf *out)
{
	size_t need = LEAFSUM_SECRET + n * (sizeof(*run) + LANES_BYTES) +
		      (size_t)blocks_of(run, n) * LANES_BYTES;
	struct digest d;
	void *p;
	int rc;

	rc = gpu_alloc(&p, need);
	if (rc == 0) {
		rc = queue(h, c, run, n, p);
		gpu_free(p);
	}
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		leafsum_end((uint64_t *)(c->p + i * LANES_BYTES), run[i].n,
			    h->secret, &d);
		buf_add(out, &d, sizeof(d));
	}
	return rc;
}

/* ---- whether it can be done ---- */

static int load_code(struct hasher *h, const char *text)
{
	int rc = gpu_code_load(&h->code, text);

	if (rc == 0)
		rc = gpu_function(&h->sums, h->code, "leafsum_sums");
	if (rc == 0)
		rc = gpu_function(&h->chains, h->code, "leafsum_chains");
	return rc;
}

/* Code is made elsewhere, and by another compiler: it has to agree once with
 * what hashes the same bytes here. */
static int check_code(const struct hasher *h, struct chunk *c)
{
	struct leafsum_run run = { .n = CHECKED };
	struct digest want;
	struct buf got = { 0 };
	void *p;
	int rc = gpu_alloc(&p, CHECKED);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < CHECKED; i++)
		c->p[i] = (char)(i * 31 >> 3);
	digest_of(c->p, CHECKED, &want);
	run.p = p;
	rc = gpu_copy(c->stream, p, c->p, CHECKED);
	if (rc == 0)
		rc = gpu_stream_wait(c->stream);
	if (rc == 0)
		rc = hash_runs(h, c, &run, 1, &got);
	if (rc == 0 && memcmp(got.p, &want, sizeof(want)) != 0)
		rc = log_error(E_UNAVAIL, "it gives another digest");
	buf_release(&got);
	gpu_free(p);
	return rc;
}

void hasher_close(struct hasher *h)
{
	gpu_code_free(h->code);
	*h = (struct hasher){ 0 };
}

void hasher_open(struct hasher *h, struct chunk *c)
{
	char *path = proc_beside(CODE);
	struct buf text = { 0 };
	int was = log_quiet_thread(1);
	int rc = io_read_file(AT_FDCWD, path, CODE_MAX, &text);

	digest_secret(h->secret);
	buf_add(&text, "", 1);
	watchdog_set("the code for the device", MOVE_SLOT_CALL_MS);
	if (rc >= 0)
		rc = load_code(h, text.p);
	if (rc >= 0)
		rc = check_code(h, c);
	log_quiet_thread(was);
	if (rc < 0)
		hasher_close(h);
	watchdog_clear();
	if (rc < 0 && rc != -E_NOINPUT)
		log_warn("%s: %s: bytes are copied back to be hashed", path,
			 log_cause());
	buf_release(&text);
	free(path);
}

/* ---- a load ---- */

static bool is_of_use(const struct load *l, const struct extent *e, uint64_t n)
{
	return !l->is_made && e->is_on_device && n > LEAFSUM_MIN;
}

uint64_t hasher_leaf(const struct load *l, const struct cursor *at)
{
	const struct extent *e = &l->extent[at->extent];
	uint64_t left = e->bytes - at->byte;
	uint64_t n = left < DIGEST_LEAF ? left : DIGEST_LEAF;

	return at->byte % DIGEST_LEAF == 0 && is_of_use(l, e, n) ? n : 0;
}

static void go_on(const struct load *l, struct cursor *at)
{
	const struct extent *e = &l->extent[at->extent];

	at->byte += DIGEST_LEAF;
	if (at->byte >= e->bytes)
		*at = (struct cursor){ at->extent + 1, 0 };
}

/* As many leaves as go at once. */
static uint32_t collect(struct load *l, struct leafsum_run *run)
{
	uint64_t blocks = 0;
	uint32_t n = 0;

	while (l->ahead.extent < l->nextents && n < RUNS_MAX) {
		const struct extent *e = &l->extent[l->ahead.extent];
		uint64_t bytes = hasher_leaf(l, &l->ahead);
		uint64_t more = bytes ? leafsum_blocks(bytes) : 0;

		if (blocks + more > BLOCKS_MAX)
			break;
		if (bytes)
			run[n++] = (struct leafsum_run){
				(unsigned char *)l->slot->memory + e->at +
					l->ahead.byte,
				bytes, blocks
			};
		blocks += more;
		go_on(l, &l->ahead);
	}
	return n;
}

int hasher_step(const struct hasher *h, struct load *l, struct chunk *c)
{
	struct leafsum_run run[RUNS_MAX];
	uint32_t n = h->code ? collect(l, run) : 0;
	int was, rc;

	if (n == 0)
		return 0;
	was = log_quiet_thread(1);
	watchdog_set("a hash on the device", MOVE_SLOT_CALL_MS);
	rc = hash_runs(h, c, run, n, &l->known);
	watchdog_clear();
	log_quiet_thread(was);
	if (rc < 0 && rc != -E_NOMEM)
		return log_error(-rc, "%s", log_cause());
	return rc == 0;
}
