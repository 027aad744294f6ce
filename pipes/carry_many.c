#include "pipes/carry_many.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/beside.h"
#include "pipes/carry.h"
#include "pipes/crew.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPAN ((uint64_t)64 << 20) /* bytes of one job */
#define FD_PATH_MAX 32		  /* "/proc/self/fd/N" */

struct piece {
	uint32_t item;
	uint64_t offset, bytes;
};

struct carrying {
	const struct carry_many *c;
	int *to; /* of each item; -1: it is a link */
	struct piece *piece;
	uint32_t n;
};

static bool try_link(const struct carry_many *c, const struct carry_item *it)
{
	char name[FD_PATH_MAX];

	snprintf(name, sizeof name, "/proc/self/fd/%d", it->from);
	return linkat(AT_FDCWD, name, c->to, it->path, AT_SYMLINK_FOLLOW) == 0;
}

static int set_mode(const struct carry_many *c, const struct carry_item *it,
		    int fd)
{
	struct stat st = { .st_mode = c->mode };

	if (!c->mode && fstat(it->from, &st) < 0)
		return log_errno(E_IO, "stat %s", it->path);
	if (fchmod(fd, st.st_mode & 0777) < 0)
		return log_errno(E_IO, "mode of %s/%s", c->name, it->path);
	return 0;
}

static void add_pieces(struct carrying *k, uint32_t item)
{
	uint64_t bytes = k->c->item[item].bytes;

	for (uint64_t off = 0; off < bytes; off += SPAN) {
		if ((k->n & (k->n - 1)) == 0)
			k->piece = xreallocarray(k->piece,
						 k->n ? 2 * (size_t)k->n : 1,
						 sizeof *k->piece);
		k->piece[k->n++] = (struct piece){
			item, off, bytes - off < SPAN ? bytes - off : SPAN
		};
	}
}

static int make(struct carrying *k, uint32_t i)
{
	const struct carry_many *c = k->c;
	const struct carry_item *it = &c->item[i];
	bool is_clone;
	int rc = carry_parents(c->to, it->path);

	if (rc < 0 || (c->link && try_link(c, it)))
		return rc;
	k->to[i] = carry_new(c->to, it->path, it->from, &is_clone);
	if (k->to[i] < 0)
		return k->to[i];
	if (!is_clone)
		add_pieces(k, i);
	return set_mode(c, it, k->to[i]);
}

static int copy(void *ctx, uint32_t i, void *seat)
{
	const struct carrying *k = ctx;
	const struct piece *p = &k->piece[i];
	const struct carry_item *it = &k->c->item[p->item];

	(void)seat;
	if (atomic_load(k->c->cancel))
		return log_error(E_AGAIN, "cancelled");
	beside_tell("piece written");
	return carry_range(it->from, k->to[p->item], p->offset, p->bytes,
			   it->path);
}

static int sync_one(void *ctx, uint32_t i, void *seat)
{
	const struct carrying *k = ctx;

	(void)seat;
	if (atomic_load(k->c->cancel))
		return log_error(E_AGAIN, "cancelled");
	if (fsync(k->to[i] < 0 ? k->c->item[i].from : k->to[i]) < 0)
		return log_errno(E_IO, "fsync %s/%s", k->c->name,
				 k->c->item[i].path);
	beside_tell("file synced");
	return 0;
}

static int run(struct carrying *k)
{
	struct crew crew = {
		.threads = k->c->threads, .seat_size = 1, .work = copy, .ctx = k
	};
	uint64_t need = 0;
	int rc;

	for (uint32_t i = 0; i < k->c->n; i++)
		need += k->c->item[i].bytes;
	rc = carry_check_room(k->c->to, k->c->name, need);
	for (uint32_t i = 0; rc == 0 && i < k->c->n; i++)
		rc = make(k, i);
	if (rc == 0)
		rc = crew_run(&crew, k->n);
	crew.work = sync_one;
	return rc < 0 ? rc : crew_run(&crew, k->c->n);
}

int carry_many(const struct carry_many *c)
{
	struct carrying k = { .c = c };
	int rc;

	k.to = xcalloc(c->n, sizeof *k.to);
	for (uint32_t i = 0; i < c->n; i++)
		k.to[i] = -1;
	rc = run(&k);
	for (uint32_t i = 0; i < c->n; i++)
		if (k.to[i] >= 0)
			close(k.to[i]);
	free(k.to);
	free(k.piece);
	return rc;
}
