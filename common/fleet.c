#include "fleet.h"
#include "err.h"
#include "fleet_fill.h"
#include "log.h"
#include "names.h"
#include "utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_SHOWN 16 /* of a fleet, in a message */

static const char *const kind_name[] = {
#define X(id, name) [FLEET_##id] = name,
	FLEET_KIND_LIST(X)
#undef X
};
static_assert(COUNT(kind_name) == FLEET_NKINDS, "name every kind");

const char *fleet_kind_name(enum fleet_kind k)
{
	return kind_name[k];
}

enum fleet_kind fleet_kind_of(struct slice name)
{
	enum fleet_kind k = 0;

	while (k < FLEET_NKINDS && !slice_eq(name, slice_of(kind_name[k])))
		k++;
	return k;
}

const struct fleet_engine *fleet_find(const struct fleet *f, struct slice name)
{
	for (uint32_t i = 0; i < f->n; i++)
		if (slice_eq(slice_of(f->engine[i].name), name))
			return &f->engine[i];
	return NULL;
}

bool fleet_is_name(struct slice s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i], low = c | 0x20;

		if (!(low >= 'a' && low <= 'z') && !(c >= '0' && c <= '9') &&
		    c != '.' && c != '_' && c != '-')
			return false;
	}
	return s.n >= 1 && s.n <= FLEET_NAME_MAX;
}

static void release_engine(struct fleet_engine *e)
{
	for (uint32_t w = 0; w < e->nworkers; w++)
		free(e->endpoint[w]);
	free(e->endpoint);
	free(e->name);
	free(e->url);
	free(e->pull);
}

static int no_such_engine(const struct fleet *f, const char *name)
{
	struct buf b = { 0 };
	int rc;

	for (uint32_t i = 0; i < f->n && i < NAMES_SHOWN; i++)
		buf_addf(&b, "%s%s", i ? ", " : "", f->engine[i].name);
	rc = log_error(E_USAGE,
		       "--only %s: no engine of that name; there are %s%s",
		       name, buf_cstr(&b), f->n > NAMES_SHOWN ? ", ..." : "");
	buf_release(&b);
	return rc;
}

static bool is_named(const struct fleet_engine *e, char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(e->name, names[i]) == 0)
			return true;
	return false;
}

int fleet_keep(struct fleet *f, char *const *names, size_t n)
{
	uint32_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!fleet_find(f, slice_of(names[i])))
			return no_such_engine(f, names[i]);
	for (uint32_t i = 0; i < f->n; i++) {
		if (is_named(&f->engine[i], names, n))
			f->engine[kept++] = f->engine[i];
		else
			release_engine(&f->engine[i]);
	}
	f->n = kept;
	return 0;
}

/* The staged kind is the first of the enum. */
void fleet_sort(struct fleet *f)
{
	struct fleet_engine *v = xcalloc(f->n, sizeof *v);
	uint32_t n = 0;

	for (unsigned kind = 0; kind < FLEET_NKINDS; kind++)
		for (uint32_t i = 0; i < f->n; i++)
			if (f->engine[i].kind == kind)
				v[n++] = f->engine[i];
	if (n)
		memcpy(f->engine, v, n * sizeof *v);
	free(v);
}

uint32_t fleet_staged(const struct fleet *f)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += f->engine[i].kind == FLEET_NATIVE;
	return n;
}

void fleet_release(struct fleet *f)
{
	for (uint32_t i = 0; i < f->n; i++)
		release_engine(&f->engine[i]);
	free(f->engine);
	free(f->model);
	*f = (struct fleet){ 0 };
}

struct fleet_engine *fleet_add_engine(struct fleet *f)
{
	if ((f->n & (f->n - 1)) == 0)
		f->engine = xreallocarray(f->engine, f->n ? 2 * f->n : 1,
					  sizeof *f->engine);
	f->engine[f->n] = (struct fleet_engine){ .kind = FLEET_NATIVE };
	return &f->engine[f->n++];
}

void fleet_add_worker(struct fleet_engine *e, struct slice endpoint)
{
	if ((e->nworkers & (e->nworkers - 1)) == 0)
		e->endpoint = xreallocarray(e->endpoint,
					    e->nworkers ? 2 * e->nworkers : 1,
					    sizeof *e->endpoint);
	e->endpoint[e->nworkers++] = xstrndup(endpoint.p, endpoint.n);
}

static bool starts_with(struct slice s, const char *head)
{
	size_t n = strlen(head);

	return s.n >= n && memcmp(s.p, head, n) == 0;
}

const char *fleet_bad_text(struct slice s)
{
	for (size_t i = 0, n; i < s.n; i += n) {
		n = utf8_print_len(s.p + i, s.n - i);
		if (n == 0 && utf8_len(s.p + i, s.n - i) == 0)
			return "not UTF-8";
		if (n == 0 || s.p[i] == ' ')
			return "white space or control character";
	}
	return NULL;
}

/* Why that is no endpoint of a receiver, or NULL. */
const char *fleet_bad_endpoint(struct slice s)
{
	if (starts_with(s, "tcp://"))
		return "tcp:// needs the transport between hosts, which this "
		       "weir does not have yet; use ipc:///PATH";
	if (!starts_with(s, "ipc:///") || s.n == strlen("ipc:///"))
		return "expected ipc:///PATH";
	if (s.n - strlen("ipc://") > FLEET_IPC_PATH_MAX)
		return "its path is longer than the 107 bytes of a Unix "
		       "socket's name";
	return fleet_bad_text(s);
}

const char *fleet_bad_url(struct slice s)
{
	size_t scheme = starts_with(s, "http://")    ? 7
			: starts_with(s, "https://") ? 8
						     : 0;

	if (scheme == 0 || s.n == scheme || s.p[scheme] == '/')
		return "expected http://HOST:PORT or https://HOST:PORT";
	if (s.n > FLEET_URL_MAX)
		return "longer than 1024 bytes";
	if (memchr(s.p, '?', s.n) || memchr(s.p, '#', s.n))
		return "a path is appended to it: no ? and no # in it";
	if (memchr(s.p, '@', s.n))
		return "a password in it would be shown: use --api-key-file";
	return fleet_bad_text(s);
}

/* The engine's host has it, not ours. */
const char *fleet_bad_pull(struct slice s)
{
	if (s.n < 2 || s.p[0] != '/')
		return "expected an absolute path";
	if (s.n > FLEET_PULL_MAX)
		return "longer than 2048 bytes";
	return fleet_bad_text(s);
}

static struct slice name_of(const void *ctx, uint32_t i)
{
	const struct fleet *f = ctx;

	return slice_of(f->engine[i].name);
}

static int check_names(const struct fleet *f, const char *name)
{
	struct names order;
	uint32_t a, b;
	int rc = 0;

	names_sort(&order, name_of, f, f->n);
	if (names_find_twice(&order, &a, &b))
		rc = log_error(E_CONFIG,
			       "%s: engine name \"%s\" twice, as number %u and "
			       "number %u",
			       name, f->engine[a].name, a + 1, b + 1);
	names_release(&order);
	return rc;
}

/* An endpoint and the engine that names it. */
struct use {
	const char *endpoint;
	const struct fleet_engine *engine;
};

static int cmp_uses(const void *pa, const void *pb)
{
	const struct use *a = pa, *b = pb;
	int c = strcmp(a->endpoint, b->endpoint);

	return c ? c : (a->engine > b->engine) - (a->engine < b->engine);
}

static size_t list_uses(const struct fleet *f, struct use **out)
{
	size_t n = 0, k = 0;

	for (uint32_t i = 0; i < f->n; i++)
		n += f->engine[i].nworkers + 1;
	*out = xcalloc(n, sizeof **out);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct fleet_engine *e = &f->engine[i];

		for (uint32_t w = 0; w < e->nworkers; w++)
			(*out)[k++] = (struct use){ e->endpoint[w], e };
		if (e->url)
			(*out)[k++] = (struct use){ e->url, e };
	}
	return k;
}

static int check_endpoints(const struct fleet *f, const char *name)
{
	struct use *use;
	size_t n = list_uses(f, &use);
	int rc = 0;

	qsort(use, n, sizeof *use, cmp_uses);
	for (size_t i = 1; rc == 0 && i < n; i++) {
		if (use[i - 1].engine == use[i].engine ||
		    strcmp(use[i - 1].endpoint, use[i].endpoint) != 0)
			continue;
		rc = log_error(E_CONFIG,
			       "%s: engines \"%s\" and \"%s\" name the same "
			       "endpoint %s",
			       name, use[i - 1].engine->name,
			       use[i].engine->name, use[i].endpoint);
	}
	free(use);
	return rc;
}

int fleet_check(const struct fleet *f, const char *name)
{
	int rc;

	if (f->n == 0)
		return log_error(E_CONFIG, "%s: no engines", name);
	rc = check_names(f, name);
	return rc < 0 ? rc : check_endpoints(f, name);
}

/* KIND= in front, if it is one: an endpoint may contain '=' too. */
static int split_kind(struct slice *s, enum fleet_kind *kind)
{
	size_t n = 0;
	struct slice head;

	while (n < s->n && s->p[n] != '=' && s->p[n] != ':' && s->p[n] != '/')
		n++;
	*kind = FLEET_NATIVE;
	if (n == s->n || s->p[n] != '=')
		return 0;
	head = (struct slice){ s->p, n };
	*kind = fleet_kind_of(head);
	s->p += n + 1;
	s->n -= n + 1;
	return *kind == FLEET_NKINDS ? -E_USAGE : 0;
}

int fleet_add_endpoint(struct fleet *f, const char *spec)
{
	struct slice s = slice_of(spec);
	enum fleet_kind kind;
	struct fleet_engine *e;
	const char *why = NULL;

	if (split_kind(&s, &kind) < 0)
		why = "expected [KIND=]ENDPOINT, the kind native, sglang or "
		      "vllm";
	else if (kind == FLEET_NATIVE)
		why = fleet_bad_endpoint(s);
	else
		why = fleet_bad_url(s);
	if (!why && f->n == FLEET_ENGINES_MAX)
		why = "too many engines";
	if (why)
		return log_error(E_USAGE, "--engine \"%s\": %s", spec, why);
	e = fleet_add_engine(f);
	e->name = xasprintf("engine-%u", f->n - 1);
	e->kind = kind;
	if (kind == FLEET_NATIVE)
		fleet_add_worker(e, s);
	else
		e->url = xstrndup(s.p, s.n);
	return 0;
}
