#include "proc.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static const int default_signals[] = {
	SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGIO,
};

static void set_attributes(posix_spawnattr_t *a, const struct proc_spec *p)
{
	short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
	sigset_t none, defaults;

	sigemptyset(&none);
	sigemptyset(&defaults);
	for (size_t i = 0; i < COUNT(default_signals); i++)
		sigaddset(&defaults, default_signals[i]);
	posix_spawnattr_setsigmask(a, &none);
	posix_spawnattr_setsigdefault(a, &defaults);
	if (p->own_session)
		flags |= POSIX_SPAWN_SETSID;
	posix_spawnattr_setflags(a, flags);
}

static void set_descriptors(posix_spawn_file_actions_t *f,
			    const struct proc_spec *p)
{
	for (int i = 0; i < 3; i++) {
		if (p->fd[i] == PROC_NULL)
			posix_spawn_file_actions_addopen(f, i, "/dev/null",
							 O_RDWR, 0);
		else if (p->fd[i] != PROC_KEEP)
			posix_spawn_file_actions_adddup2(f, p->fd[i], i);
	}
	/* dup2 onto itself is how posix_spawn clears close-on-exec. */
	if (p->pass_fd >= 0)
		posix_spawn_file_actions_adddup2(f, p->pass_fd, p->pass_fd);
}

static bool is_overridden(const char *var, const char *const *env)
{
	size_t name = strcspn(var, "=") + 1;

	for (; *env; env++) {
		if (strncmp(var, *env, name) == 0)
			return true;
	}
	return false;
}

/* Ours plus env; the array is owned, its strings are lent. */
static char **merge_environment(const char *const *env)
{
	static const char *const none[] = { NULL };
	size_t n = 0, added = 0;
	char **all;

	env = env ? env : none;
	while (environ && environ[n])
		n++;
	while (env[added])
		added++;
	all = xcalloc(n + added + 1, sizeof *all);
	n = 0;
	for (char **e = environ; e && *e; e++) {
		if (!is_overridden(*e, env))
			all[n++] = *e;
	}
	for (size_t i = 0; i < added; i++)
		all[n++] = (char *)env[i];
	return all;
}

pid_t proc_spawn(const struct proc_spec *p)
{
	char **env = merge_environment(p->env);
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int rc;

	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_init(&files);
	set_attributes(&attr, p);
	set_descriptors(&files, p);
	rc = posix_spawnp(&pid, p->argv[0], &files, &attr,
			  (char *const *)p->argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	free(env);
	if (rc != 0) {
		errno = rc;
		return log_errno(E_IO, "start %s", p->argv[0]);
	}
	return pid;
}

int proc_reap(pid_t pid, int *status)
{
	pid_t got;

	do {
		got = waitpid(pid, status, WNOHANG);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return log_errno(E_IO, "wait for process %ld", (long)pid);
	return got == pid;
}

int proc_code(int status)
{
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

char *proc_beside(const char *name)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	char *slash;

	self[n > 0 ? n : 0] = '\0';
	slash = strrchr(self, '/');
	return xasprintf("%.*s/%s", slash ? (int)(slash - self) : 0, self,
			 name);
}

char *proc_sibling(const char *name)
{
	char *path = proc_beside(name);

	if (access(path, X_OK) == 0)
		return path;
	free(path);
	return xstrdup(name);
}
