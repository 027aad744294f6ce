#include "opt_forward.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void words_add(struct words *w, const char *word)
{
	w->v = xreallocarray(w->v, w->n + 2, sizeof *w->v);
	w->v[w->n++] = xstrdup(word);
	w->v[w->n] = NULL;
}

void words_release(struct words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct words){ 0 };
}

static bool has_row(const struct opt_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->nopts; i++) {
		if (strcmp(spec->opts[i].name, name) == 0)
			return true;
	}
	return false;
}

static void add(struct words *out, const char *name, const char *value)
{
	char *word = xasprintf("--%s=%s", name, value);

	words_add(out, word);
	free(word);
}

static void add_number(struct words *out, const char *name, uint64_t value,
		       const char *unit)
{
	char *text = xasprintf("%" PRIu64 "%s", value, unit);

	add(out, name, text);
	free(text);
}

static void add_list(struct words *out, const char *name,
		     const struct opt_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		add(out, name, list->v[i]);
}

static void forward(const struct opt *o, const void *field, struct words *out)
{
	char *flag;

	switch (o->kind) {
	case OPT_FLAG:
		flag = xasprintf("--%s", o->name);
		words_add(out, flag);
		free(flag);
		return;
	case OPT_STRING:
		add(out, o->name, *(char *const *)field);
		return;
	case OPT_LIST:
		add_list(out, o->name, field);
		return;
	case OPT_SIZE:
	case OPT_UINT:
		add_number(out, o->name, *(const uint64_t *)field, "");
		return;
	case OPT_DURATION:
		add_number(out, o->name, (uint64_t) * (const int64_t *)field,
			   "ms");
		return;
	case OPT_CHOICE:
		add(out, o->name, o->choices[*(const unsigned *)field]);
		return;
	case OPT_COUNT:
	case OPT_HELP:
	case OPT_VERSION:
	case OPT_MAN:
	case OPT_BASH:
	case OPT_ZSH:
	case OPT_FISH:
		return; /* only in the common rows, which nobody forwards */
	}
}

void opt_forward(const struct opt_spec *from, const void *conf,
		 const struct opt_spec *to, struct words *out)
{
	for (size_t i = 0; i < from->nopts; i++) {
		const struct opt *o = &from->opts[i];

		if (has_row(to, o->name) && opt_is_given(from, conf, o->name))
			forward(o, (const char *)conf + o->offset, out);
	}
}
