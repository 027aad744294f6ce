#include "common/err.h"
#include "common/io.h"
#include "pipes/tcpstore.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* VALIDATE, and the head of a request. */
#define MAGIC "\x00\xce\xf7\x85\x3c"
#define LEN(n) n "\0\0\0\0\0\0\0"
#define KEY_A LEN("\1") "a"

static struct buf read_golden(const char *name)
{
	const char *src = getenv("SRC");
	char path[512];
	struct buf b = { 0 };
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "%s/tests/golden/tcpstore/%s",
		 src ? src : "..", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return b;
	while ((n = read(fd, buf_reserve(&b, 4096), 4096)) > 0)
		b.n += (size_t)n;
	close(fd);
	return b;
}

/* What a real client said is answered as torch's own server did, whatever the
 * pieces are that it comes in. */
static void test_golden(const char *dialect, size_t piece)
{
	struct tcpstore s = { 0 };
	struct tcpstore_peer *p = tcpstore_join(&s);
	char name[64];
	struct buf in, out;
	int rc = 0;

	snprintf(name, sizeof name, "%s.in", dialect);
	in = read_golden(name);
	snprintf(name, sizeof name, "%s.out", dialect);
	out = read_golden(name);
	for (size_t at = 0; rc == 0 && at < in.n; at += piece)
		rc = tcpstore_feed(
			&s, p,
			(struct slice){ in.p + at, in.n - at < piece ? in.n - at
								     : piece });
	ok(in.n > 1000 && rc == 0, "%s in pieces of %zu: all taken%s", dialect,
	   piece, p->why);
	ok(slice_eq(buf_slice(&p->out), buf_slice(&out)),
	   "%s in pieces of %zu: the same answers", dialect, piece);
	eq_u64(tcpstore_joined(&s), 1, "the client has joined");
	eq_u64(p->in.n, 0, "nothing is left over");
	tcpstore_release(&s);
	buf_release(&in);
	buf_release(&out);
}

/* One client, one say; why it is refused ("": it is not). */
static void check_refused(struct slice said, const char *why)
{
	struct tcpstore s = { 0 };
	struct tcpstore_peer *p = tcpstore_join(&s);
	int rc = tcpstore_feed(&s, p, said);

	eq_str(p->why, why, *why ? why : "taken");
	eq_i64(rc, *why ? -E_PROTO : 0, "and says so");
	tcpstore_release(&s);
}

static void test_malformed(void)
{
	check_refused(SLICE("\x00\xce\xf7\x85\x3d"),
		      "it opens with 0x3d85f7ce, not with torch's 0x3c85f7ce");
	check_refused(SLICE("GET / HTTP/1.1\r\n"), "query 71 is unknown");
	check_refused(SLICE("\x16\x03\x01"), "query 22 is unknown");
	check_refused(SLICE(MAGIC "\x0e"), "QUEUE_PUSH is not served here");
	check_refused(SLICE(MAGIC "\x11"), "LIST_KEYS is not served here");
	check_refused(SLICE(MAGIC "\x12"), "BARRIER is not served here");
	check_refused(SLICE(MAGIC "\x13"), "query 19 is unknown");
	check_refused(SLICE(MAGIC MAGIC), "it validates itself twice");
	check_refused(SLICE("\x07"), "WATCH_KEY is not served here");
	check_refused(SLICE("\x02\xff\xff\xff\xff\xff\xff\xff\xff"),
		      "a key of 18446744073709551615 bytes, more than 1024");
	check_refused(SLICE("\x02\x01\x04\0\0\0\0\0\0"),
		      "a key of 1025 bytes, more than 1024");
	check_refused(SLICE("\x00" KEY_A "\1\0\1\0\0\0\0\0"),
		      "a value of 65537 bytes, more than 65536");
	check_refused(SLICE("\x05\x01\x01\0\0\0\0\0\0"),
		      "a list of 257 keys, more than 256");
	check_refused(SLICE("\x00" KEY_A LEN("\1") "x"
						   "\x03" KEY_A LEN("\1")),
		      "ADD to what is no number");
	check_refused(SLICE("\x03" KEY_A "\xff\xff\xff\xff\xff\xff\xff\x7f"
			    "\x03" KEY_A LEN("\1")),
		      "ADD over 64 bits");
	check_refused(SLICE(MAGIC "\6" LEN("\1") KEY_A "\3" KEY_A),
		      "GET while it waits for a key");
	check_refused(SLICE("\5" LEN("\1") KEY_A "\2" KEY_A), "");
	check_refused(SLICE(""), "");
}

/* ---- two clients ---- */

struct pair {
	struct tcpstore s;
	struct tcpstore_peer *a, *b;
};

static void pair_init(struct pair *t)
{
	t->s = (struct tcpstore){ 0 };
	t->a = tcpstore_join(&t->s);
	t->b = tcpstore_join(&t->s);
}

static void say(struct pair *t, struct tcpstore_peer *p, struct slice bytes)
{
	ok(tcpstore_feed(&t->s, p, bytes) == 0, "taken%s", p->why);
}

static void check_out(struct tcpstore_peer *p, struct slice want,
		      const char *name)
{
	ok(slice_eq(buf_slice(&p->out), want), "%s", name);
	buf_clear(&p->out);
}

static void count(void *arg, struct slice key)
{
	(void)key;
	++*(unsigned *)arg;
}

static void test_wait(void)
{
	struct pair t;
	unsigned n = 0;

	pair_init(&t);
	say(&t, t.a, SLICE(MAGIC "\6" LEN("\2") KEY_A LEN("\1") "b"));
	check_out(t.a, SLICE(""), "it waits for two keys");
	tcpstore_each_missing(&t.s, count, &n);
	eq_u64(n, 2, "which are told");
	say(&t, t.b, SLICE(MAGIC "\1" KEY_A LEN("\1") "x"));
	check_out(t.a, SLICE(""), "one is not enough");
	eq_i64(tcpstore_set(&t.s, SLICE("b"), SLICE("")), 0, "ours is set");
	check_out(t.a, SLICE("\0"), "both are: it goes on");
	say(&t, t.a, SLICE("\x0c"));
	check_out(t.a, SLICE("\1"), "a late cancel is answered");
	say(&t, t.a,
	    SLICE("\6" LEN("\1") LEN("\1") "c"
					   "\x0c"));
	check_out(t.a, SLICE("\1"), "a wait is cancelled");
	tcpstore_set(&t.s, SLICE("c"), SLICE(""));
	check_out(t.a, SLICE(""), "and forgotten");
	tcpstore_release(&t.s);
}

/* A 1.13 client that timed out says so by its next request. */
static void test_wait_1_13(void)
{
	struct pair t;

	pair_init(&t);
	say(&t, t.a, SLICE("\5" LEN("\1") KEY_A "\6"));
	check_out(t.a, SLICE("\0\0\0\0\0\0\0\0"), "no key is there");
	tcpstore_set(&t.s, SLICE("a"), SLICE("1"));
	check_out(t.a, SLICE(""), "nobody waits for it any more");
	say(&t, t.b, SLICE("\2" KEY_A));
	check_out(t.b, SLICE(LEN("\1") "1"), "but it is there");
	tcpstore_release(&t.s);
}

/* ---- bounds ---- */

static void test_many_keys(void)
{
	struct pair t;
	char key[16];
	int rc = 0;

	pair_init(&t);
	for (unsigned i = 0; rc == 0 && i < TCPSTORE_KEYS_MAX; i++) {
		snprintf(key, sizeof key, "%u", i);
		rc = tcpstore_set(&t.s, slice_of(key), SLICE(""));
	}
	eq_i64(rc, 0, "as many keys as may be");
	eq_i64(tcpstore_set(&t.s, SLICE("7"), SLICE("x")), 0, "an old one");
	eq_i64(tcpstore_set(&t.s, SLICE("new"), SLICE("")), -E_NOMEM,
	       "not one more");
	say(&t, t.a, SLICE("\x08" LEN("\1") "7"));
	eq_i64(tcpstore_set(&t.s, SLICE("new"), SLICE("")), 0,
	       "where one was deleted");
	tcpstore_release(&t.s);
}

static void test_memory(void)
{
	static char value[TCPSTORE_VALUE_MAX];
	struct pair t;
	char key[16];
	unsigned i = 0;

	pair_init(&t);
	do
		snprintf(key, sizeof key, "%u", i);
	while (i++ < TCPSTORE_KEYS_MAX &&
	       tcpstore_set(&t.s, slice_of(key),
			    (struct slice){ value, sizeof value }) == 0);
	ok(i <= TCPSTORE_MEMORY_MAX / sizeof value, "%u values", i);
	ok(t.s.bytes <= TCPSTORE_MEMORY_MAX, "within %u bytes",
	   TCPSTORE_MEMORY_MAX);
	eq_i64(tcpstore_feed(&t.s, t.a, (struct slice){ value, sizeof value }),
	       -E_PROTO, "no room for a request");
	tcpstore_release(&t.s);
}

static void test_long_answer(void)
{
	static char value[TCPSTORE_VALUE_MAX];
	struct pair t;

	pair_init(&t);
	tcpstore_set(&t.s, SLICE("a"), (struct slice){ value, sizeof value });
	eq_i64(tcpstore_feed(&t.s, t.a,
			     SLICE(MAGIC "\x0a" LEN("\2") KEY_A KEY_A)),
	       -E_PROTO, "an answer that is too long");
	eq_str(t.a->why, "MULTI_GET of 131088 bytes, more than 131072", "why");
	tcpstore_release(&t.s);
}

/* Who reads nothing is answered no more, then refused. */
static void test_deaf(void)
{
	static char value[TCPSTORE_VALUE_MAX];
	struct pair t;
	size_t most = 0;
	int rc = 0;

	pair_init(&t);
	tcpstore_set(&t.s, SLICE("a"), (struct slice){ value, sizeof value });
	for (unsigned i = 0; rc == 0 && i < 1u << 20; i++) {
		rc = tcpstore_feed(&t.s, t.a, SLICE("\2" KEY_A));
		if (t.a->out.n > most)
			most = t.a->out.n;
	}
	eq_i64(rc, -E_PROTO, "it is refused");
	eq_str(t.a->why, "it sends on, and reads no answer", "why");
	ok(most < 2 * TCPSTORE_REPLY_MAX, "%zu bytes were kept", most);
	tcpstore_release(&t.s);
}

static void test_many_peers(void)
{
	struct tcpstore s = { 0 };
	struct tcpstore_peer *p = NULL;

	for (unsigned i = 0; i < TCPSTORE_PEERS_MAX; i++)
		p = tcpstore_join(&s);
	ok(p && !tcpstore_join(&s), "as many clients as may be");
	tcpstore_leave(&s, p);
	ok(tcpstore_join(&s) != NULL, "one has left");
	tcpstore_release(&s);
}

int main(void)
{
	static const size_t piece[] = { 1, 7, 1440, 1u << 20 };

	for (size_t i = 0; i < COUNT(piece); i++) {
		test_golden("current", piece[i]);
		test_golden("1.13", piece[i]);
	}
	test_malformed();
	test_wait();
	test_wait_1_13();
	test_many_keys();
	test_memory();
	test_long_answer();
	test_deaf();
	test_many_peers();
	return tap_done();
}
