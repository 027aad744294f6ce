/*
 * fakeup - plays plan, admit and transfer for commit's tests.
 *
 *	fakeup ENGINE=ENDPOINT... [OPTION=VALUE]...  | weir-commit
 *
 *	content=HEX	what it says the source hashed to
 *	structure=HEX bytes=N
 *	fail=ENGINE:BUCKET	says after `opened` that this engine failed
 *	hang=1		never drains
 *	die=1		dies when the run is opened
 *
 * Every message from commit is one line in $FAKEUP_LOG.  An option's name is
 * never an engine's.  With --run: goes on in that run, as a restarted
 * transfer would.
 */
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/recfile.h"
#include "pipes/stage.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ENGINES_MAX 16

static struct {
	struct slice name[ENGINES_MAX], endpoint[ENGINES_MAX];
	uint32_t n;
	struct digest content, structure;
	uint64_t bytes, files;
	int fail_engine, fail_bucket;
	bool hang, die;
	struct m_end end;
	FILE *log;
	const char *run;
} f = { .bytes = 1000, .fail_engine = -1 };

static void add_engine(const char *name, size_t n, const char *endpoint)
{
	if (f.n == ENGINES_MAX)
		exit(64);
	f.name[f.n] = (struct slice){ name, n };
	f.endpoint[f.n++] = slice_of(endpoint);
}

static void set(const char *arg)
{
	const char *v = strchr(arg, '=');
	size_t n = v ? (size_t)(v - arg) : 0;
	struct slice key = { arg, n };

	if (!v)
		exit(64);
	v++;
	if (slice_eq(key, SLICE("content")))
		digest_parse(v, strlen(v), &f.content);
	else if (slice_eq(key, SLICE("structure")))
		digest_parse(v, strlen(v), &f.structure);
	else if (slice_eq(key, SLICE("bytes")))
		f.bytes = strtoull(v, NULL, 10);
	else if (slice_eq(key, SLICE("fail")))
		sscanf(v, "%d:%d", &f.fail_engine, &f.fail_bucket);
	else if (slice_eq(key, SLICE("hang")))
		f.hang = true;
	else if (slice_eq(key, SLICE("die")))
		f.die = true;
	else
		add_engine(arg, n, v);
}

/* A plan of one carried file in one bucket, and its end. */
static void add_record(struct buf *b, struct digest_state *d,
		       const struct msg *m)
{
	struct buf frame = { 0 };

	if (m->type != M_end) {
		msg_pack(&frame, m);
		digest_add(d, frame.p, frame.n);
		f.end.records++;
	}
	rec_append(b, m);
	buf_release(&frame);
}

static void make_plan(struct buf *b)
{
	struct m_part part = { .kind = PART_CARRIED,
			       .bytes = f.bytes,
			       .total = f.bytes };
	struct slice source = SLICE("/src");
	struct msg m = { .type = M_version };
	struct digest_state d;

	digest_begin(&d);
	m.version.format = 1;
	m.version.model = SLICE("m");
	m.version.sources.v = &source;
	m.version.sources.n = 1;
	m.version.transport = SLICE("host");
	m.version.structure = f.structure;
	add_record(b, &d, &m);
	m = (struct msg){ .type = M_file };
	m.file.path = SLICE("config.json");
	m.file.kind = FILE_CARRIED;
	m.file.bytes = f.bytes;
	add_record(b, &d, &m);
	for (uint32_t i = 0; i < f.n; i++) {
		m = (struct msg){ .type = M_engine };
		m.engine.id = i;
		m.engine.name = f.name[i];
		m.engine.workers.v = &f.endpoint[i];
		m.engine.workers.n = 1;
		add_record(b, &d, &m);
	}
	m = (struct msg){ .type = M_bucket };
	m.bucket.bytes = f.bytes;
	m.bucket.parts.v = &part;
	m.bucket.parts.n = 1;
	add_record(b, &d, &m);
	f.end.files = f.end.buckets = 1;
	f.end.engines = f.n;
	f.end.bytes = f.bytes;
	digest_end(&d, &f.end.digest);
	m = (struct msg){ .type = M_end, .end = f.end };
	add_record(b, &d, &m);
}

static int prepare(struct stage *s)
{
	struct buf b = { 0 };
	bool linked = false;
	int rc;

	make_plan(&b);
	rc = io_create_once(s->run.dirfd, "plan.weir", b.p, b.n, &linked);
	buf_release(&b);
	return rc == -E_AGAIN ? 0 : rc;
}

static int start(struct stage *s)
{
	(void)s;
	return 0;
}

static int peer_up(struct stage *s, enum dir d)
{
	struct msg m = { .type = M_end, .end = f.end };

	return d == DOWN ? stage_send(s, DOWN, &m), 0 : 0;
}

static void drain(struct stage *s)
{
	struct msg m = { .type = M_drained };

	m.drained.content = f.content;
	m.drained.bytes = f.bytes;
	stage_send(s, DOWN, &m);
}

static void fail_bucket(struct stage *s)
{
	struct msg m = { .type = M_failed };
	char cause[128];

	snprintf(cause, sizeof cause, "engine %.*s: bucket %d: told to fail",
		 SLICE_ARG(f.name[f.fail_engine]), f.fail_bucket);
	m.failed.engine = (uint32_t)f.fail_engine;
	m.failed.bucket = (uint32_t)f.fail_bucket;
	m.failed.code = E_DATA;
	m.failed.cause = slice_of(cause);
	stage_send(s, DOWN, &m);
}

static void on_opened(struct stage *s)
{
	if (f.die)
		raise(SIGKILL);
	if (f.fail_engine >= 0)
		fail_bucket(s);
	else if (!f.hang)
		drain(s);
}

static int on_msg(struct stage *s, enum dir d, const struct msg *m)
{
	struct buf b = { 0 };

	(void)d;
	msg_json(&b, m);
	if (f.log)
		fprintf(f.log, "%s %s\n", msg_name(m->type), buf_cstr(&b));
	buf_release(&b);
	if (m->type == M_opened)
		on_opened(s);
	/* With one engine out, the others are drained. */
	if (m->type == M_exclude && !f.hang)
		drain(s);
	return 0;
}

static void stop(struct stage *s)
{
	(void)s;
}

static bool done_with_up(const struct stage *s)
{
	(void)s;
	return true;
}

static const struct stage_ops ops = {
	.id = STAGE_TRANSFER,
	.prepare = prepare,
	.start = start,
	.peer_up = peer_up,
	.msg = on_msg,
	.done_with_up = done_with_up,
	.stop = stop,
};

int main(int argc, char **argv)
{
	struct stage_conf conf = { .head = true,
				   .stage_timeout_ms = 20000,
				   .options = "" };
	const char *log = getenv("FAKEUP_LOG");
	struct stage s = { 0 };

	log_init("fakeup", LOG_WARN);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--run") == 0 && i + 1 < argc)
			conf.run = argv[++i];
		else
			set(argv[i]);
	}
	if (log) {
		f.log = fopen(log, "a");
		setvbuf(f.log, NULL, _IOLBF, 0);
	}
	return stage_run(&s, &ops, &conf, &f);
}
