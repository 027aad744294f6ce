#include "srchead.h"
#include "err.h"
#include "io.h"
#include "jsonsax.h"
#include "log.h"

#include <string.h>
#include <unistd.h>

#define CONFIG "config.json"

enum said { SAID_NOTHING, SAID_TRUE, SAID_FALSE };

/* What is asked of config.json. */
struct config {
	enum said tied, text_tied; /* top level, text_config */
	bool names_classes, is_generator;
	unsigned depth;
	bool in_text, in_classes;
	enum { OTHER, TIED, TEXT, CLASSES } key;
};

static void on_key(struct config *c, struct slice text)
{
	bool known = c->depth == 1 || (c->depth == 2 && c->in_text);

	c->key = OTHER;
	if (known && slice_eq(text, SLICE("tie_word_embeddings")))
		c->key = TIED;
	else if (c->depth == 1 && slice_eq(text, SLICE("text_config")))
		c->key = TEXT;
	else if (c->depth == 1 && slice_eq(text, SLICE("architectures")))
		c->key = CLASSES;
}

static bool ends_in(struct slice s, const char *tail)
{
	size_t n = strlen(tail);

	return s.n >= n && memcmp(s.p + s.n - n, tail, n) == 0;
}

static void on_class(struct config *c, struct slice text)
{
	c->names_classes = true;
	if (ends_in(text, "ForCausalLM") ||
	    ends_in(text, "ForConditionalGeneration"))
		c->is_generator = true;
}

static void on_scalar(struct config *c, enum json_event ev, struct slice text)
{
	if (c->in_classes && ev == JSON_STRING)
		on_class(c, text);
	if (c->key == TIED && (ev == JSON_TRUE || ev == JSON_FALSE))
		*(c->depth == 1 ? &c->tied : &c->text_tied) =
			ev == JSON_TRUE ? SAID_TRUE : SAID_FALSE;
	c->key = OTHER;
}

static int on_event(void *ctx, enum json_event ev, struct slice text)
{
	struct config *c = ctx;

	switch (ev) {
	case JSON_KEY:
		on_key(c, text);
		break;
	case JSON_OBJECT:
	case JSON_ARRAY:
		c->in_text |= ev == JSON_OBJECT && c->key == TEXT;
		c->in_classes |= ev == JSON_ARRAY && c->key == CLASSES;
		c->key = OTHER;
		c->depth++;
		break;
	case JSON_OBJECT_END:
	case JSON_ARRAY_END:
		if (--c->depth == 1)
			c->in_text = c->in_classes = false;
		break;
	default:
		on_scalar(c, ev, text);
	}
	return 0;
}

static enum said read_config(struct config *c, struct slice text,
			     const char **why)
{
	struct json j;
	int rc;

	json_begin(&j, SOURCE_CONFIG_MAX, on_event, c);
	json_allow_python(&j);
	rc = json_feed(&j, text.p, text.n);
	if (rc == 0)
		rc = json_end(&j);
	*why = rc < 0 ? json_error(&j) : NULL;
	json_release(&j);
	if (rc < 0)
		return SAID_NOTHING;
	return c->tied != SAID_NOTHING ? c->tied : c->text_tied;
}

static int slurp(int fd, size_t size, struct buf *b)
{
	int n = io_read_full(fd, buf_reserve(b, size), size);

	if (n < 0)
		return n;
	b->n = (size_t)n;
	return 0;
}

/* What config.json says; nothing is no failure. */
static int ask_config(const struct source *s, struct config *c, enum said *tied)
{
	struct srcdir_id id;
	struct buf b = { 0 };
	const char *why = NULL;
	int fd = srcdir_open_file(&s->dir, CONFIG, &id), rc = 0;

	*tied = SAID_NOTHING;
	if (fd < 0)
		return fd == -E_NOINPUT ? 0 : fd;
	if (id.size > SOURCE_CONFIG_MAX)
		why = "too large";
	else
		rc = slurp(fd, (size_t)id.size, &b);
	close(fd);
	if (rc == 0 && !why)
		*tied = read_config(c, buf_slice(&b), &why);
	if (why)
		log_warn("%s/" CONFIG ": %s: not asked whether the head is "
			 "tied",
			 s->dir.path, why);
	buf_release(&b);
	return rc;
}

/* In wrappers the language model's names have a prefix. */
static bool is_or_ends_in(struct slice name, const char *part)
{
	size_t n = strlen(part);

	return ends_in(name, part) &&
	       (name.n == n || name.p[name.n - n - 1] == '.');
}

static bool is_of_head(struct slice name)
{
	return is_or_ends_in(name, "lm_head.weight") ||
	       is_or_ends_in(name, "lm_head.qweight");
}

int srchead_check(struct source *s)
{
	struct source_iter it = { .s = s };
	struct config c = { 0 };
	struct source_tensor t;
	bool embeds = false, heads = false;
	enum said tied;
	int rc;

	while (source_next(&it, &t)) {
		heads |= is_of_head(t.name);
		embeds |= is_or_ends_in(t.name, "embed_tokens.weight");
	}
	s->head = heads ? SOURCE_HEAD_SENT : SOURCE_HEAD_UNKNOWN;
	if (heads || !embeds)
		return 0;
	rc = ask_config(s, &c, &tied);
	if (rc < 0)
		return rc;
	if (c.names_classes && !c.is_generator)
		return 0;
	if (tied == SAID_FALSE)
		return log_error(E_DATA,
				 "source %s: lm_head.weight is missing: " CONFIG
				 " says tie_word_embeddings false",
				 s->dir.path);
	s->head = SOURCE_HEAD_TIED;
	log_info("source %s: lm_head.weight: tied, not sent", s->dir.path);
	return 0;
}
