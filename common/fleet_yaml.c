#include "fleet.h"
#include "err.h"
#include "fleet_fill.h"
#include "io.h"
#include "log.h"
#include "utf8.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libfyaml.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum state {
	START,
	TOP,
	MODEL,
	ENGINES,
	ENGINE_LIST,
	ENGINE,
	NAME,
	KIND,
	URL,
	PULL,
	WORKERS,
	WORKER_LIST,
	WORKER,
	ENDPOINT,
	END,
	NSTATES
};

/* Which key is known where, and where its value is read. */
static const struct key {
	enum state in;
	const char *name;
	enum state value;
} keys[] = {
	{ TOP, "model", MODEL },	{ TOP, "engines", ENGINES },
	{ ENGINE, "name", NAME },	{ ENGINE, "kind", KIND },
	{ ENGINE, "url", URL },		{ ENGINE, "pull", PULL },
	{ ENGINE, "workers", WORKERS }, { WORKER, "endpoint", ENDPOINT },
};

struct place {
	int line, column; /* from 1 */
};

struct reader {
	struct fleet *f;
	const char *name;
	enum state state;
	unsigned seen[NSTATES]; /* per mapping: bits of keys[] */
	struct place at;	/* of the event */
	struct place engine_at;
};

#define AT_ERROR(r, place, fmt, ...)                                   \
	log_error(E_CONFIG, "%s:%d:%d: " fmt, (r)->name, (place).line, \
		  (place).column, __VA_ARGS__)
#define HERE_ERROR(r, ...) AT_ERROR(r, (r)->at, __VA_ARGS__)
/* For %.*s: a value of the file, cut to what a message can bear. */
#define QUOTED(s) (int)((s).n > 200 ? 200 : (s).n), (s).p

static const char *event_name(enum fy_event_type type)
{
	switch (type) {
	case FYET_MAPPING_START:
		return "a mapping";
	case FYET_SEQUENCE_START:
		return "a list";
	case FYET_SCALAR:
		return "a single value";
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		return "its end";
	default:
		return "the end of the document";
	}
}

static int expected(const struct reader *r, const char *what, const char *want,
		    enum fy_event_type got)
{
	return HERE_ERROR(r, "%s: expected %s, found %s", what, want,
			  event_name(got));
}

/* For want of memory libfyaml finds no YAML, or an empty text: only errno
 * tells; it was 0 before. */
static void want_memory(void)
{
	if (errno == ENOMEM)
		xnomem(0);
}

static struct slice text_of(struct fy_event *e)
{
	size_t n = 0;
	const char *p;

	errno = 0;
	p = e->scalar.value ? fy_token_get_text(e->scalar.value, &n) : NULL;
	want_memory();
	return p ? (struct slice){ p, n } : (struct slice){ "", 0 };
}

static bool is_plain(const struct fy_event *e)
{
	return !e->scalar.value ||
	       fy_token_scalar_style(e->scalar.value) == FYSS_PLAIN;
}

static bool is_null(struct fy_event *e)
{
	struct slice s = text_of(e);

	return is_plain(e) &&
	       (s.n == 0 || slice_eq(s, SLICE("~")) ||
		slice_eq(s, SLICE("null")) || slice_eq(s, SLICE("Null")) ||
		slice_eq(s, SLICE("NULL")));
}

/* Plain text that YAML's core schema takes for something else. */
static const char *other_type(struct fy_event *e)
{
	static const char *const bools[] = { "true",  "True",  "TRUE",
					     "false", "False", "FALSE" };
	struct slice s = text_of(e);
	bool digits = s.n > 0;

	if (!is_plain(e))
		return NULL;
	if (is_null(e))
		return "nothing";
	for (size_t i = 0; i < COUNT(bools); i++)
		if (slice_eq(s, slice_of(bools[i])))
			return "true or false";
	for (size_t i = 0; i < s.n; i++)
		digits &= (s.p[i] >= '0' && s.p[i] <= '9') || s.p[i] == '.' ||
			  (i == 0 && s.n > 1 && s.p[i] == '-');
	return digits ? "a number (quote it)" : NULL;
}

static int string(const struct reader *r, const char *what, struct fy_event *e,
		  struct slice *out)
{
	const char *other;

	if (e->type != FYET_SCALAR)
		return expected(r, what, "a string", e->type);
	other = other_type(e);
	if (other)
		return HERE_ERROR(r, "%s: expected a string, found %s", what,
				  other);
	*out = text_of(e);
	return 0;
}

static struct fleet_engine *last(const struct reader *r)
{
	return &r->f->engine[r->f->n - 1];
}

static bool has_seen(const struct reader *r, enum state value)
{
	for (size_t i = 0; i < COUNT(keys); i++)
		if (keys[i].value == value)
			return r->seen[keys[i].in] >> i & 1;
	return false;
}

static int end_engine(struct reader *r)
{
	const struct fleet_engine *e = last(r);

	if (!has_seen(r, NAME))
		return AT_ERROR(r, r->engine_at, "%s", "engine without a name");
	if (e->kind == FLEET_NATIVE && e->url)
		return AT_ERROR(
			r, r->engine_at,
			"engine \"%s\": url is for the kinds sglang and "
			"vllm",
			e->name);
	if (e->kind == FLEET_NATIVE && e->nworkers == 0)
		return AT_ERROR(r, r->engine_at,
				"engine \"%s\": kind native needs workers",
				e->name);
	if (e->kind != FLEET_NATIVE && !e->url)
		return AT_ERROR(r, r->engine_at,
				"engine \"%s\": kind %s needs a url", e->name,
				fleet_kind_name(e->kind));
	if (e->pull && (e->kind != FLEET_SGLANG || e->nworkers))
		return AT_ERROR(r, r->engine_at,
				"engine \"%s\": pull is for the kind sglang "
				"with a url alone",
				e->name);
	r->state = ENGINE_LIST;
	return 0;
}

static int end_worker(struct reader *r)
{
	if (!has_seen(r, ENDPOINT))
		return HERE_ERROR(r, "%s", "worker without an endpoint");
	r->state = WORKER_LIST;
	return 0;
}

static int end_mapping(struct reader *r)
{
	switch (r->state) {
	case ENGINE:
		return end_engine(r);
	case WORKER:
		return end_worker(r);
	default:
		r->state = END;
		return 0;
	}
}

static int on_key(struct reader *r, struct fy_event *e)
{
	struct slice s;

	if (e->type == FYET_MAPPING_END)
		return end_mapping(r);
	if (e->type != FYET_SCALAR)
		return expected(r, "mapping", "a key", e->type);
	s = text_of(e);
	for (size_t i = 0; i < COUNT(keys); i++) {
		if (keys[i].in != r->state ||
		    !slice_eq(s, slice_of(keys[i].name)))
			continue;
		if (r->seen[r->state] >> i & 1)
			return HERE_ERROR(r, "key \"%s\" twice", keys[i].name);
		r->seen[r->state] |= 1u << i;
		r->state = keys[i].value;
		return 0;
	}
	return HERE_ERROR(r, "unknown key \"%.*s\"", QUOTED(s));
}

static int begin_mapping(struct reader *r, struct fy_event *e, const char *what,
			 enum state in)
{
	if (e->type != FYET_MAPPING_START)
		return expected(r, what, "a mapping", e->type);
	r->seen[in] = 0;
	r->state = in;
	return 0;
}

static int begin_list(struct reader *r, struct fy_event *e, const char *what,
		      enum state in)
{
	if (e->type != FYET_SEQUENCE_START)
		return expected(r, what, "a list", e->type);
	r->state = in;
	return 0;
}

/* An empty document is an empty fleet; fleet_check() refuses that. */
static int on_start(struct reader *r, struct fy_event *e)
{
	if (e->type == FYET_SCALAR && is_null(e)) {
		r->state = END;
		return 0;
	}
	return begin_mapping(r, e, "document", TOP);
}

static int on_model(struct reader *r, struct fy_event *e)
{
	struct slice s;
	int rc = string(r, "model", e, &s);

	if (rc < 0)
		return rc;
	if (s.n == 0 || s.n > FLEET_MODEL_MAX || fleet_bad_text(s))
		return HERE_ERROR(r,
				  "model: expected 1 to %u bytes without "
				  "white space, found \"%.*s\"",
				  FLEET_MODEL_MAX, QUOTED(s));
	r->f->model = xstrndup(s.p, s.n);
	r->state = TOP;
	return 0;
}

static int on_engines(struct reader *r, struct fy_event *e)
{
	if (e->type == FYET_SCALAR && is_null(e)) {
		r->state = TOP;
		return 0;
	}
	return begin_list(r, e, "engines", ENGINE_LIST);
}

static int on_engine_list(struct reader *r, struct fy_event *e)
{
	if (e->type == FYET_SEQUENCE_END) {
		r->state = TOP;
		return 0;
	}
	if (r->f->n == FLEET_ENGINES_MAX)
		return HERE_ERROR(r, "over %u engines", FLEET_ENGINES_MAX);
	r->engine_at = r->at;
	fleet_add_engine(r->f);
	return begin_mapping(r, e, "engine", ENGINE);
}

static int on_name(struct reader *r, struct fy_event *e)
{
	struct slice s;
	int rc = string(r, "name", e, &s);

	if (rc < 0)
		return rc;
	if (!fleet_is_name(s))
		return HERE_ERROR(r,
				  "name: expected 1 to %u of A-Z a-z 0-9 . _ "
				  "-, found \"%.*s\"",
				  FLEET_NAME_MAX, QUOTED(s));
	last(r)->name = xstrndup(s.p, s.n);
	r->state = ENGINE;
	return 0;
}

static int on_kind(struct reader *r, struct fy_event *e)
{
	enum fleet_kind k;
	struct slice s;
	int rc = string(r, "kind", e, &s);

	if (rc < 0)
		return rc;
	k = fleet_kind_of(s);
	if (k == FLEET_NKINDS)
		return HERE_ERROR(r,
				  "kind: expected native, sglang or vllm, "
				  "found \"%.*s\"",
				  QUOTED(s));
	last(r)->kind = k;
	r->state = ENGINE;
	return 0;
}

/* A text of an engine, unless bad says why it is none. */
static int on_text(struct reader *r, struct fy_event *e, const char *key,
		   const char *(*bad)(struct slice), char **out)
{
	const char *why;
	struct slice s;
	int rc = string(r, key, e, &s);

	if (rc < 0)
		return rc;
	why = bad(s);
	if (why)
		return HERE_ERROR(r, "%s \"%.*s\": %s", key, QUOTED(s), why);
	*out = xstrndup(s.p, s.n);
	r->state = ENGINE;
	return 0;
}

static int on_url(struct reader *r, struct fy_event *e)
{
	return on_text(r, e, "url", fleet_bad_url, &last(r)->url);
}

static int on_pull(struct reader *r, struct fy_event *e)
{
	return on_text(r, e, "pull", fleet_bad_pull, &last(r)->pull);
}

static int on_workers(struct reader *r, struct fy_event *e)
{
	return begin_list(r, e, "workers", WORKER_LIST);
}

static int on_worker_list(struct reader *r, struct fy_event *e)
{
	if (e->type == FYET_SEQUENCE_END) {
		r->state = ENGINE;
		return 0;
	}
	if (last(r)->nworkers == FLEET_WORKERS_MAX)
		return HERE_ERROR(r, "over %u workers", FLEET_WORKERS_MAX);
	return begin_mapping(r, e, "worker", WORKER);
}

static int on_endpoint(struct reader *r, struct fy_event *e)
{
	const char *why;
	struct slice s;
	int rc = string(r, "endpoint", e, &s);

	if (rc < 0)
		return rc;
	why = fleet_bad_endpoint(s);
	if (why)
		return HERE_ERROR(r, "endpoint \"%.*s\": %s", QUOTED(s), why);
	fleet_add_worker(last(r), s);
	r->state = WORKER;
	return 0;
}

static int on_end(struct reader *r, struct fy_event *e)
{
	return expected(r, "document", "nothing more", e->type);
}

static int (*const step[])(struct reader *, struct fy_event *) = {
	[START] = on_start,
	[TOP] = on_key,
	[MODEL] = on_model,
	[ENGINES] = on_engines,
	[ENGINE_LIST] = on_engine_list,
	[ENGINE] = on_key,
	[NAME] = on_name,
	[KIND] = on_kind,
	[URL] = on_url,
	[PULL] = on_pull,
	[WORKERS] = on_workers,
	[WORKER_LIST] = on_worker_list,
	[WORKER] = on_key,
	[ENDPOINT] = on_endpoint,
	[END] = on_end,
};
static_assert(COUNT(step) == NSTATES, "a step for every state");

static int on_event(struct reader *r, struct fy_event *e)
{
	const struct fy_mark *m = fy_event_start_mark(e);

	if (m)
		r->at = (struct place){ m->line + 1, m->column + 1 };
	switch (e->type) {
	case FYET_DOCUMENT_START:
		return r->state == END
			       ? HERE_ERROR(r, "%s", "a second document")
			       : 0;
	case FYET_ALIAS:
		return HERE_ERROR(r, "%s", "aliases are not allowed");
	case FYET_SCALAR:
	case FYET_MAPPING_START:
	case FYET_SEQUENCE_START:
		if (fy_event_get_anchor_token(e))
			return HERE_ERROR(r, "%s", "anchors are not allowed");
		if (fy_event_get_tag_token(e))
			return HERE_ERROR(r, "%s", "tags are not allowed");
		return step[r->state](r, e);
	case FYET_MAPPING_END:
	case FYET_SEQUENCE_END:
		return step[r->state](r, e);
	default:
		return 0;
	}
}

static int syntax_error(const struct reader *r, struct fy_diag *diag)
{
	void *it = NULL;
	const struct fy_diag_error *e = fy_diag_errors_iterate(diag, &it);

	if (!e)
		return HERE_ERROR(r, "%s", "no YAML from here on");
	/* libfyaml counts lines and columns of errors from 1. */
	return log_error(E_CONFIG, "%s:%d:%d: %s", r->name, e->line, e->column,
			 e->msg);
}

static struct fy_event *next_event(struct fy_parser *p)
{
	struct fy_event *e;

	errno = 0;
	e = fy_parser_parse(p);
	want_memory();
	return e;
}

static int parse(struct reader *r, struct fy_parser *p, struct fy_diag *diag)
{
	struct fy_event *e;
	int rc = 0;

	while (rc == 0 && (e = next_event(p))) {
		rc = on_event(r, e);
		fy_parser_event_free(p, e);
	}
	if (rc == 0 && fy_parser_get_stream_error(p))
		rc = syntax_error(r, diag);
	return rc;
}

static int parse_all(struct reader *r, struct slice text)
{
	struct fy_diag_cfg conf;
	struct fy_parse_cfg pconf = { .flags = FYPCF_QUIET |
					       FYPCF_COLLECT_DIAG };
	struct fy_diag *diag;
	struct fy_parser *p;
	int rc;

	fy_diag_cfg_default(&conf);
	conf.fp = NULL;
	diag = fy_diag_create(&conf);
	if (!diag)
		return log_error(E_NOMEM, "%s: libfyaml", r->name);
	fy_diag_set_collect_errors(diag, true);
	pconf.diag = diag;
	p = fy_parser_create(&pconf);
	if (p && fy_parser_set_string(p, text.p, text.n) == 0)
		rc = parse(r, p, diag);
	else
		rc = log_error(E_NOMEM, "%s: libfyaml", r->name);
	if (p)
		fy_parser_destroy(p);
	fy_diag_destroy(diag);
	return rc;
}

/* libfyaml 0.7 never returns from a directive that is not UTF-8, and a fleet
 * needs no directives. */
static int check_text(const char *name, struct slice text)
{
	size_t bad = utf8_bad_byte(text);

	if (bad < text.n)
		return log_error(E_CONFIG,
				 "%s: byte %zu: not UTF-8, or a control "
				 "character",
				 name, bad);
	for (size_t i = 0; i < text.n; i++)
		if (text.p[i] == '%' &&
		    (i == 0 || text.p[i - 1] == '\n' || text.p[i - 1] == '\r'))
			return log_error(E_CONFIG,
					 "%s: byte %zu: directives are not "
					 "allowed",
					 name, i);
	return 0;
}

int fleet_parse(struct fleet *f, const char *name, struct slice text)
{
	struct reader r = { .f = f, .name = name, .at = { 1, 1 } };
	int rc;

	*f = (struct fleet){ 0 };
	if (text.n > FLEET_BYTES_MAX)
		return log_error(E_CONFIG, "%s: over %u bytes", name,
				 FLEET_BYTES_MAX);
	rc = check_text(name, text);
	if (rc == 0 && text.n)
		rc = parse_all(&r, text);
	if (rc == 0)
		rc = fleet_check(f, name);
	if (rc < 0)
		fleet_release(f);
	return rc;
}

static int slurp(int fd, struct buf *b)
{
	int n;

	do {
		n = io_read_full(fd, buf_reserve(b, 65536), 65536);
		if (n > 0)
			b->n += (size_t)n;
	} while (n == 65536 && b->n <= FLEET_BYTES_MAX);
	return n < 0 ? n : 0;
}

static bool is_directory(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

int fleet_read(struct fleet *f, const char *path)
{
	bool is_stdin = strcmp(path, "-") == 0;
	int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC), rc;
	struct buf b = { 0 };

	if (fd < 0)
		return log_errno(E_IO, "open fleet %s", path);
	rc = is_directory(fd) ? log_error(E_DATA,
					  "fleet %s: is a directory, "
					  "expected a YAML file",
					  path)
			      : slurp(fd, &b);
	if (!is_stdin)
		close(fd);
	if (rc == 0)
		rc = fleet_parse(f, is_stdin ? "standard input" : path,
				 buf_slice(&b));
	buf_release(&b);
	return rc;
}
