#include "child.h"
#include "clock.h"
#include "err.h"
#include "log.h"
#include "proc.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100   /* between two looks at the cancel flag */
#define STEP_READS 32 /* twice what a pipe holds */

/*
 * Stdin is a pipe that ends with us, however we end.  Somebody in the session
 * waits for that, and then ends the session.  Forked twice, so that the
 * command is no parent of what it did not start.  (A parent-death signal
 * would reach the shell alone, and come when our *thread* ends.)
 */
static const char with_us[] =
	"exec 3<&0 </dev/null\n"
	"( ( read -r end <&3; kill -KILL 0 ) >/dev/null 2>&1 & )\n"
	"exec 3<&-\n"
	"exec /bin/sh -c \"$0\"";

static int spawn(struct child *c, const char *command, const char *const *env,
		 int fd, const int life[2], const int out[2])
{
	const char *const argv[] = { "/bin/sh", "-c", with_us, command, NULL };
	pid_t pid = proc_spawn(&(struct proc_spec){
		.argv = argv,
		.env = env,
		.fd = { life[0], out[1], out[1] },
		.pass_fd = fd,
		.own_session = true,
	});

	close(life[0]);
	close(out[1]);
	c->life_fd = life[1];
	c->out_fd = out[0];
	if (pid < 0)
		return (int)pid;
	c->pid = pid;
	fcntl(c->out_fd, F_SETFL, O_NONBLOCK);
	c->pidfd = pidfd_open(c->pid, 0);
	return c->pidfd < 0 ? log_errno(E_IO, "%s: pidfd", c->what) : 0;
}

int child_start(struct child *c, const char *what, const char *command,
		const char *const *env)
{
	return child_start_with(c, what, command, env, -1);
}

int child_start_with(struct child *c, const char *what, const char *command,
		     const char *const *env, int fd)
{
	int life[2], out[2], rc;

	*c = (struct child)CHILD_NONE;
	c->what = what;
	if (pipe2(life, O_CLOEXEC) < 0)
		return log_errno(E_IO, "%s: pipe", what);
	if (pipe2(out, O_CLOEXEC) < 0) {
		rc = log_errno(E_IO, "%s: pipe", what);
		close(life[0]);
		close(life[1]);
		return rc;
	}
	rc = spawn(c, command, env, fd, life, out);
	if (rc < 0)
		child_kill(c);
	return rc;
}

/* As log.h writes them, by a program that is named like what it is for. */
static bool is_warning(const struct child *c)
{
	size_t n = strlen(c->what);

	return strncmp(c->part, c->what, n) == 0 && c->part[n] == '[' &&
	       strstr(c->part + n, "] warn ");
}

static void end_line(struct child *c)
{
	c->part[c->n] = '\0';
	if (c->n > 0) {
		if (is_warning(c))
			log_warn("%s", c->part);
		else
			log_info("%s: %s", c->what, c->part);
		memcpy(c->line, c->part, sizeof c->line);
	}
	c->n = 0;
}

static void add_text(struct child *c, const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] == '\n')
			end_line(c);
		else if (c->n < sizeof c->part - 1)
			c->part[c->n++] = p[i];
	}
}

/* Not all there is: who prints without end must not hold us. */
static void read_output(struct child *c)
{
	char chunk[4096];
	ssize_t n;

	for (int i = 0; i < STEP_READS && c->out_fd >= 0; i++) {
		n = read(c->out_fd, chunk, sizeof chunk);
		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0) {
			close(c->out_fd);
			c->out_fd = -1;
		}
		if (n <= 0)
			return;
		add_text(c, chunk, (size_t)n);
	}
}

static void close_fds(struct child *c)
{
	if (c->out_fd >= 0)
		close(c->out_fd);
	if (c->pidfd >= 0)
		close(c->pidfd);
	if (c->life_fd >= 0)
		close(c->life_fd);
	c->out_fd = c->pidfd = c->life_fd = -1;
}

void child_kill(struct child *c)
{
	if (c->pid > 0) {
		kill(-c->pid, SIGKILL);
		kill(c->pid, SIGKILL);
		while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	c->pid = 0;
	close_fds(c);
}

static int report(const struct child *c, int status)
{
	const char *colon = c->line[0] ? ": " : "";

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 1;
	if (WIFSIGNALED(status))
		return log_error(E_IO, "%s was killed by signal %d%s%s",
				 c->what, WTERMSIG(status), colon, c->line);
	return log_error(E_IO, "%s failed with status %d%s%s", c->what,
			 WEXITSTATUS(status), colon, c->line);
}

int child_step(struct child *c)
{
	int status;
	int rc = proc_reap(c->pid, &status);

	/* In this order: what it printed before it ended is there now. */
	read_output(c);
	if (rc <= 0)
		return rc;
	end_line(c);
	kill(-c->pid, SIGKILL);
	c->pid = 0;
	c->code = proc_code(status);
	close_fds(c);
	return report(c, status);
}

int child_run(const char *what, const char *command, const char *const *env,
	      int64_t ms, const atomic_bool *cancel)
{
	int64_t deadline = clock_mono_ms() + ms;
	char time[UNITS_MAX];
	struct child c;
	int rc = child_start(&c, what, command, env);

	while (rc == 0) {
		struct pollfd p[] = { { .fd = c.pidfd, .events = POLLIN },
				      { .fd = c.out_fd, .events = POLLIN } };

		poll(p, 2, LOOK_MS);
		rc = child_step(&c);
		if (rc == 0 && atomic_load(cancel))
			rc = -E_AGAIN;
		else if (rc == 0 && clock_mono_ms() > deadline)
			rc = log_error(E_TIMEOUT, "%s did not end within %s",
				       what, units_time(ms, time));
	}
	child_kill(&c);
	return rc < 0 ? rc : 0;
}
