/*
 * opt_forward.h - options as words again, for a program that starts others.
 */
#ifndef WEIR_OPT_FORWARD_H
#define WEIR_OPT_FORWARD_H

#include "opt.h"

/* Owned words, always NULL terminated once one is in. */
struct words {
	char **v;
	size_t n;
};

void words_add(struct words *w, const char *word);
void words_release(struct words *w);

/*
 * Appends "--name=value" for every option of `from` that was given (by
 * command line or environment) and that `to` has under the same name.
 */
void opt_forward(const struct opt_spec *from, const void *conf,
		 const struct opt_spec *to, struct words *out);

#endif
