#include "pipes/recfile.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC_LEN (sizeof RECFILE_MAGIC - 1)
#define LENGTH_LEN 4
#define SUM_LEN 8
#define HEAD_LEN (LENGTH_LEN + SUM_LEN)

static void put_head(char *p, struct slice frame)
{
	struct digest d;

	for (size_t i = 0; i < LENGTH_LEN; i++)
		p[i] = (char)(frame.n >> 8 * i);
	digest_of(frame.p, frame.n, &d);
	memcpy(p + LENGTH_LEN, d.b, SUM_LEN);
}

int rec_append(struct buf *b, const struct msg *m)
{
	size_t before = b->n, head;
	int rc;

	if (b->n == 0)
		buf_add(b, RECFILE_MAGIC, MAGIC_LEN);
	head = b->n;
	buf_reserve(b, HEAD_LEN);
	b->n += HEAD_LEN;
	rc = msg_pack(b, m);
	if (rc < 0) {
		b->n = before;
		return rc;
	}
	put_head(b->p + head, (struct slice){ b->p + head + HEAD_LEN,
					      b->n - head - HEAD_LEN });
	return 0;
}

void rec_append_frame(struct buf *b, struct slice frame)
{
	char head[HEAD_LEN];

	put_head(head, frame);
	buf_add(b, head, HEAD_LEN);
	buf_add(b, frame.p, frame.n);
}

static int check_magic(struct rec_reader *r)
{
	if (r->all.n < MAGIC_LEN ||
	    memcmp(r->all.p, RECFILE_MAGIC, MAGIC_LEN) != 0) {
		log_error(E_DATA, "%s is no record file of this version",
			  r->name);
		rec_close(r);
		return -E_DATA;
	}
	r->off = MAGIC_LEN;
	return 0;
}

int rec_open_take(struct rec_reader *r, const char *name, struct buf *content)
{
	*r = (struct rec_reader){ .name = xstrdup(name), .own = *content };
	*content = (struct buf){ 0 };
	r->all = buf_slice(&r->own);
	return check_magic(r);
}

int rec_open(struct rec_reader *r, int dirfd, const char *name, size_t max)
{
	char where[IO_WHERE_MAX];
	struct buf content = { 0 };
	int rc = io_read_file(dirfd, name, max, &content);

	*r = (struct rec_reader){ 0 };
	if (rc >= 0)
		return rec_open_take(r, io_where(dirfd, name, where), &content);
	buf_release(&content);
	return rc;
}

static int map(struct rec_reader *r, int fd)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) < 0)
		return log_errno(E_IO, "stat %s", r->name);
	if (!S_ISREG(st.st_mode))
		return log_error(E_DATA, "%s is no regular file", r->name);
	if (st.st_size == 0)
		return 0;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		return log_errno(E_IO, "map %s", r->name);
	r->map = p;
	r->all = (struct slice){ p, (size_t)st.st_size };
	return 0;
}

int rec_open_map(struct rec_reader *r, int dirfd, const char *name)
{
	char where[IO_WHERE_MAX];
	int fd, rc;

	*r = (struct rec_reader){ 0 };
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT)
		return -E_NOINPUT;
	if (fd < 0)
		return log_errno(E_IO, "open %s", io_where(dirfd, name, where));
	r->name = xstrdup(io_where(dirfd, name, where));
	rc = map(r, fd);
	close(fd);
	if (rc == 0)
		return check_magic(r);
	rec_close(r);
	return rc;
}

void rec_close(struct rec_reader *r)
{
	if (r->map)
		munmap(r->map, r->all.n);
	buf_release(&r->own);
	free((char *)r->name);
	*r = (struct rec_reader){ 0 };
}

static int bad_record(const struct rec_reader *r, const char *why)
{
	return log_error(E_DATA, "%s: record at byte %zu: %s", r->name, r->off,
			 why);
}

int rec_next_frame(struct rec_reader *r, struct slice *frame)
{
	size_t left = r->all.n - r->off, n = 0;
	const char *p = r->all.p + r->off;
	char head[HEAD_LEN];

	if (left == 0)
		return 0;
	if (left < HEAD_LEN)
		return bad_record(r, "torn");
	for (size_t i = 0; i < LENGTH_LEN; i++)
		n |= (size_t)(unsigned char)p[i] << 8 * i;
	if (n > FRAME_MAX)
		return bad_record(r, "longer than a frame may be");
	if (n > left - HEAD_LEN)
		return bad_record(r, "torn");
	put_head(head, (struct slice){ p + HEAD_LEN, n });
	if (memcmp(head, p, HEAD_LEN) != 0)
		return bad_record(r, "its checksum differs");
	*frame = (struct slice){ p + HEAD_LEN, n };
	r->off += HEAD_LEN + n;
	return 1;
}

int rec_next(struct rec_reader *r, struct msg *m, struct msg_arena *a)
{
	size_t at = r->off;
	struct slice frame;
	int rc = rec_next_frame(r, &frame), was;

	if (rc <= 0)
		return rc;
	/* One line, with the place; its cause ends that line. */
	was = log_quiet_thread(1);
	rc = msg_unpack(m, a, frame);
	log_quiet_thread(was);
	if (rc == 0)
		return 1;
	r->off = at;
	return bad_record(r, log_cause());
}

static int read_one(struct rec_reader *r, enum msg_type type, struct msg *m,
		    struct msg_arena *a)
{
	struct slice more;
	int rc = rec_next(r, m, a);

	if (rc == 0)
		return bad_record(r, "missing");
	if (rc < 0)
		return rc;
	if (m->type != type)
		return log_error(E_DATA, "%s: holds \"%s\", should be \"%s\"",
				 r->name, msg_name(m->type), msg_name(type));
	rc = rec_next_frame(r, &more);
	return rc > 0 ? bad_record(r, "one too many") : rc;
}

int rec_read_one(struct rec_reader *r, int dirfd, const char *name,
		 enum msg_type type, struct msg *m, struct msg_arena *a)
{
	int rc = rec_open(r, dirfd, name, FRAME_MAX + MAGIC_LEN + HEAD_LEN);

	if (rc < 0)
		return rc;
	rc = read_one(r, type, m, a);
	if (rc < 0)
		rec_close(r);
	return rc;
}
