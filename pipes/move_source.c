#include "pipes/move_source.h"

#include "common/devsource.h"
#include "common/err.h"
#include "common/gpu.h"
#include "common/io.h"
#include "common/log.h"
#include "common/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

typedef unsigned long long ull;

/* A run of the file that is on its way. */
struct chunk {
	char *p;
	bool is_pinned;
	void *stream;
	uint32_t tensor; /* the first in it */
	uint64_t at;	 /* in the file */
	size_t n;	 /* 0: nothing */
};

struct take {
	int fd;
	struct devsource source;
	void **base; /* of each allocation, as it is mapped here */
	struct chunk chunk[2];
	uint32_t tensor; /* the next byte to be asked for: of this one, */
	uint64_t byte;	 /* here, */
	uint64_t at;	 /* and here in the file */
};

/* ---- the device ---- */

static int open_chunks(struct take *t)
{
	bool is_pinned = true;
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		struct chunk *c = &t->chunk[i];

		rc = gpu_host_alloc((void **)&c->p, MOVE_SOURCE_CHUNK,
				    &c->is_pinned);
		if (rc == 0)
			rc = gpu_stream_new(&c->stream);
		is_pinned = is_pinned && c->is_pinned;
	}
	if (rc == 0 && !is_pinned)
		log_warn("no pinned memory of %zu bytes can be had: copies "
			 "from the device are slower",
			 2 * MOVE_SOURCE_CHUNK);
	return rc;
}

static void close_chunks(struct take *t)
{
	for (int i = 0; i < 2; i++) {
		gpu_stream_free(t->chunk[i].stream);
		if (t->chunk[i].p)
			gpu_host_free(t->chunk[i].p, t->chunk[i].is_pinned);
	}
}

/* The tensor that an allocation is named by in a message. */
static const struct devsource_tensor *first_of(const struct devsource *s,
					       uint32_t base)
{
	uint32_t i = 0;

	while (s->tensor[i].base != base)
		i++;
	return &s->tensor[i];
}

static int map_bases(struct take *t)
{
	const struct devsource *s = &t->source;

	t->base = xcalloc(s->nbases, sizeof(*t->base));
	for (uint32_t i = 0; i < s->nbases; i++) {
		int was = log_quiet_thread(1);
		int rc = gpu_map(&t->base[i], s->handle[i]);

		log_quiet_thread(was);
		if (rc < 0)
			return log_error(-rc, "tensor \"%s\": %s",
					 first_of(s, i)->name, log_cause());
	}
	return 0;
}

/* A peer's memory can be mapped as well, so that nobody else would tell. */
static int check_home(const struct take *t, uint32_t base)
{
	const struct devsource *s = &t->source;
	unsigned char uuid[GPU_UUID_LEN];
	char is[GPU_UUID_TEXT], said[GPU_UUID_TEXT];
	int rc = gpu_device_of(t->base[base], uuid);

	if (rc < 0 || memcmp(uuid, s->device, sizeof(uuid)) == 0)
		return rc;
	gpu_uuid_text(uuid, is);
	gpu_uuid_text(s->device, said);
	return log_error(E_DATA,
			 "tensor \"%s\": its handle is of memory on %s, not "
			 "on %s",
			 first_of(s, base)->name, is, said);
}

/* What the list says of places, nobody else has checked. */
static int check_places(const struct take *t)
{
	const struct devsource *s = &t->source;
	size_t *room = xcalloc(s->nbases, sizeof(*room));
	int rc = 0;

	for (uint32_t i = 0; i < s->nbases && rc == 0; i++) {
		rc = check_home(t, i);
		if (rc == 0)
			rc = gpu_room_at(t->base[i], &room[i]);
	}
	for (uint32_t i = 0; i < s->n && rc == 0; i++) {
		const struct devsource_tensor *of = &s->tensor[i];
		uint64_t end = of->offset + of->bytes;

		if (end > room[of->base])
			rc = log_error(
				E_DATA,
				"tensor \"%s\": bytes %llu to %llu of an "
				"allocation that has %zu",
				of->name, (ull)of->offset, (ull)end,
				room[of->base]);
	}
	free(room);
	return rc;
}

/* A handle that is not closed keeps the trainer's memory from being free. */
static int unmap_bases(struct take *t)
{
	int first = 0;

	for (uint32_t i = 0; t->base && i < t->source.nbases; i++) {
		int rc = t->base[i] ? gpu_unmap(t->base[i]) : 0;

		first = first < 0 ? first : rc;
	}
	free(t->base);
	return first;
}

static int open_device(struct take *t)
{
	struct gpu_device d;
	int rc;

	watchdog_set("the start of the device", MOVE_SOURCE_CALL_MS);
	rc = gpu_open_uuid(t->source.device, &d);
	if (rc == 0)
		rc = open_chunks(t);
	if (rc == 0)
		rc = map_bases(t);
	if (rc == 0)
		rc = check_places(t);
	watchdog_clear();
	if (rc == 0)
		log_info("%s, CUDA runtime %d, driver %d", d.name, d.runtime,
			 d.driver);
	return rc;
}

static int close_device(struct take *t)
{
	int rc;

	watchdog_set("the end of the copies", MOVE_SOURCE_CALL_MS);
	close_chunks(t);
	rc = unmap_bases(t);
	watchdog_clear();
	return rc;
}

/* ---- the file ---- */

static int no_room(int fd, uint64_t need)
{
	struct statvfs v;
	ull have = 0;

	if (fstatvfs(fd, &v) == 0)
		have = (ull)v.f_bavail * v.f_frsize;
	return log_error(E_IO,
			 "no room for the source: need %llu bytes in the run "
			 "directory, have %llu; give another one by --run DIR",
			 (ull)need, have);
}

/* All of it at once: the first byte that does not fit would be found after
 * minutes, or, in memory, by whoever is short of it then. */
static int make_room(int fd, uint64_t need)
{
	while (fallocate(fd, 0, 0, (off_t)need) < 0) {
		if (errno == EINTR)
			continue;
		if (errno == ENOSPC)
			return no_room(fd, need);
		if (errno == EOPNOTSUPP)
			return 0;
		return log_errno(E_IO,
				 "room for %llu bytes in the run "
				 "directory",
				 (ull)need);
	}
	return 0;
}

static int begin_file(struct take *t)
{
	struct buf header = { 0 };
	int rc = devsource_header(&t->source, &header);

	if (rc == 0)
		rc = make_room(t->fd, header.n + t->source.bytes);
	if (rc == 0)
		rc = io_pwrite_full(t->fd, header.p, header.n, 0);
	t->at = header.n;
	buf_release(&header);
	return rc < 0 ? rc : 0;
}

/* ---- copies ---- */

/* Ordinary memory is copied to before this returns. */
static int copy(const struct devsource_tensor *of, struct chunk *c,
		const void *from, size_t n)
{
	int rc, was = log_quiet_thread(1);

	watchdog_set("the beginning of a copy", MOVE_SOURCE_CALL_MS);
	rc = gpu_copy(c->stream, c->p + c->n, from, n);
	watchdog_clear();
	log_quiet_thread(was);
	c->n += n;
	if (rc < 0)
		return log_error(-rc, "tensor \"%s\": %s", of->name,
				 log_cause());
	return 0;
}

/* As many bytes as fit, of as many tensors. */
static int fill(struct take *t, struct chunk *c)
{
	const struct devsource *s = &t->source;
	int rc = 0;

	c->at = t->at;
	c->tensor = t->tensor;
	while (rc == 0 && c->n < MOVE_SOURCE_CHUNK && t->tensor < s->n) {
		const struct devsource_tensor *of = &s->tensor[t->tensor];
		uint64_t left = of->bytes - t->byte;
		size_t room = MOVE_SOURCE_CHUNK - c->n;
		size_t n = left < room ? (size_t)left : room;
		const char *base = t->base[of->base];

		if (n > 0)
			rc = copy(of, c, base + of->offset + t->byte, n);
		t->byte += n;
		t->at += n;
		if (t->byte == of->bytes) {
			t->tensor++;
			t->byte = 0;
		}
	}
	return rc;
}

static int wait_for(const struct take *t, const struct chunk *c)
{
	int rc, was = log_quiet_thread(1);

	watchdog_set("the end of a copy", MOVE_SOURCE_CALL_MS);
	rc = gpu_stream_wait(c->stream);
	watchdog_clear();
	log_quiet_thread(was);
	if (rc < 0)
		return log_error(-rc, "tensor \"%s\" or one after it: %s",
				 t->source.tensor[c->tensor].name, log_cause());
	return 0;
}

/* What is on its way into the chunk has come, and is in the file. */
static int land(const struct take *t, struct chunk *c)
{
	int rc;

	if (c->n == 0)
		return 0;
	rc = wait_for(t, c);
	if (rc == 0)
		rc = io_pwrite_full(t->fd, c->p, c->n, (off_t)c->at);
	c->n = 0;
	return rc < 0 ? rc : 0;
}

static int copy_all(struct take *t)
{
	unsigned turn = 0;
	int rc = 0;

	while (rc == 0 && t->tensor < t->source.n) {
		struct chunk *c = &t->chunk[turn++ % 2];

		rc = land(t, c);
		if (rc == 0)
			rc = fill(t, c);
	}
	for (int i = 0; i < 2 && rc == 0; i++)
		rc = land(t, &t->chunk[turn++ % 2]);
	return rc;
}

/* Of two failures the first is told. */
static int take_all(struct take *t)
{
	int end, was, rc = open_device(t);

	if (rc == 0)
		rc = begin_file(t);
	if (rc == 0)
		rc = copy_all(t);
	was = log_quiet_thread(rc < 0);
	end = close_device(t);
	log_quiet_thread(was);
	return rc < 0 ? rc : end;
}

int move_source_run(int fd, const char *file)
{
	struct take t = { .fd = fd };
	int rc = devsource_read(&t.source, file);

	if (rc == 0)
		rc = watchdog_start();
	if (rc == 0)
		rc = take_all(&t);
	devsource_release(&t.source);
	return rc;
}
