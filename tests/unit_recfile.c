#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/recfile.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int dir;
static struct msg_arena arena;

static void three(struct buf *b)
{
	struct msg m = { .type = M_version, .version.model = SLICE("m") };
	struct slice source = SLICE("/somewhere");
	struct msg beat = { .type = M_beat, .beat.mono_ms = 1ull << 40 };

	rec_append(b, &m);
	rec_append(b, &beat);
	m.version.sources.v = &source;
	m.version.sources.n = 1;
	rec_append(b, &m);
}

static void put(const void *p, size_t n)
{
	int fd = openat(dir, "f", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	io_write_full(fd, p, n);
	close(fd);
}

/* Records of the file "f" up to its end, or the error. */
static int count(bool mapped)
{
	struct rec_reader r;
	struct msg m;
	int n = 0, rc;

	rc = mapped ? rec_open_map(&r, dir, "f")
		    : rec_open(&r, dir, "f", 1 << 20);
	if (rc < 0)
		return rc;
	while ((rc = rec_next(&r, &m, &arena)) == 1)
		n++;
	rec_close(&r);
	return rc < 0 ? rc : n;
}

static void test_whole(const struct buf *b)
{
	put(b->p, b->n);
	eq_i64(count(false), 3, "three records, read");
	eq_i64(count(true), 3, "three records, mapped");
	put("", 0);
	eq_i64(count(false), -E_DATA, "an empty file, read");
	eq_i64(count(true), -E_DATA, "an empty file, mapped");
	unlinkat(dir, "f", 0);
	eq_i64(count(false), -E_NOINPUT, "no file, read");
	eq_i64(count(true), -E_NOINPUT, "no file, mapped");
}

/* Where a record ends, fewer are left; anywhere else the tail is torn. */
static void test_torn(const struct buf *b)
{
	int whole = 0, torn = 0;

	for (size_t n = 0; n < b->n; n++) {
		int rc;

		put(b->p, n);
		rc = count(n % 2);
		whole += rc >= 0;
		torn += rc == -E_DATA && (n < 11 || strstr(log_cause(), "f: "));
	}
	eq_i64(whole, 3, "cut after the magic and after two records");
	eq_i64(torn, (int64_t)b->n - 3, "cut anywhere else: refused");
}

static void test_flips(struct buf *b)
{
	size_t refused = 0;

	for (size_t bit = 0; bit < 8 * b->n; bit++) {
		b->p[bit / 8] ^= (char)(1 << bit % 8);
		put(b->p, b->n);
		refused += count(false) == -E_DATA;
		b->p[bit / 8] ^= (char)(1 << bit % 8);
	}
	eq_u64(refused, 8 * b->n, "each flipped bit is refused");
}

/* Right sums around what is no message: still one line with the place. */
static void test_no_message(void)
{
	struct msg m = { .type = M_beat };
	struct buf b = { 0 }, frame = { 0 };
	struct digest d;

	rec_append(&b, &m);
	msg_pack(&frame, &m);
	frame.p[1] = 0x7f; /* a number that is not there */
	digest_of(frame.p, frame.n, &d);
	memcpy(b.p + b.n - frame.n, frame.p, frame.n);
	memcpy(b.p + b.n - frame.n - 8, d.b, 8);
	put(b.p, b.n);
	eq_i64(count(false), -E_DATA, "a frame that is no message");
	ok(log_cause()[0] == '/' &&
		   strstr(log_cause(), "/f: record at byte 11: message number "
				       "127 is unknown"),
	   "named with its place: %s", log_cause());
	buf_release(&b);
	buf_release(&frame);
}

static void test_one(void)
{
	struct msg m = { .type = M_verdict, .verdict.exit = 3 }, back;
	struct rec_reader r;
	struct buf b = { 0 };

	rec_append(&b, &m);
	put(b.p, b.n);
	ok(rec_read_one(&r, dir, "f", M_verdict, &back, &arena) == 0 &&
		   back.verdict.exit == 3,
	   "one record of its type");
	rec_close(&r);
	eq_i64(rec_read_one(&r, dir, "f", M_slot, &back, &arena), -E_DATA,
	       "another type");
	rec_append(&b, &m);
	put(b.p, b.n);
	eq_i64(rec_read_one(&r, dir, "f", M_verdict, &back, &arena), -E_DATA,
	       "one too many");
	put(b.p, sizeof RECFILE_MAGIC - 1);
	eq_i64(rec_read_one(&r, dir, "f", M_verdict, &back, &arena), -E_DATA,
	       "none");
	m = (struct msg){ .type = M_slot, .slot.run = SLICE("two\nlines") };
	b.n = 5;
	eq_i64(rec_append(&b, &m), -E_PROTO, "what is no message");
	eq_u64(b.n, 5, "is not appended");
	buf_release(&b);
}

int main(void)
{
	char path[] = "/tmp/weir-unit.XXXXXX";
	struct buf b = { 0 };

	log_quiet_thread(1);
	if (!mkdtemp(path) || (dir = io_open_dir(AT_FDCWD, path)) < 0)
		return 1;
	three(&b);
	test_whole(&b);
	test_torn(&b);
	test_flips(&b);
	test_no_message();
	test_one();
	buf_release(&b);
	msg_arena_release(&arena);
	close(dir);
	io_remove_tree(AT_FDCWD, path);
	return tap_done();
}
