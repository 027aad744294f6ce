/*
 * A process dies at a named step of its own.
 *
 * weir's programs, linked once more with --wrap (tests/kill/wrapped).  Each
 * row that a machine takes is a point, and so is each durable move:
 *
 *	commit: decide agreed -> swap
 *	commit: links decision
 *	engine: renames staging/# to versions/#
 *
 * KILL_NAMES	a file: names are appended to it as they are met, one a line,
 *		in one write, so that the list is the code's own
 * KILL_AT	a file: "before NAME" or "after NAME".  Who meets that removes
 *		the file, and is killed if it was there to remove: one death.
 *		"stop-before", "stop-after": SIGSTOP instead
 *
 * Just after a row means that its process has done what the row asks: it is
 * about to wait.  Just after a move: the call has returned.  Movers have no
 * rows: theirs are messages, see says.c.
 */
#include "tests/kill/point.h"

#include "common/fsm.h"
#include "common/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char last_step[POINT_MAX]; /* taken, and not waited since */

/* ---- names ---- */

/* Numbers are all the same; a temporary name is what it will be. */
static void plain(char *out, const char *s)
{
	size_t n = 0;

	while (*s && n + 1 < POINT_MAX / 2) {
		size_t digits = strspn(s, "0123456789");
		bool is_tmp = strncmp(s, ".tmp.", 5) == 0;

		out[n++] = digits ? '#' : is_tmp ? '~' : *s;
		s += digits ? digits : is_tmp ? 5 : 1;
	}
	out[n] = '\0';
}

static const char *who(void)
{
	const char *name = program_invocation_short_name;

	return strncmp(name, "weir-", 5) == 0 ? name + 5 : name;
}

/* The last two parts of a path, as the first ones are the test's. */
static const char *last_parts(const char *path)
{
	const char *at = path;

	for (const char *p = path; (p = strchr(p, '/')) && strchr(p + 1, '/');
	     p++)
		at = p + 1;
	return at;
}

/* Whoever is there first removes what is left in a run's directory. */
static bool is_tidied(const char *name)
{
	size_t n = strlen(name);

	return (n > 5 && strcmp(name + n - 5, ".sock") == 0) ||
	       (n > 9 && strcmp(name + n - 9, ".endpoint") == 0);
}

static void fd_name(int fd, char *out)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, out, POINT_MAX - 1);
	out[n < 0 ? 0 : n] = '\0';
}

/* ---- points ---- */

static void list(const char *name)
{
	const char *path = getenv("KILL_NAMES");
	char line[POINT_MAX + 2];
	int n = snprintf(line, sizeof line, "%s\n", name);
	int fd = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;

	if (fd >= 0 && write(fd, line, (size_t)n) < 0)
		perror("KILL_NAMES");
	if (fd >= 0)
		close(fd);
}

/* The signal that is meant for this point, 0: none. */
static int signal_of(const char *path, const char *when, const char *name)
{
	char text[POINT_MAX + 16] = "", want[POINT_MAX + 16];
	bool stops;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return 0;
	if (read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(fd);
	stops = strncmp(text, "stop-", 5) == 0;
	snprintf(want, sizeof want, "%s %s", when, name);
	if (strcmp(text + (stops ? 5 : 0), want) != 0)
		return 0;
	return stops ? SIGSTOP : SIGKILL;
}

int __real_unlink(const char *path);

static void meet(const char *when, const char *name)
{
	const char *path = getenv("KILL_AT");
	int error = errno;
	int signo = path ? signal_of(path, when, name) : 0;

	if (signo && __real_unlink(path) == 0)
		kill(getpid(), signo);
	errno = error;
}

static void step_is_done(void)
{
	if (!last_step[0])
		return;
	meet("after", last_step);
	last_step[0] = '\0';
}

void point_step(const char *text)
{
	step_is_done();
	snprintf(last_step, sizeof last_step, "%s: %s", who(), text);
	list(last_step);
	meet("before", last_step);
}

void point_before(char name[POINT_MAX], const char *does, const char *what)
{
	snprintf(name, POINT_MAX, "%s: %s %s", who(), does, what);
	list(name);
	meet("before", name);
}

void point_after(const char *name)
{
	meet("after", name);
}

/* ---- rows ---- */

int __real_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event)
{
	char name[POINT_MAX / 2];
	uint8_t from = *state;
	int row = __real_fsm_step(t, state, machine, on, event);

	/* What it does is a list of actions, which nobody has seen yet. */
	if (row < 0 || (from == *state && !t->edges[row].act))
		return row;
	snprintf(name, sizeof name, "%s %s %s -> %s", t->name, t->states[from],
		 t->events[on], t->states[*state]);
	point_step(name);
	return row;
}

int __real_sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms);
int __wrap_sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms);
int __wrap_sock_poll(struct sock_poll *v, size_t n, int64_t timeout_ms)
{
	step_is_done();
	return __real_sock_poll(v, n, timeout_ms);
}

int __real_poll(struct pollfd *v, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *v, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *v, nfds_t n, int timeout_ms)
{
	step_is_done();
	return __real_poll(v, n, timeout_ms);
}

/* ---- durable moves ---- */

static void move(char *name, const char *does, const char *what)
{
	bool tidies = strcmp(does, "unlinks") == 0 && is_tidied(what);
	char text[POINT_MAX / 2];

	plain(text, last_parts(what));
	snprintf(name, POINT_MAX, "%s: %s %s", tidies ? "any" : who(), does,
		 text);
	list(name);
	meet("before", name);
}

/* CALL is made between its two points. */
#define MOVE(does, what, call)              \
	do {                                \
		char name[POINT_MAX];       \
		int rc;                     \
                                            \
		move(name, (does), (what)); \
		rc = (call);                \
		meet("after", name);        \
		return rc;                  \
	} while (0)

int __real_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags)
{
	MOVE("links", to, __real_linkat(a, from, b, to, flags));
}

int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to)
{
	MOVE("renames", to, __real_renameat(a, from, b, to));
}

int __real_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to,
		     unsigned flags)
{
	MOVE("exchanges", to, __real_renameat2(a, from, b, to, flags));
}

int __real_symlinkat(const char *target, int dirfd, const char *path);
int __wrap_symlinkat(const char *target, int dirfd, const char *path);
int __wrap_symlinkat(const char *target, int dirfd, const char *path)
{
	MOVE("symlinks", path, __real_symlinkat(target, dirfd, path));
}

int __real_mkdirat(int dirfd, const char *path, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *path, mode_t mode);
int __wrap_mkdirat(int dirfd, const char *path, mode_t mode)
{
	MOVE("makes", path, __real_mkdirat(dirfd, path, mode));
}

int __real_unlinkat(int dirfd, const char *path, int flags);
int __wrap_unlinkat(int dirfd, const char *path, int flags);
int __wrap_unlinkat(int dirfd, const char *path, int flags)
{
	/* What is not there is looked for, no more. */
	if (faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	MOVE("unlinks", path, __real_unlinkat(dirfd, path, flags));
}

int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (access(path, F_OK) < 0)
		return -1;
	MOVE("unlinks", slash ? slash + 1 : path, __real_unlink(path));
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	char what[POINT_MAX];

	fd_name(fd, what);
	MOVE("syncs", what, __real_fsync(fd));
}
