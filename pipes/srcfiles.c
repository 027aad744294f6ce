#include "pipes/srcfiles.h"

#include "common/err.h"
#include "common/io.h"
#include "common/lease.h"
#include "common/log.h"

#include <stdlib.h>
#include <unistd.h>

#define HEADER_READ ((size_t)256 << 10) /* bytes of a header at a time */

static struct srcdir_id id_of(const struct plan_file *f)
{
	return (struct srcdir_id){ .dev = f->dev,
				   .ino = f->ino,
				   .size = f->bytes,
				   .mtime_ns = f->mtime_ns };
}

static struct srcdir *dir_of(const struct srcfiles *s, uint32_t file)
{
	return &s->dir[s->plan->file[file].rank];
}

static int hash_header(int fd, const struct plan_file *f, char *room,
		       struct digest *out)
{
	struct digest_state s;

	digest_begin(&s);
	for (uint64_t off = 0; off < f->header; off += HEADER_READ) {
		uint64_t left = f->header - off;
		size_t want = left < HEADER_READ ? left : HEADER_READ;
		int got = io_pread_full(fd, room, want, (off_t)off);

		if (got < 0)
			return got;
		digest_add(&s, room, (size_t)got);
	}
	digest_end(&s, out);
	return 0;
}

/* Two files of equal size and time can still be two (IX-13). */
static int check_header(const struct srcfiles *s, uint32_t i)
{
	const struct plan_file *f = &s->plan->file[i];
	struct digest d;
	char *room;
	int rc;

	if (f->kind != FILE_SHARD)
		return 0;
	room = xmalloc(HEADER_READ);
	rc = hash_header(s->fd[i], f, room, &d);
	free(room);
	if (rc < 0)
		return rc;
	if (!digest_eq(&d, &f->digest))
		return log_error(E_DATA,
				 "%s/%s: its header changed since the "
				 "plan was made; plan again",
				 dir_of(s, i)->path, f->path);
	return 0;
}

static int open_one(struct srcfiles *s, uint32_t i, int fd)
{
	if (fd < 0)
		return fd;
	s->fd[i] = fd;
	s->leased[i] = lease_take(fd) == 0;
	return check_header(s, i);
}

static int open_planned(struct srcfiles *s, uint32_t i)
{
	const struct plan_file *f = &s->plan->file[i];

	s->id[i] = id_of(f);
	return open_one(s, i,
			srcdir_open_same(dir_of(s, i), f->path, &s->id[i]));
}

static int open_like(struct srcfiles *s, uint32_t i)
{
	const struct plan_file *f = &s->plan->file[i];
	int fd = srcdir_open_file(dir_of(s, i), f->path, &s->id[i]);

	if (fd == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s/%s is not there",
				 dir_of(s, i)->path, f->path);
	if (fd >= 0 && s->id[i].size != f->bytes) {
		close(fd);
		return log_error(E_DATA,
				 "%s/%s: expected %llu bytes, found %llu",
				 dir_of(s, i)->path, f->path,
				 (unsigned long long)f->bytes,
				 (unsigned long long)s->id[i].size);
	}
	return open_one(s, i, fd);
}

/* dirs: one for each rank; NULL: as planned. */
static int open_all(struct srcfiles *s, const struct plan *plan,
		    const char *const *dirs)
{
	int rc = 0;

	*s = (struct srcfiles){ .plan = plan };
	s->dir = xcalloc(plan->nranks, sizeof(*s->dir));
	for (uint32_t r = 0; r < plan->nranks; r++)
		s->dir[r].fd = -1;
	s->id = xcalloc(plan->nfiles, sizeof(*s->id));
	s->fd = xcalloc(plan->nfiles, sizeof(*s->fd));
	s->leased = xcalloc(plan->nfiles, sizeof(*s->leased));
	for (uint32_t i = 0; i < plan->nfiles; i++)
		s->fd[i] = -1;
	for (uint32_t r = 0; rc == 0 && r < plan->nranks; r++)
		rc = srcdir_open(&s->dir[r],
				 dirs ? dirs[r] : plan->rank[r].source);
	for (uint32_t i = 0; rc == 0 && i < plan->nfiles; i++)
		rc = dirs ? open_like(s, i) : open_planned(s, i);
	if (rc < 0)
		srcfiles_close(s);
	return rc;
}

int srcfiles_open(struct srcfiles *s, const struct plan *plan)
{
	return open_all(s, plan, NULL);
}

int srcfiles_open_at(struct srcfiles *s, const struct plan *plan,
		     const char *const *dirs)
{
	return open_all(s, plan, dirs);
}

void srcfiles_close(struct srcfiles *s)
{
	if (!s->plan)
		return;
	for (uint32_t i = 0; i < s->plan->nfiles; i++) {
		if (s->fd[i] < 0)
			continue;
		/* Engines may hold copies of the descriptor: the lease would
		 * live on with them. */
		if (s->leased[i])
			lease_release(s->fd[i]);
		close(s->fd[i]);
	}
	free(s->id);
	free(s->fd);
	free(s->leased);
	for (uint32_t r = 0; r < s->plan->nranks; r++)
		srcdir_release(&s->dir[r]);
	free(s->dir);
	*s = (struct srcfiles){ 0 };
}

static bool let_go_if_broken(struct srcfiles *s, uint32_t i)
{
	if (!s->leased[i] || lease_is_held(s->fd[i]))
		return false;
	lease_release(s->fd[i]);
	s->leased[i] = false;
	return true;
}

uint32_t srcfiles_watch(struct srcfiles *s)
{
	uint32_t broken = 0;

	for (uint32_t i = 0; i < s->plan->nfiles; i++) {
		if (!let_go_if_broken(s, i))
			continue;
		broken++;
		log_warn("%s/%s was opened for writing; it is read a second "
			 "time",
			 dir_of(s, i)->path, s->plan->file[i].path);
	}
	return broken;
}

int srcfiles_guard(struct srcfiles *s)
{
	for (uint32_t i = 0; i < s->plan->nfiles; i++)
		if (let_go_if_broken(s, i))
			return log_error(
				E_DATA,
				"%s/%s was opened for writing while it was "
				"sent; push again",
				dir_of(s, i)->path, s->plan->file[i].path);
	return 0;
}

int srcfiles_check(struct srcfiles *s)
{
	for (uint32_t i = 0; i < s->plan->nfiles; i++) {
		const struct plan_file *f = &s->plan->file[i];
		int rc = srcdir_check_same(dir_of(s, i), f->path, s->fd[i],
					   &s->id[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

bool srcfiles_are_leased(const struct srcfiles *s)
{
	for (uint32_t i = 0; i < s->plan->nfiles; i++)
		if (!s->leased[i])
			return false;
	return true;
}
