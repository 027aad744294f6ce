#include "pipes/slotstill.h"
#include "common/lease.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static bool look(int fd, struct still *out)
{
	bool is = still_look(fd, out);

	out->ctime_ns = 0;
	return is;
}

static bool watch(int dirfd, const char *path, int *fd, struct still *out)
{
	*fd = openat(dirfd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return *fd >= 0 && lease_take(*fd) == 0 && look(*fd, out);
}

static void let_go(struct slotstill *t)
{
	for (uint32_t i = 0; t->fd && i < t->n; i++)
		if (t->fd[i] >= 0)
			close(t->fd[i]);
	free(t->fd);
	t->fd = NULL;
}

bool slotstill_begin(struct slotstill *t, const struct store *s,
		     uint64_t version, const struct store_slot *slot)
{
	int dirfd = -1;
	bool is = slot->nfiles <= SLOTSTILL_FILES_MAX;

	*t = (struct slotstill){ .version = version };
	if (is)
		dirfd = store_open_dir(s, version);
	is = dirfd >= 0;
	if (is) {
		t->file = xcalloc(slot->nfiles, sizeof *t->file);
		t->fd = xcalloc(slot->nfiles, sizeof *t->fd);
	}
	while (is && t->n < slot->nfiles) {
		uint32_t i = t->n++;

		is = watch(dirfd, slot->file[i].path, &t->fd[i], &t->file[i]);
	}
	if (dirfd >= 0)
		close(dirfd);
	if (!is)
		slotstill_release(t);
	return is;
}

bool slotstill_end(struct slotstill *t)
{
	bool is = true;

	for (uint32_t i = 0; is && i < t->n; i++) {
		struct still now;

		is = look(t->fd[i], &now) && still_same(&now, &t->file[i]) &&
		     still_is_past(&now);
	}
	let_go(t);
	return is;
}

bool slotstill_same(const struct slotstill *a, const struct slotstill *b)
{
	bool is = a->n == b->n;

	for (uint32_t i = 0; is && i < a->n; i++)
		is = still_same(&a->file[i], &b->file[i]);
	return is;
}

void slotstill_release(struct slotstill *t)
{
	let_go(t);
	free(t->file);
	*t = (struct slotstill){ 0 };
}
