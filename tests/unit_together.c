#include "common/err.h"
#include "common/log.h"
#include "common/together.h"
#include "tests/tap.h"

#include <stdlib.h>

static struct together rules(char *const *rule, size_t n)
{
	struct together t;

	ok(together_init(&t, rule, n) == 0, "rules are fine");
	return t;
}

#define RULES(...)                            \
	rules((char *const[]){ __VA_ARGS__ }, \
	      COUNT(((char *const[]){ __VA_ARGS__ })))

static void key_is(const struct together *t, const char *name,
		   enum together_kind kind, const char *want)
{
	struct buf key = { 0 };
	enum together_kind got = together_key(t, slice_of(name), &key);

	ok(got == kind, "%s: kind %d", name, kind);
	eq_str(buf_cstr(&key), want, name);
	buf_release(&key);
}

/* All have the key want. */
static void one_group(const char *want, const char *const *name)
{
	struct together t = rules(NULL, 0);

	for (; *name; name++)
		key_is(&t, *name, TOGETHER_WISH, want);
	together_release(&t);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void test_built_in(void)
{
	one_group("m.0.attn.{q,k,v}_proj",
		  NAMES("m.0.attn.q_proj.weight", "m.0.attn.k_proj.weight",
			"m.0.attn.v_proj.bias", "m.0.attn.v_proj.k_scale",
			"m.0.attn.k_proj.weight_scale_inv"));
	one_group("m.0.mlp.{gate,up}_proj",
		  NAMES("m.0.mlp.up_proj.weight", "m.0.mlp.gate_proj.scales",
			"m.0.mlp.gate_proj.qweight"));
	one_group("m.0.attn.{q,kv}_a_proj",
		  NAMES("m.0.attn.q_a_proj.weight",
			"m.0.attn.kv_a_proj_with_mqa.weight"));
	one_group("m.experts.7.{w1,w3}",
		  NAMES("m.experts.7.w1.weight", "m.experts.7.w3.weight"));
	one_group("m.experts.7.w2", NAMES("m.experts.7.w2.weight"));
	one_group("a.ff_proj",
		  NAMES("a.ff_proj.weight", "a.ff_proj.weight.absmax",
			"a.ff_proj.weight.quant_state.bitsandbytes__nf4"));
	one_group("m.experts.down_proj",
		  NAMES("m.experts.down_proj", "m.experts.down_proj_blocks",
			"m.experts.down_proj_scales",
			"m.experts.down_proj_bias"));
	one_group("m.0.attn.A_log", NAMES("m.0.attn.A_log"));
}

static void test_odd_names(void)
{
	one_group("weight", NAMES("weight"));
	one_group("", NAMES(""));
	one_group(".weight", NAMES(".weight"));
	one_group("{q,k,v}_proj", NAMES("q_proj.weight", "k_proj"));
	one_group("_scale", NAMES("_scale"));
}

static void test_rules(void)
{
	struct together t = RULES("^(l\\.[0-9]+\\.)", "b+");

	key_is(&t, "l.12.q_proj.weight", TOGETHER_MUST, "l.12.");
	key_is(&t, "l.1.q_proj.weight", TOGETHER_MUST, "l.1.");
	key_is(&t, "abbbc", TOGETHER_MUST, "bbb");
	key_is(&t, "x.k_proj.weight", TOGETHER_WISH, "x.{q,k,v}_proj");
	together_release(&t);
	t = RULES("none", "x(y)?");
	key_is(&t, "x", TOGETHER_MUST, "x");
	key_is(&t, "xy", TOGETHER_MUST, "y");
	key_is(&t, "q_proj.weight", TOGETHER_ALONE, "");
	together_release(&t);
	t = RULES("none", "(l[0-9]+)\\.a|(b[0-9]+)\\.a");
	key_is(&t, "l1.a", TOGETHER_MUST, "l1");
	key_is(&t, "b1.a", TOGETHER_MUST, "b1");
	together_release(&t);
}

static void refused(char *rule, const char *why)
{
	struct together t;
	int rc, was = log_quiet_thread(1);

	rc = together_init(&t, &rule, 1);
	log_quiet_thread(was);
	ok(rc == -E_USAGE, "refused: %.40s", rule);
	ok(strstr(log_cause(), why) != NULL, "as \"%s\": %s", why, log_cause());
}

static void test_bounds(void)
{
	char *many[TOGETHER_RULES_MAX + 1], longest[TOGETHER_RULE_MAX + 2];
	struct together t;
	int rc, was;

	memset(longest, 'a', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	refused(longest, "longer than 512");
	refused("(a)\\1", "back-references");
	refused("(a{100}){100}", "repetitions");
	refused("a{99999999999999999999}", "repetitions");
	refused("(", "\"(\"");
	t = RULES("a\\{2000", "(a{10}){1,100}", "\\\\1");
	together_release(&t);
	for (size_t i = 0; i < COUNT(many); i++)
		many[i] = "a";
	was = log_quiet_thread(1);
	rc = together_init(&t, many, COUNT(many));
	log_quiet_thread(was);
	ok(rc == -E_USAGE, "too many rules");
}

static struct slice nth(const void *ctx, uint32_t i)
{
	return slice_of(((const char *const *)ctx)[i]);
}

static void test_links(void)
{
	static const char *const name[] = {
		"a.k_proj.weight", "a.norm.weight",   "a.o_proj.weight",
		"a.q_proj.weight", "b.q_proj.weight", "a.v_proj.weight",
	};
	struct together t = rules(NULL, 0);
	struct together_links l;

	together_link(&l, &t, nth, name, COUNT(name));
	eq_u64(l.next[0], 3, "k to q");
	eq_u64(l.next[3], 5, "q to v");
	eq_u64(l.next[5], TOGETHER_END, "v is the last");
	eq_u64(l.next[1], TOGETHER_END, "alone");
	eq_u64(l.next[4], TOGETHER_END, "another layer");
	together_unlink(&l);
	together_link(&l, &t, nth, name, 0);
	together_unlink(&l);
	together_release(&t);
}

/* Rules' keys and built-in ones may be the same text. */
static void test_links_by_kind(void)
{
	static const char *const name[] = { "x.y", "x", "x.z" };
	struct together t = RULES("(x)\\.");
	struct together_links l;

	together_link(&l, &t, nth, name, COUNT(name));
	eq_u64(l.next[0], 2, "by the rule");
	eq_u64(l.next[1], TOGETHER_END, "not by the rule");
	together_unlink(&l);
	together_release(&t);
}

int main(void)
{
	test_built_in();
	test_odd_names();
	test_rules();
	test_bounds();
	test_links();
	test_links_by_kind();
	return tap_done();
}
