#include "together.h"
#include "digest.h"
#include "err.h"
#include "log.h"

#include <stdlib.h>
#include <string.h>

/* Modules that some engine loads as one, with the name that they share. */
static const struct {
	struct slice module;
	const char *fused;
} fused[] = {
	{ SLICE_INIT("q_proj"), "{q,k,v}_proj" },
	{ SLICE_INIT("k_proj"), "{q,k,v}_proj" },
	{ SLICE_INIT("v_proj"), "{q,k,v}_proj" },
	{ SLICE_INIT("wq"), "{wq,wk,wv}" },
	{ SLICE_INIT("wk"), "{wq,wk,wv}" },
	{ SLICE_INIT("wv"), "{wq,wk,wv}" },
	{ SLICE_INIT("query"), "{query,key,value}" },
	{ SLICE_INIT("key"), "{query,key,value}" },
	{ SLICE_INIT("value"), "{query,key,value}" },
	{ SLICE_INIT("gate_proj"), "{gate,up}_proj" },
	{ SLICE_INIT("up_proj"), "{gate,up}_proj" },
	{ SLICE_INIT("w1"), "{w1,w3}" },
	{ SLICE_INIT("w3"), "{w1,w3}" },
	{ SLICE_INIT("q_a_proj"), "{q,kv}_a_proj" },
	{ SLICE_INIT("kv_a_proj"), "{q,kv}_a_proj" },
	{ SLICE_INIT("kv_a_proj_with_mqa"), "{q,kv}_a_proj" },
	{ SLICE_INIT("in_proj_qkv"), "in_proj_{qkv,z}" },
	{ SLICE_INIT("in_proj_z"), "in_proj_{qkv,z}" },
	{ SLICE_INIT("in_proj_a"), "in_proj_{a,b}" },
	{ SLICE_INIT("in_proj_b"), "in_proj_{a,b}" },
};

/* What a module's parameters are called; "weight." begins more of them. */
static const struct slice params[] = {
	SLICE_INIT("weight"),
	SLICE_INIT("bias"),
	SLICE_INIT("scale"),
	SLICE_INIT("weight_scale"),
	SLICE_INIT("weight_scale_inv"),
	SLICE_INIT("weight_scale_2"),
	SLICE_INIT("weight_global_scale"),
	SLICE_INIT("weight_packed"),
	SLICE_INIT("weight_shape"),
	SLICE_INIT("weight_zero_point"),
	SLICE_INIT("weight_g_idx"),
	SLICE_INIT("input_scale"),
	SLICE_INIT("input_global_scale"),
	SLICE_INIT("input_zero_point"),
	SLICE_INIT("output_scale"),
	SLICE_INIT("k_scale"),
	SLICE_INIT("v_scale"),
	SLICE_INIT("qweight"),
	SLICE_INIT("qzeros"),
	SLICE_INIT("scales"),
	SLICE_INIT("g_idx"),
};

/* Of parameters that are named like modules: experts.down_proj_scales. */
static const struct slice tails[] = {
	SLICE_INIT("_scale_inv"), SLICE_INIT("_scales"), SLICE_INIT("_blocks"),
	SLICE_INIT("_scale"),	  SLICE_INIT("_bias"),
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

/* All of the match, then each (...): a rule of so many bytes has no more. */
#define MATCHES_MAX (TOGETHER_RULE_MAX / 2 + 1)

static bool rule_key(const regex_t *rule, const char *name, struct buf *key)
{
	regmatch_t m[MATCHES_MAX];
	size_t n = rule->re_nsub + 1, i = 1;

	if (regexec(rule, name, n, m, 0) != 0)
		return false;
	while (i < n && m[i].rm_so < 0)
		i++;
	if (i == n)
		i = 0;
	buf_add(key, name + m[i].rm_so, (size_t)(m[i].rm_eo - m[i].rm_so));
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
		if (slice_eq(params[i], leaf))
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
		size_t n = tails[i].n;

		if (name.n > n &&
		    memcmp(name.p + name.n - n, tails[i].p, n) == 0)
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
		if (!slice_eq(fused[i].module, last))
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

#define BLOCK 32u /* names */

struct seat {
	uint32_t tag;  /* of the group's hash; 0: free */
	uint32_t last; /* of the group, so far */
};

/* Rules' keys and built-in ones are different groups. */
static uint64_t hash_key(const struct buf *key, enum together_kind kind)
{
	struct digest d;
	uint64_t h;

	digest_of(key->p, key->n, &d);
	memcpy(&h, d.b, sizeof h);
	return h ^ (uint64_t)kind << 33; /* in the tag, not its lowest bit */
}

static uint32_t tag_of(uint64_t hash)
{
	return (uint32_t)(hash >> 32) | 1;
}

static struct seat *seat_of(struct seat *v, uint64_t mask, uint64_t hash)
{
	uint64_t i = hash & mask;

	while (v[i].tag && v[i].tag != tag_of(hash))
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

/* 0: it is in no group. */
static uint64_t hash_group(const struct together *t, struct slice name,
			   struct buf *key)
{
	enum together_kind kind;

	buf_clear(key);
	kind = together_key(t, name, key);
	return kind == TOGETHER_ALONE ? 0 : hash_key(key, kind);
}

static void take_seat(struct together_links *l, struct seat *s, uint64_t hash,
		      uint32_t i)
{
	if (s->tag)
		l->next[s->last] = i;
	*s = (struct seat){ tag_of(hash), i };
}

/* Seats of many names lie in no cache: those of a block are fetched while its
 * names are hashed. */
void together_link(struct together_links *l, const struct together *t,
		   names_fn *get, const void *ctx, uint32_t n)
{
	uint64_t mask = seats_for(n) - 1, hash[BLOCK];
	struct seat *v = xcalloc(mask + 1, sizeof *v);
	struct buf key = { 0 };

	l->next = xreallocarray(NULL, n ? n : 1, sizeof *l->next);
	for (uint32_t i = 0, m; i < n; i += m) {
		m = n - i < BLOCK ? n - i : BLOCK;
		for (uint32_t k = 0; k < m; k++) {
			l->next[i + k] = TOGETHER_END;
			hash[k] = hash_group(t, get(ctx, i + k), &key);
			__builtin_prefetch(&v[hash[k] & mask], 1);
		}
		for (uint32_t k = 0; k < m; k++)
			if (hash[k])
				take_seat(l, seat_of(v, mask, hash[k]), hash[k],
					  i + k);
	}
	buf_release(&key);
	free(v);
}

void together_unlink(struct together_links *l)
{
	free(l->next);
	l->next = NULL;
}
