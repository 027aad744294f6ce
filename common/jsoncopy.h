/*
 * jsoncopy.h - JSON that is read and written again with something changed.
 *
 * Takes the events of jsonsax.h and writes them as text, one member a line,
 * indented by two.  Numbers stay the text they were, strings are escaped
 * anew: what comes out has equal values, not equal bytes.  Who wants to add a
 * member sends its events too, who wants to drop one keeps them back; the
 * order of events must be that of a document.  Pure.
 */
#ifndef WEIR_JSONCOPY_H
#define WEIR_JSONCOPY_H

#include "jsonsax.h"

struct jsoncopy {
	struct buf *out;	/* lent; appended to */
	unsigned depth;
	bool has_key;		/* its value is next */
	bool has_one;		/* the open object or array is not empty */
};

/* text: of keys, strings and numbers. */
void jsoncopy_event(struct jsoncopy *c, enum json_event ev, struct slice text);
void jsoncopy_key(struct jsoncopy *c, const char *key);
void jsoncopy_str(struct jsoncopy *c, const char *s);
void jsoncopy_u64(struct jsoncopy *c, uint64_t v);

#endif
