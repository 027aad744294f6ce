/* Completions, derived from the option table. */
#include "opt.h"
#include "opt_value.h"

#include <string.h>

typedef void row_fn(const struct opt *o, const char *program, struct buf *out);

/* Every row that people are told of: own ones, then the common ones. */
static void each_row(const struct opt_spec *spec, row_fn *fn, struct buf *out)
{
	for (size_t i = 0; i < spec->nopts; i++)
		if (!spec->opts[i].hidden)
			fn(&spec->opts[i], spec->program, out);
	for (size_t i = 0; i < opt_common_nrows; i++)
		if (!opt_common_rows[i].hidden)
			fn(&opt_common_rows[i], spec->program, out);
}

static bool is_path(const struct opt *o, const char *kind)
{
	return o->value && strcmp(o->value, kind) == 0;
}

static void add_choices(const struct opt *o, struct buf *out)
{
	for (size_t i = 0; o->choices[i]; i++)
		buf_addf(out, "%s%s", i ? " " : "", o->choices[i]);
}

/* The program as part of a function's name. */
static void add_identifier(const char *program, struct buf *out)
{
	for (; *program; program++)
		buf_add(out, *program == '-' ? "_" : program, 1);
}

/* ---- bash ---- */

static void bash_name(const struct opt *o, const char *program, struct buf *out)
{
	(void)program;
	buf_addf(out, " --%s", o->name);
	if (o->letter)
		buf_addf(out, " -%c", o->letter);
}

/* What follows an option that takes a value; empty: nothing is known. */
static void bash_value(const struct opt *o, const char *program,
		       struct buf *out)
{
	(void)program;
	if (!opt_takes_value(o))
		return;
	buf_addf(out, "\t--%s", o->name);
	if (o->letter)
		buf_addf(out, "|-%c", o->letter);
	buf_addf(out, ") ");
	if (o->kind == OPT_CHOICE) {
		buf_addf(out, "COMPREPLY=($(compgen -W '");
		add_choices(o, out);
		buf_addf(out, "' -- \"$cur\")); ");
	} else if (is_path(o, "DIR")) {
		buf_addf(out, "COMPREPLY=($(compgen -d -- \"$cur\")); ");
	} else if (is_path(o, "FILE")) {
		buf_addf(out, "COMPREPLY=($(compgen -f -- \"$cur\")); ");
	}
	buf_addf(out, "return ;;\n");
}

/* Bash hands "--name=value" over as three words. */
static const char bash_words[] = "\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n"
				 "\tlocal prev=${COMP_WORDS[COMP_CWORD-1]}\n"
				 "\n"
				 "\tCOMPREPLY=()\n"
				 "\tif [[ $cur == = ]]; then\n"
				 "\t\tcur=\n"
				 "\telif [[ $prev == = ]]; then\n"
				 "\t\tprev=${COMP_WORDS[COMP_CWORD-2]}\n"
				 "\tfi\n";

static void bash(const struct opt_spec *spec, struct buf *out)
{
	buf_addf(out, "# bash completion of %s\n", spec->program);
	add_identifier(spec->program, out);
	buf_addf(out, "_complete() {\n%s\tcase $prev in\n", bash_words);
	each_row(spec, bash_value, out);
	buf_addf(out, "\tesac\n\tif [[ $cur == -* ]]; then\n"
		      "\t\tCOMPREPLY=($(compgen -W '");
	each_row(spec, bash_name, out);
	buf_addf(out, "' -- \"$cur\"))\n\telse\n"
		      "\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n\tfi\n}\n"
		      "complete -o filenames -F ");
	add_identifier(spec->program, out);
	buf_addf(out, "_complete %s\n", spec->program);
}

/* Other programs' completions stand beside this one's. */
static void bash_names(const char *program, const struct opt_name *v, size_t n,
		       struct buf *out)
{
	buf_addf(out,
		 "# bash completion of %s\n"
		 "%s_complete() {\n"
		 "\tlocal name=${COMP_WORDS[1]}\n"
		 "\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n"
		 "\tlocal dir=${BASH_SOURCE[0]%%/*} file\n"
		 "\n"
		 "\tCOMPREPLY=()\n"
		 "\tif ((COMP_CWORD == 1)); then\n"
		 "\t\tCOMPREPLY=($(compgen -W '",
		 program, program);
	for (size_t i = 0; i < n; i++)
		buf_addf(out, "%s%s", i ? " " : "", v[i].name);
	buf_addf(out,
		 " --help --version' -- \"$cur\"))\n"
		 "\t\treturn\n"
		 "\tfi\n"
		 "\tfor file in \"$dir/%s-$name\" \"$dir/%s-$name.bash\"; do\n"
		 "\t\tif [[ -r $file ]]; then\n"
		 "\t\t\t. \"$file\"\n"
		 "\t\t\t%s_\"${name//-/_}\"_complete\n"
		 "\t\t\treturn\n"
		 "\t\tfi\n"
		 "\tdone\n"
		 "}\n"
		 "complete -o filenames -F %s_complete %s\n",
		 program, program, program, program, program);
}

/* ---- zsh ---- */

/* In single quotes, inside [] of _arguments or before ":" of _describe. */
static void zsh_text(const char *s, struct buf *out)
{
	for (; *s; s++) {
		if (*s == '\'')
			buf_addf(out, "'\\''");
		else if (strchr("[]:\\", *s))
			buf_addf(out, "\\%c", *s);
		else
			buf_add(out, s, 1);
	}
}

static void zsh_value(const struct opt *o, struct buf *out)
{
	if (!opt_takes_value(o))
		return;
	buf_addf(out, ":");
	zsh_text(o->value ? o->value : o->name, out);
	buf_addf(out, ":");
	if (o->kind == OPT_CHOICE) {
		buf_addf(out, "(");
		add_choices(o, out);
		buf_addf(out, ")");
	} else if (is_path(o, "DIR")) {
		buf_addf(out, "_files -/");
	} else if (is_path(o, "FILE")) {
		buf_addf(out, "_files");
	}
}

static void zsh_form(const struct opt *o, const char *form, const char *tail,
		     struct buf *out)
{
	bool many = o->kind == OPT_LIST || o->kind == OPT_COUNT;

	buf_addf(out, " \\\n\t'%s%s%s[", many ? "*" : "", form, tail);
	zsh_text(o->help, out);
	buf_addf(out, "]");
	zsh_value(o, out);
	buf_addf(out, "'");
}

static void zsh_row(const struct opt *o, const char *program, struct buf *out)
{
	char letter[] = { '-', o->letter, '\0' };
	struct buf name = { 0 };

	(void)program;
	buf_addf(&name, "--%s", o->name);
	zsh_form(o, buf_cstr(&name), opt_takes_value(o) ? "=" : "", out);
	if (o->letter)
		zsh_form(o, letter, opt_takes_value(o) ? "+" : "", out);
	buf_release(&name);
}

static void zsh(const struct opt_spec *spec, struct buf *out)
{
	buf_addf(out, "#compdef %s\n_arguments -s", spec->program);
	each_row(spec, zsh_row, out);
	buf_addf(out, " \\\n\t'*:file:_files'\n");
}

static void zsh_names(const char *program, const struct opt_name *v, size_t n,
		      struct buf *out)
{
	buf_addf(out, "#compdef %s\nlocal -a names\nnames=(\n", program);
	for (size_t i = 0; i < n; i++) {
		buf_addf(out, "\t'%s:", v[i].name);
		zsh_text(v[i].does, out);
		buf_addf(out, "'\n");
	}
	buf_addf(out,
		 ")\n"
		 "if ((CURRENT == 2)); then\n"
		 "\t_describe name names\n"
		 "else\n"
		 "\tshift words\n"
		 "\t((CURRENT--))\n"
		 "\twords[1]=%s-$words[1]\n"
		 "\t_normal\n"
		 "fi\n",
		 program);
}

/* ---- fish ---- */

static void fish_text(const char *s, struct buf *out)
{
	buf_addf(out, "'");
	for (; *s; s++)
		buf_addf(out, *s == '\'' || *s == '\\' ? "\\%c" : "%c", *s);
	buf_addf(out, "'");
}

static void fish_row(const struct opt *o, const char *program, struct buf *out)
{
	buf_addf(out, "complete -c %s -l %s", program, o->name);
	if (o->letter)
		buf_addf(out, " -s %c", o->letter);
	if (o->kind == OPT_CHOICE) {
		buf_addf(out, " -x -a '");
		add_choices(o, out);
		buf_addf(out, "'");
	} else if (is_path(o, "DIR")) {
		buf_addf(out, " -x -a '(__fish_complete_directories)'");
	} else if (opt_takes_value(o)) {
		buf_addf(out, is_path(o, "FILE") ? " -r" : " -x");
	}
	buf_addf(out, " -d ");
	fish_text(o->help, out);
	buf_addf(out, "\n");
}

static void fish(const struct opt_spec *spec, struct buf *out)
{
	buf_addf(out, "# fish completion of %s\n", spec->program);
	each_row(spec, fish_row, out);
}

static void fish_names(const char *program, const struct opt_name *v, size_t n,
		       struct buf *out)
{
	buf_addf(out,
		 "# fish completion of %s\n"
		 "function __%s_rest\n"
		 "\tset -l words (commandline -opc) (commandline -ct)\n"
		 "\tcomplete -C '%s-'(string join ' ' -- $words[2..-1])\n"
		 "end\n"
		 "complete -c %s -f -n 'not __fish_use_subcommand' "
		 "-a '(__%s_rest)'\n",
		 program, program, program, program, program);
	for (size_t i = 0; i < n; i++) {
		buf_addf(out,
			 "complete -c %s -n __fish_use_subcommand -f -a %s "
			 "-d ",
			 program, v[i].name);
		fish_text(v[i].does, out);
		buf_addf(out, "\n");
	}
}

/* ---- which ---- */

void opt_complete(const struct opt_spec *spec, enum opt_kind shell,
		  struct buf *out)
{
	if (shell == OPT_BASH)
		bash(spec, out);
	else if (shell == OPT_ZSH)
		zsh(spec, out);
	else
		fish(spec, out);
}

void opt_complete_names(const char *program, const struct opt_name *v, size_t n,
			enum opt_kind shell, struct buf *out)
{
	if (shell == OPT_BASH)
		bash_names(program, v, n, out);
	else if (shell == OPT_ZSH)
		zsh_names(program, v, n, out);
	else
		fish_names(program, v, n, out);
}
