#include "opt.h"
#include "err.h"
#include "io.h"
#include "log.h"
#include "opt_value.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUGGEST_MAX 40	/* characters of a name that are compared */
#define SUGGEST_EDITS 3 /* edits at which a name is still a near miss */

const struct opt opt_common_rows[] = {
	{ .name = "run",
	  OPT_TO_STRING(struct opt_common, run),
	  .value = "DIR",
	  .env = "WEIR_RUN",
	  .transient = true,
	  .help = "run directory" },
	{ .name = "registry",
	  OPT_TO_STRING(struct opt_common, registry),
	  .value = "DIR",
	  .env = "WEIR_REGISTRY",
	  .help = "the publisher's durable record" },
	{ .name = "json",
	  OPT_TO_FLAG(struct opt_common, json),
	  .transient = true,
	  .help = "one JSON object per event" },
	{ .name = "verbose",
	  .letter = 'v',
	  OPT_TO_COUNT(struct opt_common, verbose),
	  .transient = true,
	  .help = "log more; twice: everything" },
	{ .name = "quiet",
	  .letter = 'q',
	  OPT_TO_FLAG(struct opt_common, quiet),
	  .transient = true,
	  .help = "log errors only" },
	{ .name = "help",
	  .letter = 'h',
	  .kind = OPT_HELP,
	  .transient = true,
	  .help = "print this help" },
	{ .name = "version",
	  .kind = OPT_VERSION,
	  .transient = true,
	  .help = "print the version" },
	{ .name = "help-man",
	  .kind = OPT_MAN,
	  .hidden = true,
	  .transient = true,
	  .help = "print the options for the man page" },
	{ .name = "help-bash",
	  .kind = OPT_BASH,
	  .hidden = true,
	  .transient = true,
	  .help = "print the completions for bash" },
	{ .name = "help-zsh",
	  .kind = OPT_ZSH,
	  .hidden = true,
	  .transient = true,
	  .help = "print the completions for zsh" },
	{ .name = "help-fish",
	  .kind = OPT_FISH,
	  .hidden = true,
	  .transient = true,
	  .help = "print the completions for fish" },
};
const size_t opt_common_nrows = COUNT(opt_common_rows);

/* A row, with the field that it sets: own rows first, then common ones. */
struct ref {
	const struct opt *o;
	void *field;
	size_t index;
};

static size_t row_count(const struct opt_spec *spec)
{
	return spec->nopts + opt_common_nrows;
}

static struct opt_common *common_of(const struct opt_spec *spec,
				    const void *conf)
{
	return (struct opt_common *)((char *)conf + spec->common);
}

static struct ref row_at(const struct opt_spec *spec, const void *conf,
			 size_t i)
{
	struct ref r = { .index = i };
	char *base = (char *)conf;

	if (i < spec->nopts) {
		r.o = &spec->opts[i];
	} else {
		r.o = &opt_common_rows[i - spec->nopts];
		base = (char *)common_of(spec, conf);
	}
	r.field = base + r.o->offset;
	return r;
}

static bool row_is_named(const struct opt *o, struct slice name)
{
	if (slice_eq(slice_of(o->name), name))
		return true;
	for (size_t i = 0; i < OPT_NAMES_MAX && o->aliases[i]; i++)
		if (slice_eq(slice_of(o->aliases[i]), name))
			return true;
	return false;
}

static bool find_long(const struct opt_spec *spec, const void *conf,
		      struct slice name, struct ref *out)
{
	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);

		if (!row_is_named(r.o, name))
			continue;
		*out = r;
		return true;
	}
	return false;
}

static bool find_letter(const struct opt_spec *spec, const void *conf,
			char letter, struct ref *out)
{
	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);

		if (r.o->letter != letter)
			continue;
		*out = r;
		return true;
	}
	return false;
}

/* typed: "--max-inflight-bytes", as the user wrote it. */
static int bad_value(const struct opt *o, const char *typed, const char *s)
{
	struct buf want = { 0 };
	int rc;

	opt_value_expected(o, &want);
	rc = log_error(E_USAGE, "option %s: \"%s\" given, expected %s", typed,
		       s, buf_cstr(&want));
	buf_release(&want);
	return rc;
}

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edits that turn a into b (Levenshtein), of bounded names. */
static size_t distance(struct slice a, const char *b)
{
	size_t row[SUGGEST_MAX + 1], nb = strlen(b);

	if (a.n > SUGGEST_MAX || nb > SUGGEST_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= nb; j++)
		row[j] = j;
	for (size_t i = 1; i <= a.n; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			size_t change = diagonal + (a.p[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = min3(change, row[j] + 1, row[j - 1] + 1);
		}
	}
	return row[nb];
}

static int unknown_option(const struct opt_spec *spec, const void *conf,
			  struct slice name)
{
	size_t best = SUGGEST_EDITS + 1;
	const char *near = NULL;

	for (size_t i = 0; i < row_count(spec); i++) {
		const struct opt *o = row_at(spec, conf, i).o;
		size_t d = o->hidden ? best : distance(name, o->name);

		/* Most letters must agree: a short name is few edits from
		 * any other. */
		if (d >= best || 2 * d >= name.n)
			continue;
		best = d;
		near = o->name;
	}
	if (near)
		return log_error(E_USAGE,
				 "unknown option --%.*s; did you mean --%s?",
				 SLICE_ARG(name), near);
	return log_error(E_USAGE, "unknown option --%.*s; --help lists them",
			 SLICE_ARG(name));
}

static int print(struct buf *out)
{
	int rc = io_write_full(STDOUT_FILENO, out->p, out->n);

	buf_release(out);
	return rc < 0 ? rc : OPT_DONE;
}

static int answer(const struct opt_spec *spec, enum opt_kind kind)
{
	struct buf out = { 0 };

	if (kind == OPT_HELP)
		opt_help(spec, &out);
	else if (kind == OPT_MAN)
		opt_man(spec, &out);
	else if (kind >= OPT_BASH)
		opt_complete(spec, kind, &out);
	else
		buf_addf(&out, "%s (weir) %s\n", spec->program,
			 PACKAGE_VERSION);
	return print(&out);
}

/* Where the parser is; rest is what argv[i] still holds of letters. */
struct cursor {
	const struct opt_spec *spec;
	void *conf;
	int argc, i;
	char **argv;
};

/* A value that is itself an option is a value that was forgotten. */
static char *next_value(struct cursor *c)
{
	struct ref r;
	char *s;

	if (c->i + 1 >= c->argc)
		return NULL;
	s = c->argv[c->i + 1];
	if (s[0] == '-' && s[1] == '-' && s[2] &&
	    find_long(c->spec, c->conf,
		      (struct slice){ s + 2, strcspn(s + 2, "=") }, &r))
		return NULL;
	c->i++;
	return s;
}

/* value: what came with the option itself, or NULL. */
static int apply(struct cursor *c, struct ref r, const char *typed,
		 const char *value)
{
	if (!opt_takes_value(r.o) && value)
		return log_error(E_USAGE,
				 "option %s takes no value, got \"%s\"", typed,
				 value);
	if (r.o->kind >= OPT_HELP)
		return answer(c->spec, r.o->kind);
	if (opt_takes_value(r.o) && !value)
		value = next_value(c);
	if (opt_takes_value(r.o) && !value)
		return log_error(E_USAGE, "option %s needs a value: %s", typed,
				 r.o->value ? r.o->value : r.o->choices[0]);
	common_of(c->spec, c->conf)->given |= 1ull << r.index;
	if (!opt_value_set(r.o, r.field, value))
		return bad_value(r.o, typed, value);
	return 0;
}

static int parse_long(struct cursor *c, const char *arg)
{
	size_t n = strcspn(arg + 2, "=");
	struct slice name = { arg + 2, n };
	const char *value = arg[2 + n] ? arg + 2 + n + 1 : NULL;
	struct ref r;
	char *typed;
	int rc;

	if (!find_long(c->spec, c->conf, name, &r))
		return unknown_option(c->spec, c->conf, name);
	typed = xstrndup(arg, n + 2);
	rc = apply(c, r, typed, value);
	free(typed);
	return rc;
}

static int parse_letters(struct cursor *c, const char *arg)
{
	int rc = 0;

	for (const char *p = arg + 1; *p && rc == 0; p++) {
		char typed[3] = { '-', *p };
		struct ref r;

		if (!find_letter(c->spec, c->conf, *p, &r))
			return log_error(E_USAGE,
					 "unknown option -%c in \"%s\"; "
					 "--help lists them",
					 *p, arg);
		if (opt_takes_value(r.o))
			return apply(c, r, typed, p[1] ? p + 1 : NULL);
		rc = apply(c, r, typed, NULL);
	}
	return rc;
}

static int parse_args(struct cursor *c)
{
	struct opt_list *args = &common_of(c->spec, c->conf)->args;
	bool options = true;
	int rc = 0;

	for (c->i = 1; c->i < c->argc && rc == 0; c->i++) {
		const char *s = c->argv[c->i];

		if (!options || s[0] != '-' || !s[1]) {
			opt_list_add(args, s);
			options = options && !c->spec->stop_at_args;
		} else if (s[1] != '-') {
			rc = parse_letters(c, s);
		} else if (s[2]) {
			rc = parse_long(c, s);
		} else {
			options = false;
		}
	}
	return rc;
}

static int check_args(const struct opt_spec *spec, const struct opt_list *args)
{
	if (args->n > spec->max_args)
		return log_error(E_USAGE, "unexpected argument \"%s\"",
				 args->v[spec->max_args]);
	if (args->n < spec->min_args)
		return log_error(E_USAGE, "missing argument, expected %s",
				 spec->args);
	return 0;
}

static int apply_env(const struct opt_spec *spec, void *conf)
{
	struct opt_common *common = common_of(spec, conf);

	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);
		const char *s = r.o->env ? getenv(r.o->env) : NULL;

		if (!s || !*s || (common->given & (1ull << i)))
			continue;
		common->given |= 1ull << i;
		common->from_env |= 1ull << i;
		if (!opt_value_set(r.o, r.field, s))
			return bad_value(r.o, r.o->env, s);
	}
	return 0;
}

static void set_default(struct ref r)
{
	if (r.o->def && !opt_value_set(r.o, r.field, r.o->def))
		BUG("default \"%s\" of --%s", r.o->def, r.o->name);
}

static void start(const struct opt_spec *spec, void *conf)
{
	BUG_ON(row_count(spec) > OPT_ROWS_MAX);
	*common_of(spec, conf) = (struct opt_common){ 0 };
	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);

		/* Not opt_value_clear(): there is nothing to free yet. */
		if (r.o->kind == OPT_STRING)
			*(char **)r.field = NULL;
		else if (r.o->kind == OPT_LIST)
			*(struct opt_list *)r.field = (struct opt_list){ 0 };
		else
			opt_value_clear(r.o, r.field);
		set_default(r);
	}
}

static enum log_level level_of(const struct opt_common *common)
{
	if (common->quiet)
		return LOG_ERROR;
	if (common->verbose == 0)
		return LOG_WARN;
	return common->verbose == 1 ? LOG_INFO : LOG_DEBUG;
}

int opt_parse(const struct opt_spec *spec, void *conf, int argc, char **argv)
{
	struct cursor c = { spec, conf, argc, 0, argv };
	struct opt_common *common = common_of(spec, conf);
	int rc;

	io_start();
	log_init(spec->program, LOG_WARN);
	start(spec, conf);
	rc = parse_args(&c);
	if (rc == 0)
		rc = check_args(spec, &common->args);
	if (rc == 0)
		rc = apply_env(spec, conf);
	log_set_level(level_of(common));
	if (rc != 0)
		opt_release(spec, conf);
	return rc;
}

void opt_release(const struct opt_spec *spec, void *conf)
{
	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);

		opt_value_clear(r.o, r.field);
	}
	opt_list_release(&common_of(spec, conf)->args);
}

bool opt_is_given(const struct opt_spec *spec, const void *conf,
		  const char *name)
{
	struct ref r;

	if (!find_long(spec, conf, slice_of(name), &r))
		BUG("no option --%s", name);
	return common_of(spec, conf)->given & (1ull << r.index);
}

bool opt_is_from_env(const struct opt_spec *spec, const void *conf,
		     const char *name)
{
	struct ref r;

	if (!find_long(spec, conf, slice_of(name), &r))
		BUG("no option --%s", name);
	return common_of(spec, conf)->from_env & (1ull << r.index);
}

void opt_dump(const struct opt_spec *spec, const void *conf, struct buf *out)
{
	for (size_t i = 0; i < row_count(spec); i++) {
		struct ref r = row_at(spec, conf, i);

		if (!r.o->transient)
			opt_value_dump(r.o, r.field, out);
	}
}

/* All "name=" lines of text, as opt_value_dump() would print them. */
static void lines_of(const char *name, struct slice text, struct buf *out)
{
	size_t n = strlen(name);

	while (text.n) {
		const char *end = memchr(text.p, '\n', text.n);
		size_t len = end ? (size_t)(end - text.p) + 1 : text.n;

		if (len > n && text.p[n] == '=' && !memcmp(text.p, name, n))
			buf_add(out, text.p, len);
		text.p += len;
		text.n -= len;
	}
}

static int load_lines(struct ref r, struct slice lines)
{
	size_t skip = strlen(r.o->name) + 1;

	opt_value_clear(r.o, r.field);
	while (lines.n) {
		const char *end = memchr(lines.p, '\n', lines.n);
		size_t len = (size_t)(end - lines.p);
		struct slice value = { lines.p + skip, len - skip };

		if (!opt_value_load(r.o, r.field, value))
			return log_error(E_DATA, "recorded option \"%.*s\"",
					 (int)len, lines.p);
		lines.p += len + 1;
		lines.n -= len + 1;
	}
	return 0;
}

/* Lines on one line, for people. */
static const char *joined(struct buf *b)
{
	if (b->n && b->p[b->n - 1] == '\n')
		b->n--;
	for (size_t i = 0; i < b->n; i++)
		if (b->p[i] == '\n')
			b->p[i] = ' ';
	return b->n ? buf_cstr(b) : "not set";
}

static int load_row(const struct opt_spec *spec, void *conf, struct ref r,
		    struct slice text)
{
	bool given = common_of(spec, conf)->given & (1ull << r.index);
	struct buf mine = { 0 }, theirs = { 0 };
	int rc = 0;

	opt_value_dump(r.o, r.field, &mine);
	lines_of(r.o->name, text, &theirs);
	if (slice_eq(buf_slice(&mine), buf_slice(&theirs)))
		goto out;
	if (given)
		rc = log_error(E_USAGE,
			       "option --%s: the run was started with \"%s\", "
			       "now it is \"%s\"",
			       r.o->name, joined(&theirs), joined(&mine));
	else
		rc = load_lines(r, buf_slice(&theirs));
out:
	buf_release(&mine);
	buf_release(&theirs);
	return rc;
}

/* Every line must be whole and name a row that is dumped. */
static int check_lines(const struct opt_spec *spec, const void *conf,
		       struct slice text)
{
	while (text.n) {
		const char *end = memchr(text.p, '\n', text.n);
		size_t len = end ? (size_t)(end - text.p) : text.n;
		const char *eq = memchr(text.p, '=', len);
		struct slice name = { text.p, eq ? (size_t)(eq - text.p) : 0 };
		struct ref r;

		if (!end || !eq || !find_long(spec, conf, name, &r) ||
		    r.o->transient || !slice_eq(slice_of(r.o->name), name))
			return log_error(E_DATA, "recorded option \"%.*s\"",
					 (int)len, text.p);
		text.p += len + 1;
		text.n -= len + 1;
	}
	return 0;
}

/* What is always dumped has a line: without one its field would be zero,
 * which may be out of its range. */
static int check_whole(const struct ref *r, struct slice text)
{
	bool dumped = r->o->def || r->o->kind == OPT_FLAG ||
		      r->o->kind == OPT_COUNT || r->o->kind == OPT_CHOICE;
	struct buf lines = { 0 };
	int rc = 0;

	lines_of(r->o->name, text, &lines);
	if (dumped && lines.n == 0)
		rc = log_error(E_DATA, "recorded options without \"%s\"",
			       r->o->name);
	buf_release(&lines);
	return rc;
}

int opt_load(const struct opt_spec *spec, void *conf, struct slice text)
{
	int rc = check_lines(spec, conf, text);

	for (size_t i = 0; i < row_count(spec) && rc == 0; i++) {
		struct ref r = row_at(spec, conf, i);

		if (!r.o->transient)
			rc = load_row(spec, conf, r, text);
	}
	for (size_t i = 0; i < row_count(spec) && rc == 0; i++) {
		struct ref r = row_at(spec, conf, i);

		if (!r.o->transient)
			rc = check_whole(&r, text);
	}
	return rc;
}
