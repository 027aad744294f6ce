/*
 * tap.h - Test Anything Protocol for unit programs: one line per check, the
 * plan at the end, exit 1 if a check failed.
 *
 *	ok(x == 3, "x is %d", x);
 *	eq_u64(x, 3, "x");
 *	eq_str(s, "a", "s");
 *	return tap_done();
 *
 * A program that dies early prints no plan, which tests/run counts as a
 * failure.
 */
#ifndef WEIR_TAP_H
#define WEIR_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static struct {
	unsigned run, failed;
} tap;

__attribute__((format(printf, 4, 5)))
static inline bool tap_ok(bool good, const char *file, int line,
			  const char *fmt, ...)
{
	va_list ap;

	tap.run++;
	tap.failed += !good;
	printf("%sok %u - ", good ? "" : "not ", tap.run);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	if (!good)
		printf("# at %s:%d\n", file, line);
	fflush(stdout);
	return good;
}

static inline bool tap_u64(uint64_t got, uint64_t want, const char *file,
			   int line, const char *name)
{
	bool good = tap_ok(got == want, file, line, "%s", name);

	if (!good)
		printf("# got %llu, want %llu\n", (unsigned long long)got,
		       (unsigned long long)want);
	return good;
}

static inline bool tap_i64(int64_t got, int64_t want, const char *file,
			   int line, const char *name)
{
	bool good = tap_ok(got == want, file, line, "%s", name);

	if (!good)
		printf("# got %lld, want %lld\n", (long long)got,
		       (long long)want);
	return good;
}

static inline bool tap_str(const char *got, const char *want, const char *file,
			   int line, const char *name)
{
	bool good = tap_ok(got && strcmp(got, want) == 0, file, line, "%s",
			   name);

	if (!good)
		printf("# got  \"%s\"\n# want \"%s\"\n", got ? got : "(null)",
		       want);
	return good;
}

static inline int tap_done(void)
{
	printf("1..%u\n", tap.run);
	return tap.failed != 0;
}

/* Instead of all checks: says why, by name. */
static inline int tap_skip(const char *why)
{
	printf("ok 1 # skip %s\n1..1\n", why);
	return 0;
}

#define ok(good, ...)	tap_ok((good), __FILE__, __LINE__, __VA_ARGS__)
#define eq_u64(got, want, name) \
	tap_u64((got), (want), __FILE__, __LINE__, (name))
#define eq_i64(got, want, name) \
	tap_i64((got), (want), __FILE__, __LINE__, (name))
#define eq_str(got, want, name) \
	tap_str((got), (want), __FILE__, __LINE__, (name))

#endif
