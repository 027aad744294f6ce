#include "pipes/vdir.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/version.h"
#include "common/units.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX "weight_v"
#define HOST_MAX 65 /* bytes of this host's name, for messages */

char *vdir_path(const char *disk_dir, uint64_t version)
{
	char name[VERSION_NAME_SIZE];

	return xasprintf("%s/" PREFIX "%s", disk_dir,
			 version_name(name, version));
}

uint64_t vdir_number(const char *name)
{
	return strncmp(name, PREFIX, strlen(PREFIX)) == 0
		       ? version_number(name + strlen(PREFIX))
		       : 0;
}

static int open_locked(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return log_errno(errno == ESTALE ? E_NOINPUT : E_IO, "open %s",
				 path);
	if (flock(fd, LOCK_SH | LOCK_NB) == 0)
		return fd;
	close(fd);
	return log_error(E_NOINPUT, "%s is being replaced", path);
}

int vdir_open(struct vdir *d, const char *path)
{
	int rc = open_locked(path);

	*d = (struct vdir)VDIR_INIT;
	if (rc < 0)
		return rc;
	d->fd = rc;
	d->path = xstrdup(path);
	rc = vmark_read(d->fd, d->path, &d->mark);
	if (rc == 0)
		rc = log_error(E_NOINPUT, "%s has no mark %s", d->path,
			       VMARK_NAME);
	if (rc < 0)
		vdir_close(d);
	return rc < 0 ? rc : 0;
}

bool vdir_is_diff(const struct vdir *d)
{
	return strcmp(d->mark.kind, VMARK_DIFF) == 0;
}

static int look(struct vdir *d, const struct vdir_wait *w)
{
	int rc = vdir_open(d, w->path);

	if (rc == 0)
		rc = w->looks(w->ctx, d);
	if (rc < 0)
		vdir_close(d);
	return rc;
}

static int still_missing(const struct vdir_wait *w)
{
	char host[HOST_MAX] = "", time[UNITS_MAX], *cause;
	int rc;

	gethostname(host, sizeof host - 1);
	cause = xstrdup(log_cause());
	rc = log_error(E_NOINPUT, "%s (host %s, waited %s)", cause, host,
		       units_time(w->wait_ms, time));
	free(cause);
	return rc;
}

int vdir_await(struct vdir *d, const struct vdir_wait *w)
{
	int64_t end = clock_mono_ms() + w->wait_ms;

	for (;;) {
		int was = log_quiet_thread(1), rc = look(d, w);

		log_quiet_thread(was);
		if (rc == 0)
			return 0;
		if (rc != -E_NOINPUT)
			return log_error(-rc, "%s", log_cause());
		if (atomic_load(w->cancel))
			return -E_AGAIN;
		if (clock_mono_ms() >= end)
			return still_missing(w);
		poll(NULL, 0, VDIR_LOOK_MS);
	}
}

void vdir_close(struct vdir *d)
{
	if (d->fd >= 0)
		close(d->fd);
	free(d->path);
	*d = (struct vdir)VDIR_INIT;
}
