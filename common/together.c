#include "together.h"
#include "digest.h"
#include "err.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

/* Modules that some engine loads as one, with the name that they share. */
static const struct {
	const char *module, *fused;
} fused[] = {
	{ "q_proj", "{q,k,v}_proj" },
	{ "k_proj", "{q,k,v}_proj" },
	{ "v_proj", "{q,k,v}_proj" },
	{ "wq", "{wq,wk,wv}" },
	{ "wk", "{wq,wk,wv}" },
	{ "wv", "{wq,wk,wv}" },
	{ "query", "{query,key,value}" },
	{ "key", "{query,key,value}" },
	{ "value", "{query,key,value}" },
	{ "gate_proj", "{gate,up}_proj" },
	{ "up_proj", "{gate,up}_proj" },
	{ "w1", "{w1,w3}" },
	{ "w3", "{w1,w3}" },
	{ "q_a_proj", "{q,kv}_a_proj" },
	{ "kv_a_proj", "{q,kv}_a_proj" },
	{ "kv_a_proj_with_mqa", "{q,kv}_a_proj" },
	{ "in_proj_qkv", "in_proj_{qkv,z}" },
	{ "in_proj_z", "in_proj_{qkv,z}" },
	{ "in_proj_a", "in_proj_{a,b}" },
	{ "in_proj_b", "in_proj_{a,b}" },
};

/* What a module's parameters are called; "weight." begins more of them. */
static const char *const params[] = {
	"weight",
	"bias",
	"scale",
	"weight_scale",
	"weight_scale_inv",
	"weight_scale_2",
	"weight_global_scale",
	"weight_packed",
	"weight_shape",
	"weight_zero_point",
	"weight_g_idx",
	"input_scale",
	"input_global_scale",
	"input_zero_point",
	"output_scale",
	"k_scale",
	"v_scale",
	"qweight",
	"qzeros",
	"scales",
	"g_idx",
};

/* Of parameters that are named like modules: experts.down_proj_scales. */
static const char *const tails[] = {
	"_scale_inv", "_scales", "_blocks", "_scale", "_bias",
};

/* ---- rules ---- */

/* Multiplies what one "{n,m}" may repeat; false: too much. */
static bool multiply(const char *s, unsigned long *product)
{
	unsigned long most = 1;

	while (*s && *s != '}') {
		char *end;
		unsigned long n = strtoul(s, &end, 10);

		if (n > TOGETHER_REPEAT_MAX)
			return false;
		most = n > most ? n : most;
		s = end == s ? s + 1 : end;
	}
	*product *= most;
	return *product <= TOGETHER_REPEAT_MAX;
}

/* Why a rule is refused before it is compiled; NULL: it is not. */
static const char *refusal(const char *s)
{
	unsigned long product = 1;

	if (strlen(s) > TOGETHER_RULE_MAX)
		return "longer than 512 bytes";
	for (; *s; s++) {
		if (*s == '\\' && s[1] >= '0' && s[1] <= '9')
			return "back-references are not supported";
		if (*s == '\\' && s[1])
			s++;
		else if (*s == '{' && !multiply(s + 1, &product))
			return "repetitions above 1000 in all";
	}
	return NULL;
}

static int compile(struct together *t, const char *rule)
{
	const char *why = refusal(rule);
	char text[128];
	int rc;

	if (why)
		return log_error(E_USAGE, "--keep-together \"%s\": %s", rule,
				 why);
	if (t->n == TOGETHER_RULES_MAX)
		return log_error(E_USAGE,
				 "--keep-together \"%s\": more than "
				 "%d of them",
				 rule, TOGETHER_RULES_MAX);
	t->rule = xreallocarray(t->rule, t->n + 1, sizeof *t->rule);
	rc = regcomp(&t->rule[t->n], rule, REG_EXTENDED);
	if (rc == 0) {
		t->n++;
		return 0;
	}
	regerror(rc, &t->rule[t->n], text, sizeof text);
	return log_error(E_USAGE, "--keep-together \"%s\": %s", rule, text);
}

int together_init(struct together *t, char *const *rule, size_t n)
{
	int rc = 0;

	*t = (struct together){ .built_in = true };
	for (size_t i = 0; i < n && rc == 0; i++) {
		if (strcmp(rule[i], TOGETHER_NONE) == 0)
			t->built_in = false;
		else
			rc = compile(t, rule[i]);
	}
	if (rc < 0)
		together_release(t);
	return rc;
}

void together_release(struct together *t)
{
	for (size_t i = 0; i < t->n; i++)
		regfree(&t->rule[i]);
	free(t->rule);
	*t = (struct together){ 0 };
}

static bool rule_key(const regex_t *rule, const char *name, struct buf *key)
{
	regmatch_t m[2] = { { -1, -1 }, { -1, -1 } }; /* all, its first () */
	const regmatch_t *part;

	if (regexec(rule, name, COUNT(m), m, 0) != 0)
		return false;
	part = rule->re_nsub > 0 && m[1].rm_so >= 0 ? &m[1] : &m[0];
	buf_add(key, name + part->rm_so, (size_t)(part->rm_eo - part->rm_so));
	return true;
}

static bool any_rule_key(const struct together *t, struct slice name,
			 struct buf *key)
{
	char *text = t->n ? xstrndup(name.n ? name.p : "", name.n) : NULL;
	bool found = false;

	for (size_t i = 0; i < t->n && !found; i++)
		found = rule_key(&t->rule[i], text, key);
	free(text);
	return found;
}

/* ---- built in ---- */

static bool is_param(struct slice leaf)
{
	for (size_t i = 0; i < COUNT(params); i++)
		if (slice_eq(slice_of(params[i]), leaf))
			return true;
	return false;
}

/* Where the last part of name begins. */
static size_t last_part(struct slice name)
{
	size_t at = name.n;

	while (at > 0 && name.p[at - 1] != '.')
		at--;
	return at;
}

static struct slice without_tail(struct slice name)
{
	for (size_t i = 0; i < COUNT(tails); i++) {
		size_t n = strlen(tails[i]);

		if (name.n > n && memcmp(name.p + name.n - n, tails[i], n) == 0)
			return (struct slice){ name.p, name.n - n };
	}
	return name;
}

/* The module: name without its parameter. */
static struct slice module_of(struct slice name)
{
	static const char inner[] = ".weight.";
	const char *at = memmem(name.p, name.n, inner, sizeof inner - 1);
	size_t leaf;

	if (at)
		return (struct slice){ name.p, (size_t)(at - name.p) };
	leaf = last_part(name);
	if (leaf > 1 &&
	    is_param((struct slice){ name.p + leaf, name.n - leaf }))
		return (struct slice){ name.p, leaf - 1 };
	return without_tail(name);
}

static void built_in_key(struct slice name, struct buf *key)
{
	struct slice module = module_of(name);
	size_t at = last_part(module);
	struct slice last = { module.p + at, module.n - at };

	for (size_t i = 0; i < COUNT(fused); i++) {
		if (!slice_eq(slice_of(fused[i].module), last))
			continue;
		buf_add(key, module.p, at);
		buf_addf(key, "%s", fused[i].fused);
		return;
	}
	buf_add(key, module.p, module.n);
}

enum together_kind together_key(const struct together *t, struct slice name,
				struct buf *key)
{
	if (any_rule_key(t, name, key))
		return TOGETHER_MUST;
	if (!t->built_in)
		return TOGETHER_ALONE;
	built_in_key(name, key);
	return TOGETHER_WISH;
}

/* ---- links ---- */

struct seat {
	uint64_t hash; /* 0: free */
	uint32_t last; /* of the group, so far */
};

/* Rules' keys and built-in ones are different groups. */
static uint64_t hash_key(const struct buf *key, enum together_kind kind)
{
	struct digest d;
	uint64_t h;

	digest_of(key->p, key->n, &d);
	memcpy(&h, d.b, sizeof h);
	return (h ^ kind) | 1;
}

static struct seat *seat_of(struct seat *v, uint64_t mask, uint64_t hash)
{
	uint64_t i = (hash >> 1) & mask;

	while (v[i].hash && v[i].hash != hash)
		i = (i + 1) & mask;
	return &v[i];
}

static uint64_t seats_for(uint32_t n)
{
	uint64_t seats = 16;

	while (seats < (uint64_t)n + n / 3)
		seats *= 2;
	return seats;
}

void together_link(struct together_links *l, const struct together *t,
		   names_fn *get, const void *ctx, uint32_t n)
{
	uint64_t seats = seats_for(n);
	struct seat *v = xcalloc(seats, sizeof *v);
	struct buf key = { 0 };

	l->next = xreallocarray(NULL, n ? n : 1, sizeof *l->next);
	for (uint32_t i = 0; i < n; i++) {
		enum together_kind kind;
		struct seat *s;
		uint64_t hash;

		l->next[i] = TOGETHER_END;
		buf_clear(&key);
		kind = together_key(t, get(ctx, i), &key);
		if (kind == TOGETHER_ALONE)
			continue;
		hash = hash_key(&key, kind);
		s = seat_of(v, seats - 1, hash);
		if (s->hash)
			l->next[s->last] = i;
		*s = (struct seat){ hash, i };
	}
	buf_release(&key);
	free(v);
}

void together_unlink(struct together_links *l)
{
	free(l->next);
	l->next = NULL;
}
