#include "srcahead.h"
#include "log.h"
#include "pool.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct reading {
	struct job job; /* first */
	const struct srcdir *dir;
	const char *path;
	struct srcahead *out;
};

static void read_shard(struct job *job)
{
	struct reading *r = (struct reading *)job;
	int quiet = log_quiet_thread(1);
	int fd = srcdir_open_file(r->dir, r->path, &r->out->id);

	if (fd >= 0) {
		r->out->is_read = st_read_fd(&r->out->st, r->path, fd,
					     r->out->id.size) == 0;
		close(fd);
	}
	log_quiet_thread(quiet);
}

/* All of them, or until one has failed.  They end as reads of files end. */
static void take_back(struct pool *p, uint32_t n)
{
	struct pollfd fd = { .fd = pool_fd(p), .events = POLLIN };
	struct job *job;

	while (n) {
		poll(&fd, 1, -1);
		while ((job = pool_next(p))) {
			n--;
			if (!((struct reading *)job)->out->is_read)
				return;
		}
	}
}

void srcahead_read(const struct srcdir *dir, char *const *path, uint32_t n,
		   struct srcahead *out)
{
	int quiet = log_quiet_thread(1);
	struct pool *p = pool_new("weir-headers", SRCAHEAD_THREADS, n);
	struct reading *r;

	log_quiet_thread(quiet);
	if (!p)
		return;
	r = xcalloc(n, sizeof *r);
	for (uint32_t i = 0; i < n; i++) {
		r[i] = (struct reading){ .job.fn = read_shard,
					 .dir = dir,
					 .path = path[i],
					 .out = &out[i] };
		pool_submit_take(p, &r[i].job);
	}
	take_back(p, n);
	pool_free(p);
	free(r);
}
