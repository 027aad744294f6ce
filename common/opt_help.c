#include "opt.h"
#include "opt_value.h"

#include <string.h>

#define HELP_COLUMN 26 /* where the explanation starts */
#define HELP_WIDTH 79  /* columns of a line */

/* "SIZE", "wave|window"; "" for flags. */
static void opt_value_name(const struct opt *o, struct buf *out)
{
	if (!opt_takes_value(o))
		return;
	if (o->kind != OPT_CHOICE || o->value) {
		buf_addf(out, "%s", o->value);
		return;
	}
	for (size_t i = 0; o->choices[i]; i++)
		buf_addf(out, "%s%s", i ? "|" : "", o->choices[i]);
}

/* The help line and what the table knows beside it. */
static void add_text(const struct opt *o, struct buf *out)
{
	buf_addf(out, "%s", o->help);
	if (o->kind == OPT_LIST)
		buf_addf(out, " (may be repeated)");
	if (o->def)
		buf_addf(out, " (default %s)", o->def);
	if (o->env)
		buf_addf(out, " (or %s in the environment)", o->env);
}

static void pad(struct buf *out, size_t n)
{
	while (n--)
		buf_add(out, " ", 1);
}

/* Words at HELP_COLUMN, of which the first line has its indent already. */
static void wrap(const char *text, struct buf *out)
{
	size_t column = HELP_COLUMN;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (column > HELP_COLUMN && column + 1 + n > HELP_WIDTH) {
			buf_add(out, "\n", 1);
			pad(out, HELP_COLUMN);
			column = HELP_COLUMN;
		} else if (column > HELP_COLUMN) {
			buf_add(out, " ", 1);
			column++;
		}
		buf_add(out, text, n);
		column += n;
		text += n;
		text += strspn(text, " ");
	}
	buf_add(out, "\n", 1);
}

static void help_row(const struct opt *o, struct buf *out)
{
	struct buf value = { 0 }, text = { 0 };
	size_t before = out->n;

	opt_value_name(o, &value);
	add_text(o, &text);
	if (o->letter)
		buf_addf(out, "  -%c, ", o->letter);
	else
		pad(out, 6);
	buf_addf(out, "--%s%s%s", o->name, value.n ? " " : "",
		 buf_cstr(&value));
	/* Two blanks between the name and the text, or a new line. */
	if (out->n - before + 2 > HELP_COLUMN) {
		buf_add(out, "\n", 1);
		pad(out, HELP_COLUMN);
	} else {
		pad(out, HELP_COLUMN - (out->n - before));
	}
	wrap(buf_cstr(&text), out);
	buf_release(&value);
	buf_release(&text);
}

static void help_rows(const char *title, const struct opt *rows, size_t n,
		      struct buf *out)
{
	buf_addf(out, "\n%s:\n", title);
	for (size_t i = 0; i < n; i++)
		if (!rows[i].hidden)
			help_row(&rows[i], out);
}

void opt_help(const struct opt_spec *spec, struct buf *out)
{
	buf_addf(out, "usage: %s [OPTION]...%s%s\n%s: %s.\n", spec->program,
		 spec->args ? " " : "", spec->args ? spec->args : "",
		 spec->program, spec->summary);
	if (spec->nopts)
		help_rows("options", spec->opts, spec->nopts, out);
	help_rows("common options", opt_common_rows, opt_common_nrows, out);
}

/* Plain text for a text line of roff. */
static void roff_text(const char *s, struct buf *out)
{
	if (*s == '.' || *s == '\'')
		buf_add(out, "\\&", 2);
	for (; *s; s++) {
		if (*s == '\\')
			buf_add(out, "\\e", 2);
		else if (*s == '-')
			buf_add(out, "\\-", 2);
		else
			buf_add(out, s, 1);
	}
}

static void man_aliases(const struct opt *o, struct buf *out)
{
	for (size_t i = 0; i < OPT_NAMES_MAX && o->aliases[i]; i++)
		buf_addf(out, "%s\n.Fl -%s",
			 i ? " ," : "The same option under another name:",
			 o->aliases[i]);
	if (o->aliases[0])
		buf_addf(out, " .\n");
}

static void man_row(const struct opt *o, struct buf *out)
{
	struct buf value = { 0 }, text = { 0 };

	opt_value_name(o, &value);
	add_text(o, &text);
	buf_addf(out, ".It ");
	if (o->letter)
		buf_addf(out, "Fl %c , ", o->letter);
	buf_addf(out, "Fl -%s", o->name);
	if (value.n)
		buf_addf(out, " Ar %s", buf_cstr(&value));
	buf_add(out, "\n", 1);
	roff_text(buf_cstr(&text), out);
	buf_add(out, ".\n", 2);
	man_aliases(o, out);
	buf_release(&value);
	buf_release(&text);
}

static void man_rows(const struct opt *rows, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		if (!rows[i].hidden)
			man_row(&rows[i], out);
}

void opt_man(const struct opt_spec *spec, struct buf *out)
{
	buf_addf(out, ".Sh OPTIONS\n.Bl -tag -width Ds\n");
	man_rows(spec->opts, spec->nopts, out);
	man_rows(opt_common_rows, opt_common_nrows, out);
	buf_addf(out, ".El\n");
}
