#include "io.h"
#include "err.h"
#include "log.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

/* Which names go. */
struct which {
	const char *base; /* that file's; NULL: of all */
	bool is_ours;	  /* the directory: its pids are dead ones' */
};

static bool is_number(const char *s, size_t n)
{
	return n > 0 && strspn(s, "0123456789") >= n;
}

static bool is_base(const struct which *w, const char *base, size_t n)
{
	return n > 0 && (!w->base || (strlen(w->base) == n &&
				      memcmp(w->base, base, n) == 0));
}

/* The pid in ".tmp.NAME.PID.N", 0 if the name is not of that form. */
static pid_t tmp_owner(const struct which *w, const char *name)
{
	const char *base, *end, *dot;
	long pid;

	if (strncmp(name, IO_TMP_PREFIX, strlen(IO_TMP_PREFIX)) != 0)
		return 0;
	base = name + strlen(IO_TMP_PREFIX);
	end = strrchr(name, '.');
	dot = memrchr(name, '.', (size_t)(end - name));
	if (!dot || dot < base || !is_base(w, base, (size_t)(dot - base)) ||
	    !is_number(dot + 1, (size_t)(end - dot - 1)) ||
	    !is_number(end + 1, strlen(end + 1)))
		return 0;
	errno = 0;
	pid = strtol(dot + 1, NULL, 10);
	return errno || pid > INT_MAX ? 0 : (pid_t)pid;
}

/* One that nobody has reaped yet has ended all the same. */
static bool is_running(pid_t pid)
{
	struct pollfd p = { .fd = pidfd_open(pid, 0), .events = POLLIN };
	bool has_ended;

	if (p.fd < 0)
		return errno != ESRCH;
	has_ended = poll(&p, 1, 0) > 0;
	close(p.fd);
	return !has_ended;
}

static int sweep_entry(int dirfd, const char *name, const struct which *w)
{
	pid_t pid = tmp_owner(w, name);

	if (pid <= 0 || (!w->is_ours && is_running(pid)))
		return 0;
	if (unlinkat(dirfd, name, 0) == 0)
		log_info("removed %s, left by pid %ld, which has ended", name,
			 (long)pid);
	else if (errno != ENOENT)
		return log_errno(E_IO, "remove %s", name);
	return 1;
}

static int sweep_all(DIR *d, const struct which *w)
{
	struct dirent *e;
	int rc = 0, n = 0;

	for (errno = 0; rc >= 0 && (e = readdir(d)); errno = 0) {
		rc = sweep_entry(dirfd(d), e->d_name, w);
		n += rc > 0;
	}
	if (rc >= 0 && errno)
		rc = log_errno(E_IO, "read a directory");
	return rc < 0 ? rc : n;
}

static int sweep_take(int fd, const struct which *w)
{
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	int rc;

	if (fd < 0)
		return fd;
	if (!d) {
		rc = log_errno(E_IO, "read a directory");
		close(fd);
		return rc;
	}
	rc = sweep_all(d, w);
	closedir(d);
	return rc;
}

int io_sweep_tmp(int dirfd)
{
	return sweep_take(io_open_dir(dirfd, "."), &(struct which){ 0 });
}

int io_sweep_our_tmp(int dirfd)
{
	return sweep_take(io_open_dir(dirfd, "."),
			  &(struct which){ .is_ours = true });
}

int io_sweep_tmp_of(int dirfd, const char *name)
{
	const char *slash = strrchr(name, '/');
	const struct which w = { .base = slash ? slash + 1 : name };
	char *dir = slash ? xstrndup(name, (size_t)(slash - name) + 1)
			  : xstrdup(".");
	int was = log_quiet_thread(1);
	int fd = io_open_dir(dirfd, dir);

	log_quiet_thread(was);
	free(dir);
	return fd < 0 ? 0 : sweep_take(fd, &w);
}
