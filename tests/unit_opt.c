#include "common/err.h"
#include "common/log.h"
#include "common/opt.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

struct conf {
	char *source;
	uint64_t bytes, groups, version;
	int64_t wait;
	bool split;
	unsigned order;
	struct opt_list engines;
	struct opt_common common;
};

static const char *const orders[] = { "auto", "wave", "window", NULL };

static const struct opt rows[] = {
	{ .name = "source",
	  .letter = 's',
	  OPT_TO_STRING(struct conf, source),
	  .value = "DIR",
	  .help = "where the bytes come from" },
	{ .name = "max-inflight-bytes",
	  OPT_TO_SIZE(struct conf, bytes),
	  .value = "SIZE",
	  .def = "0",
	  .aliases = { "update-weight-max-inflight-bytes" },
	  .help = "credit in bytes; 0 means that this dimension of the credit "
		  "is off" },
	{ .name = "max-inflight-engine-groups",
	  OPT_TO_UINT(struct conf, groups),
	  .value = "N",
	  .def = "0",
	  .max = 4096,
	  .aliases = { "update-weight-max-inflight-engine-groups" },
	  .help = "engines of a wave" },
	{ .name = "weight-version",
	  OPT_TO_UINT(struct conf, version),
	  .value = "N",
	  .min = 1,
	  .help = "number of the version" },
	{ .name = "wait",
	  OPT_TO_DURATION(struct conf, wait),
	  .value = "TIME",
	  .def = "60s",
	  .help = "for the lock" },
	{ .name = "split-tensors",
	  OPT_TO_FLAG(struct conf, split),
	  .help = "split \\ tensors" },
	{ .name = "order",
	  OPT_TO_CHOICE(struct conf, order),
	  .choices = orders,
	  .def = "auto",
	  .help = "order of buckets" },
	{ .name = "engine",
	  .letter = 'e',
	  OPT_TO_LIST(struct conf, engines),
	  .value = "ENDPOINT",
	  .help = "an engine" },
};

static struct opt_spec spec = {
	.program = "weir-test",
	.summary = "test options",
	.args = "[FILE]",
	.max_args = 1,
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct conf, common),
};

static struct conf conf;

#define ARGS_MAX 16

/* The words of line are the arguments; '_' stands for an empty one. */
static int parse(const char *line)
{
	char *copy = strdup(line), *argv[ARGS_MAX + 1] = { "weir-test" };
	int argc = 1, rc;

	for (char *s = strtok(copy, " "); s && argc < ARGS_MAX;
	     s = strtok(NULL, " "))
		argv[argc++] = strcmp(s, "_") == 0 ? "" : s;
	rc = opt_parse(&spec, &conf, argc, argv);
	free(copy);
	return rc;
}

/* line is refused, and the one line says cause. */
static void refused(const char *line, const char *cause)
{
	bool good = parse(line) == -E_USAGE && strcmp(log_cause(), cause) == 0;

	ok(good, "refused: %s", line);
	if (!good)
		printf("# got  %s\n# want %s\n", log_cause(), cause);
}

static void done(void)
{
	opt_release(&spec, &conf);
}

static void test_defaults(void)
{
	eq_i64(parse(""), 0, "no arguments");
	ok(!conf.source && conf.bytes == 0 && conf.groups == 0 &&
		   conf.wait == 60000 && conf.order == 0 && !conf.split &&
		   conf.engines.n == 0 && conf.common.args.n == 0,
	   "defaults");
	ok(!opt_is_given(&spec, &conf, "max-inflight-bytes"), "none given");
	done();
}

static void test_values(void)
{
	eq_i64(parse("--source=a -s b --max-inflight-bytes 2GiB "
		     "--max-inflight-engine-groups=4096 -e x -ey "
		     "--split-tensors --order window --wait 2m file"),
	       0, "all kinds");
	eq_str(conf.source, "b", "the last one counts");
	eq_u64(conf.bytes, 2ull << 30, "size");
	eq_u64(conf.groups, 4096, "the largest number");
	ok(conf.engines.n == 2 && !strcmp(conf.engines.v[0], "x") &&
		   !strcmp(conf.engines.v[1], "y"),
	   "a list in order");
	ok(conf.split && conf.order == 2, "flag and choice");
	eq_i64(conf.wait, 120000, "duration");
	ok(conf.common.args.n == 1 && !strcmp(conf.common.args.v[0], "file"),
	   "argument");
	ok(opt_is_given(&spec, &conf, "order"), "given");
	done();
	eq_i64(parse("--update-weight-max-inflight-engine-groups 3 -vvq "
		     "--json -- --x"),
	       0, "alias, bundled letters, end of options");
	eq_u64(conf.groups, 3, "alias sets the field");
	ok(conf.common.verbose == 2 && conf.common.quiet && conf.common.json,
	   "common options");
	eq_str(conf.common.args.v[0], "--x", "argument after --");
	done();
	ok(parse("-") == 0 && conf.common.args.n == 1, "- is an argument");
	done();
}

#define SIZE_WANTED \
	"expected a size in bytes, or with KiB, MiB, GiB, TiB, kB, MB, GB, TB"
#define GROUPS "--max-inflight-engine-groups"

static void test_refused(void)
{
	static const char *const sizes[] = { "-1",    "1.5",   "+1",	"0x10",
					     "1 MiB", "1mib",  "1K",	"MiB",
					     "1e3",   "1MiBx", "1,000", " 1" };

	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint64_t v = 7;

		ok(!opt_read_size(sizes[i], &v) && v == 7, "no size: %s",
		   sizes[i]);
	}
	refused("--max-inflight-bytes 1.5",
		"option --max-inflight-bytes: \"1.5\" given, " SIZE_WANTED);
	refused("--max-inflight-bytes=",
		"option --max-inflight-bytes: \"\" given, " SIZE_WANTED);
	refused("--max-inflight-bytes 16777216TiB",
		"option --max-inflight-bytes: \"16777216TiB\" "
		"given, " SIZE_WANTED);
	refused("--update-weight-max-inflight-bytes -1",
		"option --update-weight-max-inflight-bytes: \"-1\" "
		"given, " SIZE_WANTED);
	refused(GROUPS " 4097", "option " GROUPS ": \"4097\" given, expected a "
				"whole number from 0 to 4096");
	refused(GROUPS " 18446744073709551616",
		"option " GROUPS ": \"18446744073709551616\" given, expected a "
		"whole number from 0 to 4096");
	refused("--weight-version 0",
		"option --weight-version: \"0\" given, expected a whole number "
		"of at least 1");
	refused("--wait 5", "option --wait: \"5\" given, expected a time with "
			    "its unit, as in 500ms, 5s, 2m, 1h");
	refused("--order waves", "option --order: \"waves\" given, expected "
				 "one of auto, wave, window");
	refused("--source _",
		"option --source: \"\" given, expected DIR that is not empty");
	refused("--source", "option --source needs a value: DIR");
	refused("--source --order wave", "option --source needs a value: DIR");
	refused("-s", "option -s needs a value: DIR");
	refused("--json=1", "option --json takes no value, got \"1\"");
	refused("--max-inflight-byte 1",
		"unknown option --max-inflight-byte; did you mean "
		"--max-inflight-bytes?");
	refused("--nonsense", "unknown option --nonsense; --help lists them");
	refused("--only", "unknown option --only; --help lists them");
	refused("--max", "unknown option --max; --help lists them");
	refused("-vx", "unknown option -x in \"-vx\"; --help lists them");
	refused("a b", "unexpected argument \"b\"");
	spec.min_args = 1;
	refused("", "missing argument, expected [FILE]");
	spec.min_args = 0;
}

static void test_numbers(void)
{
	uint64_t v;
	int64_t ms;

	ok(opt_read_uint("18446744073709551615", &v) && v == UINT64_MAX,
	   "the largest integer");
	ok(opt_read_size("16777215TiB", &v) && v == 16777215ull << 40,
	   "the largest TiB");
	ok(opt_read_size("3TB", &v) && v == 3000000000000, "decimal unit");
	ok(opt_read_size("007kB", &v) && v == 7000, "leading zeros");
	ok(opt_read_duration("0", &ms) && ms == 0, "0 needs no unit");
	ok(opt_read_duration("1h", &ms) && ms == 3600000, "hour");
	ok(opt_read_duration("500ms", &ms) && ms == 500, "millisecond");
	ok(!opt_read_duration("9223372036854775807s", &ms), "overflow");
	ok(!opt_read_duration("1d", &ms), "no days");
}

/* UX-09: thousands and decimal points of a locale change nothing. */
static void test_locale(void)
{
	setlocale(LC_ALL, "");
	refused("--max-inflight-bytes 1,5",
		"option --max-inflight-bytes: \"1,5\" given, " SIZE_WANTED);
	eq_i64(parse("--max-inflight-bytes 1500MB"), 0, "UX-09 a size");
	eq_u64(conf.bytes, 1500000000, "UX-09 its value");
	done();
	setlocale(LC_ALL, "C");
}

static void test_env(void)
{
	setenv("WEIR_RUN", "/env/run", 1);
	setenv("WEIR_REGISTRY", "", 1);
	parse("");
	eq_str(conf.common.run, "/env/run", "from the environment");
	ok(!conf.common.registry, "an empty variable is none");
	done();
	parse("--run /arg");
	eq_str(conf.common.run, "/arg", "the command line wins");
	done();
	unsetenv("WEIR_RUN");
	unsetenv("WEIR_REGISTRY");
}

static const char dumped[] = "source=a\\\\b\\n\n"
			     "max-inflight-bytes=1024\n"
			     "max-inflight-engine-groups=0\n"
			     "wait=60000ms\n"
			     "split-tensors=1\n"
			     "order=wave\n"
			     "engine=x\n"
			     "engine=y\n";

static void test_dump(void)
{
	struct buf out = { 0 };
	char *argv[] = { "weir-test",
			 "--source=a\\b\n",
			 "--max-inflight-bytes=1KiB",
			 "--split-tensors",
			 "--order=wave",
			 "-ex",
			 "-ey",
			 "-v",
			 "--run=r" };

	eq_i64(opt_parse(&spec, &conf, COUNT(argv), argv), 0, "parse");
	opt_dump(&spec, &conf, &out);
	eq_str(buf_cstr(&out), dumped, "dump");
	done();
	parse("");
	eq_i64(opt_load(&spec, &conf, buf_slice(&out)), 0, "load");
	eq_str(conf.source, "a\\b\n", "a string comes back");
	ok(conf.bytes == 1024 && conf.split && conf.order == 1 &&
		   conf.engines.n == 2,
	   "so do the others");
	buf_clear(&out);
	opt_dump(&spec, &conf, &out);
	eq_str(buf_cstr(&out), dumped, "dump of what was loaded");
	done();
	buf_release(&out);
}

static void not_loaded(const char *args, const char *text, int want,
		       const char *cause)
{
	int rc;

	parse(args);
	rc = opt_load(&spec, &conf, slice_of(text));
	ok(rc == want, "not loaded: %s", cause);
	if (!ok(strcmp(log_cause(), cause) == 0, "cause: %s", cause))
		printf("# got %s\n", log_cause());
	done();
}

static void test_load(void)
{
	parse("--order wave -e x -e y");
	eq_i64(opt_load(&spec, &conf, slice_of(dumped)), 0,
	       "the same options again");
	done();
	not_loaded("--order window", dumped, -E_USAGE,
		   "option --order: the run was started with \"order=wave\", "
		   "now it is \"order=window\"");
	not_loaded("-e x", dumped, -E_USAGE,
		   "option --engine: the run was started with \"engine=x "
		   "engine=y\", now it is \"engine=x\"");
	not_loaded("", "order=wave", -E_DATA, "recorded option \"order=wave\"");
	not_loaded("", "no=1\n", -E_DATA, "recorded option \"no=1\"");
	not_loaded("", "order=x\n", -E_DATA, "recorded option \"order=x\"");
	not_loaded("", "run=x\n", -E_DATA, "recorded option \"run=x\"");
	not_loaded("", "source=a\\x\n", -E_DATA,
		   "recorded option \"source=a\\x\"");
	not_loaded("", "split-tensors=2\n", -E_DATA,
		   "recorded option \"split-tensors=2\"");
	not_loaded("", "order=wave\n", -E_DATA,
		   "recorded options without \"max-inflight-bytes\"");
}

static bool says(struct buf *out, const char *text)
{
	return strstr(buf_cstr(out), text);
}

static void test_help(void)
{
	struct buf out = { 0 };
	size_t longest = 0;

	opt_help(&spec, &out);
	ok(says(&out, "usage: weir-test [OPTION]... [FILE]\n"), "usage");
	ok(says(&out, "  -s, --source DIR        where the bytes come from\n"),
	   "a short option");
	ok(says(&out, "      --max-inflight-bytes SIZE\n"
		      "                          credit in bytes;"),
	   "a long option");
	ok(says(&out, "--order auto|wave|window"), "choices");
	ok(says(&out, "(default 60s)"), "a default");
	ok(says(&out, "WEIR_RUN"), "common options");
	ok(!says(&out, "help-man") && !says(&out, "update-weight"),
	   "hidden ones and other names are not shown");
	for (const char *p = out.p; *p; p += strcspn(p, "\n") + 1)
		if (strcspn(p, "\n") > longest)
			longest = strcspn(p, "\n");
	ok(longest < 80, "80 columns hold all lines: %zu", longest);
	buf_clear(&out);
	opt_man(&spec, &out);
	ok(says(&out, ".Sh OPTIONS\n.Bl -tag -width Ds\n"
		      ".It Fl s , Fl -source Ar DIR\n"
		      "where the bytes come from.\n"),
	   "man page");
	ok(says(&out, "The same option under another name:\n"
		      ".Fl -update-weight-max-inflight-bytes .\n"),
	   "other names in the man page");
	ok(says(&out, "split \\e tensors.\n"), "roff is escaped");
	buf_release(&out);
}

/* UX-04: what was asked for goes to stdout, and a full disk is no success. */
static void test_stdout(void)
{
	int saved = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY),
	    full = open("/dev/full", O_WRONLY);
	int help, version, failed;

	dup2(null, STDOUT_FILENO);
	help = parse("--help --nonsense");
	version = parse("--version");
	dup2(full, STDOUT_FILENO);
	failed = parse("--version");
	dup2(saved, STDOUT_FILENO);
	eq_i64(help, OPT_DONE, "--help");
	eq_i64(version, OPT_DONE, "--version");
	eq_i64(failed, -E_IO, "UX-04 --version on a full disk");
	close(saved);
	close(null);
	close(full);
}

int main(void)
{
	log_quiet_thread(1);
	test_defaults();
	test_values();
	test_refused();
	test_numbers();
	test_locale();
	test_env();
	test_dump();
	test_load();
	test_help();
	test_stdout();
	return tap_done();
}
