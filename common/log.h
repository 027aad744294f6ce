/*
 * log.h - one line per decision on stderr, and the cause of a failure.
 *
 *	weir-admit[812] error tensor "w" of 9 bytes exceeds ... 8 bytes
 *
 * The function that first knows a cause calls log_error(), once; it prints
 * the line, keeps its text as this thread's *cause* and returns -code, so
 * that callers only pass the code up.  A stage puts the cause into the abort
 * or verdict message that it sends (see pipes/stage.h).
 *
 * A line is written with one write(2): lines of processes that share stderr
 * do not mix.  Control characters, and what is no UTF-8, are printed as \xNN: a
 * file name cannot forge a second line or speak to the terminal.  Nothing here
 * ever writes to stdout.
 */
#ifndef WEIR_LOG_H
#define WEIR_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_MAX 2048	/* bytes of one line; longer ones are cut */

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

#define LOG_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* name: "weir-admit", kept, not copied.  Lines above max are dropped. */
void log_init(const char *name, enum log_level max);
void log_set_level(enum log_level max);
const char *log_name(void);

/* Print, remember as the cause, return -code (code is a positive E_*). */
int log_error(int code, const char *fmt, ...) LOG_PRINTF(2, 3);
/* The same, with ": strerror(errno)" at the end.  E_IO as code means
 * "whatever errno says" (err_of_errno); any other code is kept. */
int log_errno(int code, const char *fmt, ...) LOG_PRINTF(2, 3);
void log_warn(const char *fmt, ...) LOG_PRINTF(1, 2);
void log_info(const char *fmt, ...) LOG_PRINTF(1, 2);
void log_debug(const char *fmt, ...) LOG_PRINTF(1, 2);

/* The text of this thread's last log_error(), without prefix, printable as
 * its line is; "" if none.
 * Valid until the next log_error() of this thread. */
const char *log_cause(void);
/* Remember a cause that somebody else has already printed (it came in a
 * message), without printing; returns -code. */
int log_adopt_cause(int code, const char *text);
/* While on, log_error() remembers but does not print (threads whose owner
 * reports, fuzzers).  Per thread.  Returns what it was. */
int log_quiet_thread(int on);

/*
 * Lines that somebody else can cause at will: LOG_FEW of a kind at once, the
 * rest counted, and told by the first of the kind LOG_FEW_MS later.
 *
 *	if (log_few(&sh->junk, LOG_WARN))
 *		log_warn("dropped: %s", cause);
 */
#define LOG_FEW 20
#define LOG_FEW_MS 10000

struct log_few {
	const char *what;	/* kind, in the plural; lent */
	int64_t since_ms;
	unsigned said, more;
};

/* May one more line of this level be written?  Not below the level shown. */
bool log_few(struct log_few *f, enum log_level level);
/* Tells how many were not; at the end. */
void log_few_end(struct log_few *f);

/* A broken invariant of ours: prints and aborts. */
_Noreturn void log_bug(const char *file, int line, const char *fmt, ...)
	LOG_PRINTF(3, 4);
#define BUG(...) log_bug(__FILE__, __LINE__, __VA_ARGS__)
#define BUG_ON(c) do { if (c) BUG("%s", #c); } while (0)

#endif
