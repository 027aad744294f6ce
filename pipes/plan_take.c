#include "pipes/plan_take.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "pipes/mover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "gpu:"
#define FILE_NAME "model.safetensors"

bool plan_is_device(const char *source)
{
	return strncmp(source, PREFIX, strlen(PREFIX)) == 0;
}

bool plan_has_device(const struct opt_list *sources)
{
	for (size_t i = 0; i < sources->n; i++)
		if (plan_is_device(sources->v[i]))
			return true;
	return false;
}

static bool is_interrupted(const void *stage)
{
	return stage_is_interrupted(stage);
}

/* What an instance that was killed had begun is worth nothing; what one that
 * runs has, is its own. */
static int copy_once(struct stage *s, int dirfd, const char *file)
{
	struct io_stream out;
	bool linked;
	int rc = io_sweep_tmp(dirfd);

	if (rc >= 0)
		rc = io_stream_open(&out, dirfd, FILE_NAME);
	if (rc < 0)
		return rc;
	rc = mover_run(&mover_source, out.fd, file, is_interrupted, s);
	if (rc < 0) {
		io_stream_drop(&out);
		return rc;
	}
	rc = io_stream_create_once(&out, &linked);
	/* Another instance was faster: its file is as good. */
	return rc == -E_AGAIN ? 0 : rc;
}

static int tell_staged(struct stage *s, int dirfd, size_t rank, int64_t began)
{
	struct stat st;

	if (fstatat(dirfd, FILE_NAME, &st, 0) < 0)
		return log_errno(E_IO, "%s of source rank %zu", FILE_NAME,
				 rank);
	events_tell(&s->events,
		    &HAPPENED("staged", .worker = EV(rank),
			      .bytes = EV((uint64_t)st.st_size),
			      .ms = EV((uint64_t)(clock_mono_ms() - began))));
	return 0;
}

static int take_into(struct stage *s, int dirfd, size_t rank, const char *file)
{
	int64_t began = clock_mono_ms();
	int rc = 0;

	if (faccessat(dirfd, FILE_NAME, F_OK, 0) < 0)
		rc = copy_once(s, dirfd, file);
	return rc < 0 ? rc : tell_staged(s, dirfd, rank, began);
}

/* RUN/sources/R, made if needed. */
static int open_place(struct stage *s, const char *rank)
{
	int fd, rc = io_mkdir(s->run.dirfd, RUN_SOURCES, 0700);
	int all = rc < 0 ? rc : io_open_dir(s->run.dirfd, RUN_SOURCES);

	if (all < 0)
		return all;
	rc = io_mkdir(all, rank, 0700);
	fd = rc < 0 ? rc : io_open_dir(all, rank);
	close(all);
	return fd;
}

static int take(struct stage *s, size_t rank, const char *file,
		struct opt_list *out)
{
	char name[24], *dir;
	int rc, fd;

	snprintf(name, sizeof(name), "%zu", rank);
	fd = open_place(s, name);
	if (fd < 0)
		return fd;
	rc = take_into(s, fd, rank, file);
	close(fd);
	if (rc < 0)
		return rc;
	dir = xasprintf("%s/" RUN_SOURCES "/%s", s->run.path, name);
	opt_list_add(out, dir);
	free(dir);
	return 0;
}

int plan_take(struct stage *s, const struct opt_list *sources,
	      struct opt_list *out)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < sources->n; i++) {
		const char *source = sources->v[i];

		if (plan_is_device(source))
			rc = take(s, i, source + strlen(PREFIX), out);
		else
			opt_list_add(out, source);
	}
	return rc;
}
