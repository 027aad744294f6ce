/*
 * opt.h - command lines: one table per program says everything about its
 * options, and parsing, --help, the man page and STAGE.options derive from
 * it.
 *
 *	static const struct opt rows[] = {
 *		{ .name = "max-inflight-bytes",
 *		  OPT_TO_SIZE(struct admit_conf, max_bytes),
 *		  .value = "SIZE", .def = "0",
 *		  .aliases = { "update-weight-max-inflight-bytes" },
 *		  .help = "credit in bytes; 0: this dimension is off" },
 *	};
 *	static const struct opt_spec spec = {
 *		.program = "weir-admit",
 *		.summary = "say when buckets may move",
 *		.opts = rows, .nopts = COUNT(rows),
 *		.common = offsetof(struct admit_conf, common),
 *	};
 *	rc = opt_parse(&spec, &conf, argc, argv);
 *	if (rc != 0)
 *		return err_exit_code(rc);
 *
 * Strict: a value is exactly what its kind says or a usage error (one line,
 * quoting option, value and what was expected).  Numbers are plain decimal
 * digits and never depend on the locale.  Names are never abbreviated.  Of
 * an option given twice the last counts, except for lists.  "--name=value",
 * "--name value", "-oFILE", "-o FILE", "-vq" and "--" mean what they always
 * mean; options and arguments may be mixed.
 *
 * A conf struct is only memory to this module: rows say by offset where a
 * value goes, and OPT_TO_* check its type.  It never exits the process.
 */
#ifndef WEIR_OPT_H
#define WEIR_OPT_H

#include "buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPT_DONE	1	/* --help or --version was answered */
#define OPT_NAMES_MAX	3	/* other names of one option */
#define OPT_ROWS_MAX	64	/* a spec's rows and the common ones */

/* Owned strings, in the order in which they were given. */
struct opt_list {
	char **v;
	size_t n;
};

void opt_list_add(struct opt_list *l, const char *s);	/* a copy of s */
void opt_list_release(struct opt_list *l);

enum opt_kind {
	OPT_FLAG,	/* bool */
	OPT_COUNT,	/* unsigned: how often it was given */
	OPT_STRING,	/* char *, owned; NULL: not given; never "" */
	OPT_LIST,	/* struct opt_list: may be given again and again */
	OPT_SIZE,	/* uint64_t, bytes */
	OPT_UINT,	/* uint64_t */
	OPT_DURATION,	/* int64_t, milliseconds */
	OPT_CHOICE,	/* unsigned or enum: index into choices */
	/* Of the common table: answered at once. */
	OPT_HELP, OPT_VERSION, OPT_MAN, OPT_BASH, OPT_ZSH, OPT_FISH
};

struct opt {
	const char *name;		/* without "--" */
	char letter;			/* 0: none */
	enum opt_kind kind;
	size_t offset;
	const char *value;		/* for people: "SIZE"; NULL for CHOICE */
	const char *def;		/* as typed; NULL: zero, "not given" */
	uint64_t min, max;		/* of numbers; max 0: the type's */
	const char *const *choices;	/* NULL at the end */
	const char *aliases[OPT_NAMES_MAX];	/* accepted, not advertised */
	const char *env;		/* used where the option is not given */
	const char *help;		/* a line without full stop */
	bool hidden;			/* not in --help and the man page */
	bool transient;		/* not a property of the run: not dumped */
};

#define OPT_TO_(k, type, conf, field)					\
	.kind = (k), .offset = offsetof(conf, field) +			\
		0 * sizeof(_Generic(((conf *)0)->field, type: 0))
#define OPT_TO_FLAG(c, f)	OPT_TO_(OPT_FLAG, bool, c, f)
#define OPT_TO_COUNT(c, f)	OPT_TO_(OPT_COUNT, unsigned, c, f)
#define OPT_TO_STRING(c, f)	OPT_TO_(OPT_STRING, char *, c, f)
#define OPT_TO_LIST(c, f)	OPT_TO_(OPT_LIST, struct opt_list, c, f)
#define OPT_TO_SIZE(c, f)	OPT_TO_(OPT_SIZE, uint64_t, c, f)
#define OPT_TO_UINT(c, f)	OPT_TO_(OPT_UINT, uint64_t, c, f)
#define OPT_TO_DURATION(c, f)	OPT_TO_(OPT_DURATION, int64_t, c, f)
#define OPT_TO_CHOICE(c, f)						\
	.kind = OPT_CHOICE, .offset = offsetof(c, f) +			\
		0 * sizeof(char[sizeof(((c *)0)->f) ==			\
				sizeof(unsigned) ? 1 : -1])

/* What every program has, somewhere in its conf. */
struct opt_common {
	unsigned verbose;
	bool quiet, json;
	char *run, *registry;
	struct opt_list args;	/* positional arguments */
	uint64_t given;		/* bit i: row i of the spec was given */
	uint64_t from_env;	/* ... by the environment alone */
};

extern const struct opt opt_common_rows[];	/* offsets: opt_common */
extern const size_t opt_common_nrows;

struct opt_spec {
	const char *program;	/* "weir-admit" */
	const char *summary;	/* a line without full stop */
	const char *args;	/* "[FILE]", NULL: none */
	unsigned min_args, max_args;
	bool stop_at_args;	/* all from the first argument on is args */
	const struct opt *opts;
	size_t nopts;
	size_t common;		/* offset of struct opt_common in conf */
};

/*
 * Sets every option's field in conf (its value, else the environment, else
 * the default) and the log's name and level.  Returns 0; OPT_DONE when
 * --help or --version was answered on stdout; -E_USAGE (one line logged) or
 * the error of writing stdout.  conf holds nothing to release unless 0.
 */
int opt_parse(const struct opt_spec *spec, void *conf, int argc, char **argv);
void opt_release(const struct opt_spec *spec, void *conf);
/* Was the option given on the command line (or by environment)? */
bool opt_is_given(const struct opt_spec *spec, const void *conf,
		  const char *name);

/* Was it by environment? */
bool opt_is_from_env(const struct opt_spec *spec, const void *conf,
		     const char *name);

/* The resolved options as "name=value" lines in table order, lists as one
 * line per element, unset and transient ones left out.  Appends to out. */
void opt_dump(const struct opt_spec *spec, const void *conf, struct buf *out);
/*
 * The options of an earlier instance, from its dump: takes each value that
 * was not given to this one.  -E_USAGE if a given one differs (both are
 * named), -E_DATA if text is no dump of this spec.
 */
int opt_load(const struct opt_spec *spec, void *conf, struct slice text);

/* What --help and --help-man print; both append to out. */
void opt_help(const struct opt_spec *spec, struct buf *out);
void opt_man(const struct opt_spec *spec, struct buf *out);
/* What --help-bash, --help-zsh and --help-fish print: completions of this
 * program for that shell. */
void opt_complete(const struct opt_spec *spec, enum opt_kind shell,
		  struct buf *out);
/* The same for a program whose first argument is one of n names, as of the
 * programs PROGRAM-NAME, each of which has its own. */
struct opt_name {
	const char *name, *does;
};
void opt_complete_names(const char *program, const struct opt_name *v,
			size_t n, enum opt_kind shell, struct buf *out);

/* The values alone.  Quiet; false, and out untouched, if s is none. */
bool opt_read_uint(const char *s, uint64_t *out);
bool opt_read_size(const char *s, uint64_t *bytes);
bool opt_read_duration(const char *s, int64_t *ms);

#endif
