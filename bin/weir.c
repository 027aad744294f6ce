/* weir - runs weir-NAME: "weir push ..." is "weir-push ...". */
#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "common/opt.h"
#include "common/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct opt_name programs[] = {
	{ "plan", "read a checkpoint and a fleet, say what is to be moved" },
	{ "admit", "say when: waves of engines, credit of buckets and bytes" },
	{ "transfer", "let the engines copy, hash the source beside them" },
	{ "commit", "say whether: probe, receipts, decision, swap" },
	{ "push", "push a checkpoint to a fleet, all or nothing" },
	{ "rollback", "publish an older version again, as a new number" },
	{ "engine", "receive weights beside an inference engine" },
	{ "keeper", "keep groups of devices from one version to the next" },
	{ "status", "show what is published and what is served" },
	{ "watch", "tell each version that is published" },
	{ "delta", "make, apply and check what changed between two versions" },
	{ "dump", "print plans, runs and records as JSON lines" },
};

/* Names that documents of weir's design use already. */
static const char *const to_come[] = { "bench", "keygen", "timeline" };

static int written(void)
{
	return fflush(stdout) == 0 ? 0 : log_errno(E_IO, "write");
}

static int print_help(void)
{
	puts("usage: weir NAME [OPTION]...\n\n"
	     "Pushes new model weights into a fleet of inference engines, all\n"
	     "or nothing.  NAME is one of:\n");
	for (size_t i = 0; i < COUNT(programs); i++)
		printf("  %-10s %s\n", programs[i].name, programs[i].does);
	puts("\n\"weir NAME --help\" tells more; so does weir-NAME(1).");
	return written();
}

static const struct {
	const char *option;
	enum opt_kind shell;
} completions[] = {
	{ "--help-bash", OPT_BASH },
	{ "--help-zsh", OPT_ZSH },
	{ "--help-fish", OPT_FISH },
};

/* Was it one of these?  For the build, as in every other program. */
static bool print_completion(const char *option)
{
	for (size_t i = 0; i < COUNT(completions); i++) {
		struct buf out = { 0 };

		if (strcmp(option, completions[i].option) != 0)
			continue;
		opt_complete_names("weir", programs, COUNT(programs),
				   completions[i].shell, &out);
		fwrite(out.p, 1, out.n, stdout);
		buf_release(&out);
		return true;
	}
	return false;
}

static bool is_name(const char *s)
{
	return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyz-")];
}

static int no_program(const char *name)
{
	for (size_t i = 0; i < COUNT(to_come); i++)
		if (strcmp(name, to_come[i]) == 0)
			return log_error(E_USAGE,
					 "weir %s is not built yet; see weir "
					 "--help for what there is",
					 name);
	return log_error(E_USAGE, "there is no weir-%s; see weir --help", name);
}

static int run(char **argv)
{
	const char *word = argv[0];
	char *name, *path;
	int rc;

	if (!is_name(argv[0]))
		return log_error(E_USAGE,
				 "\"%s\" is no name of a program; "
				 "see weir --help",
				 argv[0]);
	name = xasprintf("weir-%s", argv[0]);
	path = proc_sibling(name);
	argv[0] = name;
	execvp(path, argv);
	if (errno == ENOENT)
		rc = no_program(word);
	else
		rc = log_errno(E_IO, "run %s", path);
	free(path);
	free(name);
	return rc;
}

int main(int argc, char **argv)
{
	log_init("weir", LOG_WARN);
	if (argc < 2)
		return err_exit_code(log_error(E_USAGE, "a name is missing; "
							"see weir --help"));
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return err_exit_code(print_help());
	if (strcmp(argv[1], "--version") == 0) {
		puts("weir " PACKAGE_VERSION);
		return err_exit_code(written());
	}
	if (print_completion(argv[1]))
		return 0;
	return err_exit_code(run(argv + 1));
}
