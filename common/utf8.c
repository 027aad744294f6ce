#include "utf8.h"

bool utf8_begin(struct utf8 *u, unsigned char c)
{
	u->lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	u->hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	u->left = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	return c >= 0xc2 && c <= 0xf4;
}

bool utf8_next(struct utf8 *u, unsigned char c)
{
	bool good = c >= u->lo && c <= u->hi;

	u->lo = 0x80;
	u->hi = 0xbf;
	u->left--;
	return good;
}

size_t utf8_len(const char *p, size_t n)
{
	const unsigned char *s = (const void *)p;
	struct utf8 u;
	size_t len = 1;

	if (n == 0)
		return 0;
	if (s[0] < 0x80)
		return 1;
	if (!utf8_begin(&u, s[0]))
		return 0;
	for (; u.left; len++)
		if (len == n || !utf8_next(&u, s[len]))
			return 0;
	return len;
}

size_t utf8_print_len(const char *p, size_t n)
{
	const unsigned char *s = (const void *)p;
	size_t len = utf8_len(p, n);

	if (len == 1 && (s[0] < 0x20 || s[0] == 0x7f))
		return 0;
	return len == 2 && s[0] == 0xc2 && s[1] < 0xa0 ? 0 : len;
}

static bool is_text(unsigned char c)
{
	return (c >= 0x20 && c != 0x7f) || c == '\t' || c == '\n' || c == '\r';
}

size_t utf8_bad_byte(struct slice s)
{
	struct utf8 u = { 0 };
	size_t i;

	for (i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];
		bool good = u.left     ? utf8_next(&u, c)
			    : c < 0x80 ? is_text(c)
				       : utf8_begin(&u, c);

		if (!good)
			return i;
	}
	return u.left ? i - 1 : i;
}
