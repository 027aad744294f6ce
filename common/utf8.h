/*
 * utf8.h - is that UTF-8?  Unicode's table 3-7, byte by byte or at once:
 * no overlong forms, no surrogates, nothing above U+10FFFF.  Pure.
 */
#ifndef WEIR_UTF8_H
#define WEIR_UTF8_H

#include "buf.h"

/* Inside a character of several bytes. */
struct utf8 {
	unsigned char lo, hi;	/* range of the next byte */
	unsigned char left;	/* bytes that must still come */
};

/* c is 0x80 or above and no character has begun. */
bool utf8_begin(struct utf8 *u, unsigned char c);
bool utf8_next(struct utf8 *u, unsigned char c);
/* Bytes of the character at p of n bytes; 0 if there is none. */
size_t utf8_len(const char *p, size_t n);
/* The same, and 0 for a control character (C0, DEL, C1). */
size_t utf8_print_len(const char *p, size_t n);
/* The offset of the first byte that is no text: not UTF-8, or a control
 * character other than tab and line ends.  s.n if there is none. */
size_t utf8_bad_byte(struct slice s);

#endif
