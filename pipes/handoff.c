#include "pipes/handoff.h"
#include "common/err.h"
#include "common/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINK_WORD "weir-link 1 "
#define FAIL_WORD "weir-fail 1 "
#define ENDPOINT_MARK " ipc://"

static_assert(HANDOFF_MAX <= PIPE_BUF, "one write, whole");

static int real_stdout = -1;

int handoff_stdout(void)
{
	int fd;

	if (real_stdout >= 0)
		return real_stdout;
	fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	if (fd < 0)
		return log_errno(E_IO, "stdout");
	if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
		close(fd);
		return log_errno(E_IO, "stderr");
	}
	real_stdout = fd;
	return fd;
}

static bool starts(struct slice s, const char *with)
{
	return s.n >= strlen(with) && !memcmp(s.p, with, strlen(with));
}

static void copy(char *out, struct slice s)
{
	memcpy(out, s.p, s.n);
	out[s.n] = '\0';
}

static struct slice after(struct slice s, size_t n)
{
	return (struct slice){ s.p + n, s.n - n };
}

static int bad_line(struct slice line)
{
	return log_error(E_PROTO,
			 "stdin holds no hand-off line but \"%.*s\": pipe the "
			 "stage before into this one",
			 line.n < 64 ? (int)line.n : 64, line.p);
}

static int parse_link(struct handoff *h, struct slice line)
{
	struct slice rest = after(line, strlen(LINK_WORD));
	const char *mark =
		memmem(rest.p, rest.n, ENDPOINT_MARK, strlen(ENDPOINT_MARK));

	if (!mark || rest.p[0] != '/')
		return bad_line(line);
	h->kind = HANDOFF_LINK;
	copy(h->run, (struct slice){ rest.p, (size_t)(mark - rest.p) });
	copy(h->endpoint, after(rest, (size_t)(mark + 1 - rest.p)));
	return 0;
}

static int parse_fail(struct handoff *h, struct slice line)
{
	struct slice rest = after(line, strlen(FAIL_WORD));
	size_t n = 0;
	int code = 0;

	while (n < rest.n && n < 3 && rest.p[n] >= '0' && rest.p[n] <= '9')
		code = 10 * code + (rest.p[n++] - '0');
	if (n == 0 || n == rest.n || rest.p[n] != ' ' || code > 255)
		return bad_line(line);
	h->kind = HANDOFF_FAIL;
	h->code = code;
	copy(h->cause, after(rest, n + 1));
	return 0;
}

int handoff_parse(struct handoff *h, struct slice line)
{
	if (line.n >= HANDOFF_MAX || memchr(line.p, '\0', line.n))
		return bad_line(line);
	if (starts(line, LINK_WORD))
		return parse_link(h, line);
	if (starts(line, FAIL_WORD))
		return parse_fail(h, line);
	return bad_line(line);
}

/* A pipe that is never read before takes a line without waiting. */
static int put(const char *line, size_t n)
{
	int fd = handoff_stdout();
	ssize_t w;

	if (fd < 0)
		return fd;
	signal(SIGPIPE, SIG_IGN);
	do
		w = write(fd, line, n);
	while (w < 0 && errno == EINTR);
	if (w < 0 && (errno == EPIPE || errno == ECONNRESET))
		return -E_UNAVAIL;
	if (w != (ssize_t)n)
		return log_errno(E_IO, "hand-off");
	return 0;
}

int handoff_put_link(const char *run, const char *endpoint)
{
	char line[HANDOFF_MAX];
	int n;

	n = snprintf(line, sizeof line, LINK_WORD "%s %s\n", run, endpoint);
	if (n >= (int)sizeof line)
		return log_error(E_CONFIG, "hand-off of %d bytes: %s", n, run);
	return put(line, (size_t)n);
}

void handoff_put_fail(int code, const char *cause)
{
	char line[HANDOFF_MAX];
	int n;

	if (!handoff_is_pipe())
		return;
	n = snprintf(line, sizeof line - 1, FAIL_WORD "%d %s", code, cause);
	if (n >= (int)sizeof line - 1)
		n = (int)sizeof line - 2;
	for (char *s = line; s < line + n; s++)
		if (*s == '\n')
			*s = ' ';
	line[n++] = '\n';
	put(line, (size_t)n);
}

bool handoff_is_pipe(void)
{
	struct stat st;
	int fd = handoff_stdout();

	return fd >= 0 && fstat(fd, &st) == 0 &&
	       (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

bool handoff_has_hung_up(void)
{
	struct pollfd p = { .fd = handoff_stdout() };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP));
}
