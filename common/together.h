/*
 * together.h - which tensors share a bucket: names in, groups out.
 *
 * Loaders that fuse or convert while they load want related tensors in one
 * call.  A group is all tensors whose names have the same key:
 *
 *	rule		a POSIX extended regular expression that finds
 *			something in the name: the text of its first (...)
 *			that took part, else of the whole match.  The first
 *			rule that matches counts.  These groups must be kept.
 *	built in	the module that the tensor belongs to, where modules
 *			that engines fuse are one: q/k/v, gate/up, q_a/kv_a,
 *			w1/w3 and their kin (together.c has the list).  So a
 *			weight, its bias and its scales are together as well.
 *			These groups are kept where they fit.
 *
 * Rules are bounded: in length, without back-references, and the product of
 * all {n,m} in one too, so that compiling and matching stay small.
 *
 * Linking costs 4 bytes for each name, and 11 to 22 more while it runs.
 * Groups are found by a hash of their key: two that collide would be kept
 * together, which harms nobody.  Pure.
 */
#ifndef WEIR_TOGETHER_H
#define WEIR_TOGETHER_H

#include "names.h"

#include <regex.h>

#define TOGETHER_RULES_MAX	32
#define TOGETHER_RULE_MAX	512	/* bytes */
#define TOGETHER_REPEAT_MAX	1000	/* product of all {n,m} of a rule */
#define TOGETHER_NONE		"none"	/* the rule that is no rule */

struct together {
	regex_t *rule;
	size_t n;
	bool built_in;
};

enum together_kind {
	TOGETHER_ALONE,		/* no key: in no group */
	TOGETHER_WISH,		/* built in */
	TOGETHER_MUST,		/* by a rule */
};

/* The built-in groups and those of the rules; a rule "none" switches the
 * built-in ones off.  0, or -E_USAGE (logged, quoting the rule). */
int together_init(struct together *t, char *const *rule, size_t n);
void together_release(struct together *t);

/* Appends the key, which also names the group to people. */
enum together_kind together_key(const struct together *t, struct slice name,
				struct buf *key);

/* Groups as chains of numbers, each in rising order. */
#define TOGETHER_END	UINT32_MAX	/* last of its group */
#define TOGETHER_DONE	(UINT32_MAX - 1)

struct together_links {
	uint32_t *next;		/* of each number; END, or DONE once taken */
};

void together_link(struct together_links *l, const struct together *t,
		   names_fn *get, const void *ctx, uint32_t n);
void together_unlink(struct together_links *l);

#endif
