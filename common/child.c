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

#define LOOK_MS 100 /* between two looks at the cancel flag */

int child_start(struct child *c, const char *what, const char *command,
		const char *const *env)
{
	const char *const argv[] = { "/bin/sh", "-c", command, NULL };
	struct proc_spec spec = {
		.argv = argv,
		.env = env,
		.pass_fd = -1,
		.own_session = true,
	};
	int fd[2];

	*c = (struct child){ .what = what, .pidfd = -1, .out_fd = -1 };
	if (pipe2(fd, O_CLOEXEC) < 0)
		return log_errno(E_IO, "%s: pipe", what);
	spec.fd[0] = PROC_NULL;
	spec.fd[1] = spec.fd[2] = fd[1];
	c->pid = proc_spawn(&spec);
	close(fd[1]);
	c->out_fd = fd[0];
	if (c->pid < 0) {
		int rc = (int)c->pid;

		c->pid = 0;
		child_kill(c);
		return rc;
	}
	fcntl(c->out_fd, F_SETFL, O_NONBLOCK);
	c->pidfd = pidfd_open(c->pid, 0);
	if (c->pidfd >= 0)
		return 0;
	log_errno(E_IO, "%s: pidfd", what);
	child_kill(c);
	return -E_IO;
}

static void end_line(struct child *c)
{
	c->part[c->n] = '\0';
	if (c->n > 0) {
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

static void read_output(struct child *c)
{
	char chunk[4096];
	ssize_t n;

	while (c->out_fd >= 0) {
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
	c->out_fd = c->pidfd = -1;
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
