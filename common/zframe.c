#include "zframe.h"
#include "err.h"
#include "lane.h"
#include "log.h"

#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_registerSequenceProducer() */
#include <string.h>
#include <zstd.h>

#define SKIP_STEP 65536u
#define RUN_LEAST 8 /* zeros that are worth a sequence */
/* Of a block, zstd finds what else repeats where fewer are in runs. */
#define ZEROS_LEAST(n) ((n) / 4 * 3)
/* What is packed, and later unpacked, then stays in the L2 cache meanwhile. */
#define PACK_WINDOW_LOG 17

/* ---- packing ---- */

/* Only what cannot be: no memory, or a caller who miscounted. */
static size_t must(size_t rc)
{
	if (ZSTD_isError(rc))
		BUG("zstd: %s", ZSTD_getErrorName(rc));
	return rc;
}

#if ZSTD_VERSION_NUMBER >= 10504

/* Runs of zeros so far, as zstd takes them. */
struct runs {
	ZSTD_Sequence *out;
	size_t n;
	size_t done;  /* bytes that these say */
	size_t zeros; /* that are in them */
};

/* Each repeats its first zero.  One that is too short is written as well, and
 * overwritten: which they are cannot be guessed. */
static inline void add_run(struct runs *r, size_t start, size_t end)
{
	bool counts = end - start >= RUN_LEAST;

	r->out[r->n] = (ZSTD_Sequence){
		.offset = 1,
		.litLength = (unsigned)(start + 1 - r->done),
		.matchLength = (unsigned)(end - start - 1),
	};
	r->n += counts;
	r->zeros += counts ? end - start : 0;
	r->done = counts ? end : r->done;
}

static uint64_t set_bytes(const uint8_t *p, size_t n)
{
	uint8_t line[LINE] = { 0 };

	if (n >= LINE)
		return line_is_zero(p) ? 0 : line_set(p);
	memcpy(line, p, n);
	return line_set(line);
}

/* False: they are too few. */
static bool find_runs(struct runs *out, const uint8_t *p, size_t n)
{
	struct runs r = *out; /* which r.out cannot point into */
	size_t start = 0;     /* behind the last byte that is not 0 */

	for (size_t i = 0; i < n; i += LINE) {
		if (r.zeros + (n - start) < ZEROS_LEAST(n))
			return false;
		for (uint64_t m = set_bytes(p + i, n - i); m; m &= m - 1) {
			size_t at = i + (size_t)__builtin_ctzll(m);

			add_run(&r, start, at);
			start = at + 1;
		}
	}
	add_run(&r, start, n);
	*out = r;
	return r.zeros >= ZEROS_LEAST(n);
}

/* What is packed is mostly zeros.  No search for anything else, which is what
 * takes zstd most of its time. */
static size_t find_zeros(void *none, ZSTD_Sequence *out, size_t max,
			 const void *src, size_t n, const void *dict,
			 size_t dict_n, int level, size_t window)
{
	struct runs r = { .out = out };

	(void)none, (void)dict, (void)dict_n, (void)level, (void)window;
	/* Of one that counts not, and of the end. */
	if (max < n / RUN_LEAST + 2 || !find_runs(&r, src, n))
		return ZSTD_SEQUENCE_PRODUCER_ERROR;
	out[r.n++] = (ZSTD_Sequence){ .litLength = (unsigned)(n - r.done) };
	return r.n;
}

static void expect_zeros(ZSTD_CCtx *ctx)
{
	must(ZSTD_CCtx_setParameter(ctx, ZSTD_c_enableSeqProducerFallback, 1));
	must(ZSTD_CCtx_setParameter(ctx, ZSTD_c_searchForExternalRepcodes,
				    ZSTD_ps_enable));
	ZSTD_registerSequenceProducer(ctx, NULL, find_zeros);
}

#else

static void expect_zeros(ZSTD_CCtx *ctx)
{
	(void)ctx;
}

#endif

static ZSTD_CCtx *new_packer(void)
{
	ZSTD_CCtx *ctx = ZSTD_createCCtx();

	BUG_ON(!ctx);
	expect_zeros(ctx);
	return ctx;
}

void zpack_begin(struct zpack *z, int level, uint64_t total, struct buf *out)
{
	if (!z->ctx)
		z->ctx = new_packer();
	must(ZSTD_CCtx_reset(z->ctx, ZSTD_reset_session_only));
	must(ZSTD_CCtx_setParameter(z->ctx, ZSTD_c_compressionLevel, level));
	must(ZSTD_CCtx_setParameter(z->ctx, ZSTD_c_windowLog, PACK_WINDOW_LOG));
	must(ZSTD_CCtx_setPledgedSrcSize(z->ctx, total));
	z->out = out;
	z->failed = false;
}

static size_t step(struct zpack *z, ZSTD_inBuffer *in, ZSTD_EndDirective how)
{
	size_t room = ZSTD_CStreamOutSize(), left;
	ZSTD_outBuffer o = { buf_reserve(z->out, room), room, 0 };

	left = ZSTD_compressStream2(z->ctx, &o, in, how);
	z->failed = ZSTD_isError(left);
	z->out->n += z->failed ? 0 : o.pos;
	return z->failed ? 0 : left;
}

void zpack_add(struct zpack *z, const void *p, size_t n)
{
	ZSTD_inBuffer in = { p, n, 0 };

	while (!z->failed && in.pos < in.size)
		step(z, &in, ZSTD_e_continue);
}

int zpack_end(struct zpack *z)
{
	ZSTD_inBuffer in = { "", 0, 0 };

	while (!z->failed && step(z, &in, ZSTD_e_end) > 0)
		;
	return z->failed ? -E_DATA : 0;
}

void zpack_release(struct zpack *z)
{
	ZSTD_freeCCtx(z->ctx);
	*z = (struct zpack){ 0 };
}

/* ---- reading ---- */

static int refill(struct zread *z)
{
	z->at = 0;
	z->n = 0;
	return z->more(z->arg, &z->in, &z->n);
}

static int read_size(struct zread *z)
{
	unsigned long long total = ZSTD_getFrameContentSize(z->in, z->n);

	if (total == ZSTD_CONTENTSIZE_ERROR)
		return -E_DATA;
	z->total = total == ZSTD_CONTENTSIZE_UNKNOWN ? ZFRAME_UNKNOWN : total;
	return 0;
}

int zread_begin(struct zread *z, zread_fn *more, void *arg)
{
	static const unsigned char magic[] = { 0x28, 0xb5, 0x2f, 0xfd };
	int rc;

	if (!z->ctx)
		z->ctx = ZSTD_createDCtx();
	BUG_ON(!z->ctx);
	must(ZSTD_DCtx_reset(z->ctx, ZSTD_reset_session_only));
	must(ZSTD_DCtx_setParameter(z->ctx, ZSTD_d_windowLogMax,
				    ZFRAME_WINDOW_LOG));
	z->more = more;
	z->arg = arg;
	z->is_over = false;
	rc = refill(z);
	if (rc < 0)
		return rc;
	/* Skippable frames have another number. */
	if (z->n < sizeof magic || memcmp(z->in, magic, sizeof magic) != 0)
		return -E_DATA;
	return read_size(z);
}

/* Some progress, into p of n bytes (0: only to reach the frame's end). */
static int read_some(struct zread *z, void *p, size_t n, size_t *got)
{
	ZSTD_inBuffer in = { z->in, z->n, z->at };
	ZSTD_outBuffer o = { p, n, 0 };
	size_t left = ZSTD_decompressStream(z->ctx, &o, &in);
	bool stuck = in.pos == z->at && o.pos == 0;
	int rc;

	if (ZSTD_isError(left))
		return -E_DATA;
	z->at = in.pos;
	*got = o.pos;
	z->is_over = left == 0;
	if (!stuck || z->is_over)
		return 0;
	if (z->at < z->n) /* input and room, and nothing happens */
		return -E_DATA;
	rc = refill(z);
	return rc == 0 && z->n == 0 ? -E_DATA : rc;
}

int zread_get(struct zread *z, void *p, size_t n)
{
	for (size_t done = 0, got; done < n; done += got) {
		int rc = z->is_over ? -E_DATA
				    : read_some(z, (char *)p + done, n - done,
						&got);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int zread_skip(struct zread *z, uint64_t n)
{
	char box[SKIP_STEP];
	int rc = 0;

	while (rc == 0 && n > 0) {
		size_t k = n < sizeof box ? (size_t)n : sizeof box;

		rc = zread_get(z, box, k);
		n -= k;
	}
	return rc;
}

int zread_end(struct zread *z)
{
	size_t got;
	char none[1];
	int rc = 0;

	while (rc == 0 && !z->is_over)
		rc = read_some(z, none, 0, &got);
	if (rc < 0)
		return rc;
	if (z->at < z->n)
		return -E_DATA;
	rc = refill(z);
	return rc == 0 && z->n > 0 ? -E_DATA : rc;
}

void zread_release(struct zread *z)
{
	ZSTD_freeDCtx(z->ctx);
	*z = (struct zread){ 0 };
}
