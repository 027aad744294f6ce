#include "log.h"
#include "clock.h"
#include "err.h"
#include "utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *prog = "weir";
static enum log_level max_level = LOG_WARN;
static _Thread_local char cause[LOG_LINE_MAX];
static _Thread_local int quiet;

static const char *const level_name[] = {
	[LOG_ERROR] = "error",
	[LOG_WARN] = "warn",
	[LOG_INFO] = "info",
	[LOG_DEBUG] = "debug",
};

void log_init(const char *name, enum log_level max)
{
	prog = name;
	max_level = max;
}

void log_set_level(enum log_level max)
{
	max_level = max;
}

const char *log_name(void)
{
	return prog;
}

const char *log_cause(void)
{
	return cause;
}

int log_quiet_thread(int on)
{
	int was = quiet;

	quiet = on;
	return was;
}

/* Copies text to out so that it is one printable line. */
static size_t sanitize(char *out, size_t size, const char *text)
{
	size_t n = 0, left = strlen(text), len;

	for (; left && n + 5 < size; text += len, left -= len) {
		size_t good = utf8_print_len(text, left);

		len = good ? good : 1;
		if (good)
			memcpy(out + n, text, len);
		else
			snprintf(out + n, size - n, "\\x%02x",
				 (unsigned char)*text);
		n += good ? len : 4;
	}
	out[n] = '\0';
	return n;
}

static void put_line(enum log_level level, const char *text)
{
	char line[LOG_LINE_MAX];
	int n;

	n = snprintf(line, sizeof line, "%s[%ld] %s ", prog, (long)getpid(),
		     level_name[level]);
	n += (int)sanitize(line + n, sizeof line - (size_t)n - 1, text);
	line[n++] = '\n';
	/* Nobody is left to tell when stderr itself fails. */
	for (char *p = line; n > 0;) {
		ssize_t w = write(STDERR_FILENO, p, (size_t)n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0)
			return;
		p += w;
		n -= (int)w;
	}
}

int log_error(int code, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	sanitize(cause, sizeof cause, text);
	if (!quiet)
		put_line(LOG_ERROR, text);
	return -code;
}

int log_errno(int code, const char *fmt, ...)
{
	int saved = errno;
	char text[LOG_LINE_MAX / 2];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (code == E_IO)
		code = err_of_errno(saved);
	return log_error(code, "%s: %s", text, strerror(saved));
}

int log_adopt_cause(int code, const char *text)
{
	sanitize(cause, sizeof cause, text);
	return -code;
}

static void log_at(enum log_level level, const char *fmt, va_list ap)
{
	char text[LOG_LINE_MAX];

	if (level > max_level)
		return;
	vsnprintf(text, sizeof text, fmt, ap);
	put_line(level, text);
}

#define LOG_FN(fn, level)               \
	void fn(const char *fmt, ...)   \
	{                               \
		va_list ap;             \
                                        \
		va_start(ap, fmt);      \
		log_at(level, fmt, ap); \
		va_end(ap);             \
	}
LOG_FN(log_warn, LOG_WARN)
LOG_FN(log_info, LOG_INFO)
LOG_FN(log_debug, LOG_DEBUG)

void log_few_end(struct log_few *f)
{
	if (f->more > 0)
		log_warn("%u more %s were not logged", f->more, f->what);
	f->more = 0;
}

bool log_few(struct log_few *f, enum log_level level)
{
	int64_t now = clock_mono_ms();

	if (level > max_level)
		return false;
	if (now - f->since_ms >= LOG_FEW_MS) {
		log_few_end(f);
		f->said = 0;
		f->since_ms = now;
	}
	if (f->said < LOG_FEW) {
		f->said++;
		return true;
	}
	f->more++;
	return false;
}

_Noreturn void log_bug(const char *file, int line, const char *fmt, ...)
{
	char text[LOG_LINE_MAX];
	va_list ap;
	int n;

	n = snprintf(text, sizeof text, "BUG at %s:%d: ", file, line);
	va_start(ap, fmt);
	vsnprintf(text + n, sizeof text - (size_t)n, fmt, ap);
	va_end(ap);
	put_line(LOG_ERROR, text);
	abort();
}
