#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

int move_host_alloc(struct move *m, char **p, size_t n, bool *is_pinned)
{
	int rc = gpu_host_alloc((void **)p, n, is_pinned);

	if (rc == 0 && *is_pinned)
		m->pinned += n;
	return rc;
}

/* All of the ring is one bucket at the most, which credit always has room
 * for. */
static size_t chunk_size(uint64_t room)
{
	uint64_t n = (room + MOVE_RING - 1) / MOVE_RING;

	if (n == 0)
		return 1;
	return n < MOVE_CHUNK ? (size_t)n : MOVE_CHUNK;
}

static int open_ring(struct move *m)
{
	bool is_pinned = true;

	m->chunk_size = chunk_size(m->room);
	for (uint32_t i = 0; i < MOVE_RING; i++) {
		struct chunk *c = &m->chunk[i];
		int rc =
			move_host_alloc(m, &c->p, m->chunk_size, &c->is_pinned);

		if (rc < 0)
			return rc;
		is_pinned = is_pinned && c->is_pinned;
	}
	if (!is_pinned)
		log_warn("no pinned memory of %zu bytes can be had: copies to "
			 "the device are slower",
			 MOVE_RING * m->chunk_size);
	return 0;
}

static int has_room(const struct move *m, uint64_t room)
{
	if (room <= m->room)
		return 0;
	return log_error(E_PROTO,
			 "join: room for buckets of %llu bytes, after %llu",
			 (unsigned long long)room, (unsigned long long)m->room);
}

int move_open_ring(struct move *m, uint64_t room)
{
	if (m->chunk[0].p)
		return has_room(m, room);
	m->room = room;
	return open_ring(m);
}

/* One buffer is enough, two are faster. */
int move_open_staging(struct move *m, uint64_t room)
{
	int rc = move_open_ring(m, room);

	if (rc < 0 || m->nstagings > 0)
		return rc;
	for (uint32_t i = 0; i < MOVE_STAGING && rc == 0; i++) {
		m->staging[i].bucket = ID_NONE;
		rc = gpu_alloc(&m->staging[i].memory, room ? room : 1);
		m->nstagings += rc == 0;
	}
	return m->nstagings ? 0 : rc;
}

static struct chunk *free_chunk(struct move *m)
{
	for (uint32_t i = 0; i < MOVE_RING; i++)
		if (!m->chunk[i].is_busy)
			return &m->chunk[i];
	return NULL;
}

static struct staging *free_staging(struct move *m)
{
	for (uint32_t i = 0; i < m->nstagings; i++)
		if (m->staging[i].users == 0)
			return &m->staging[i];
	return NULL;
}

/* One that holds the bucket since another group of the wave had it. */
static struct staging *loaded_staging(struct move *m, const struct cast *c)
{
	for (uint32_t i = 0; i < m->nstagings; i++)
		if (m->staging[i].bucket == c->bucket &&
		    m->staging[i].wave == c->wave)
			return &m->staging[i];
	return NULL;
}

/* ---- files ---- */

typedef int move_bytes_fn(int fd, char *p, size_t n, uint64_t offset);

static int read_bytes(int fd, char *p, size_t n, uint64_t offset)
{
	int got = io_pread_full(fd, p, n, (off_t)offset);

	if (got < 0 || (size_t)got == n)
		return got < 0 ? got : 0;
	return log_error(E_DATA, "a file is shorter than planned: no byte %llu",
			 (unsigned long long)(offset + (uint64_t)got));
}

static int write_bytes(int fd, char *p, size_t n, uint64_t offset)
{
	return io_pwrite_full(fd, p, n, (off_t)offset);
}

/* The next n bytes of the bucket, wherever its files have them. */
static int walk(struct move *m, struct cast *c, char *p, size_t n,
		move_bytes_fn *fn)
{
	while (n > 0) {
		const struct m_piece *piece = &c->piece[c->at_piece];
		uint64_t left = piece->bytes - c->at_byte;
		size_t now = left < n ? (size_t)left : n;
		int rc = fn(m->file[piece->file], p, now,
			    piece->offset + c->at_byte);

		if (rc < 0)
			return rc;
		p += now;
		n -= now;
		c->at_byte += now;
		if (c->at_byte == piece->bytes) {
			c->at_piece++;
			c->at_byte = 0;
		}
	}
	return 0;
}

/* ---- the end of a cast ---- */

static void free_cast(struct move *m, struct cast *c)
{
	struct cast **at = &m->cast;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	m->ncasts--;
	if (c->staging)
		c->staging->users--;
	free(c->piece);
	free(c);
}

void move_finish(struct move *m, struct cast *c)
{
	struct msg reply = { .type = M_ack };

	reply.ack = (struct m_ack){ .seq = c->seq,
				    .bucket = c->bucket,
				    .bytes = c->bytes };
	if (!c->is_orphan)
		move_send(m, &reply);
	free_cast(m, c);
}

static void fail(struct move *m, struct cast *c, int rc)
{
	if (!c->is_orphan)
		move_refuse(m, c->seq, -rc, c->bucket, log_cause());
	free_cast(m, c);
}

/* Then it is freed when the device has finished with it.  Of what others have
 * mapped only they know when that is: if none says so, at our end. */
static bool is_on_device(const struct cast *c)
{
	if (c->state == CAST_UNLOADS)
		return c->queued > c->done;
	return c->state != CAST_WAITS;
}

void move_drop_casts(struct move *m, const struct group *g, int code,
		     const char *cause)
{
	struct cast *next;

	for (struct cast *c = m->cast; c; c = next) {
		next = c->next;
		if (c->group != g || c->is_orphan)
			continue;
		if (code)
			move_refuse(m, c->seq, code, c->bucket, cause);
		c->is_orphan = true;
		if (!is_on_device(c))
			free_cast(m, c);
	}
}

void move_free_casts(struct move *m)
{
	while (m->cast)
		free_cast(m, m->cast);
}

/* To or from a chunk, and what is to happen when it has landed. */
static int copy(struct move *m, struct chunk *k, void *to, const void *from,
		void (*landed)(void *))
{
	int rc;

	watchdog_set("the beginning of a copy", MOVE_CALL_MS);
	rc = gpu_copy(m->copies, to, from, k->n);
	if (rc == 0)
		rc = move_when_done(m, m->copies, &k->landed, landed, k);
	watchdog_clear();
	return rc;
}

/* ---- device to files ---- */

static void chunk_unloaded(void *arg)
{
	struct chunk *k = arg;
	struct move *m = k->landed.m;
	struct cast *c = k->cast;
	int rc = c->is_orphan ? 0 : walk(m, c, k->p, k->n, write_bytes);

	k->is_busy = false;
	c->done += k->n;
	if (rc < 0) {
		move_refuse(m, c->seq, -rc, c->bucket, log_cause());
		c->is_orphan = true;
	}
	if (c->done == (c->is_orphan ? c->queued : c->bytes))
		move_finish(m, c);
}

/* False: the ring is full. */
static bool unload(struct move *m, struct cast *c)
{
	while (c->queued < c->bytes && !c->is_orphan) {
		struct chunk *k = free_chunk(m);
		const char *from = c->from + c->queued;
		uint64_t left = c->bytes - c->queued;
		int rc;

		if (!k)
			return false;
		k->is_busy = true;
		k->cast = c;
		k->n = left < m->chunk_size ? (size_t)left : m->chunk_size;
		c->queued += k->n;
		rc = copy(m, k, k->p, from, chunk_unloaded);
		if (rc < 0) {
			move_give_up(m, rc);
			return false;
		}
	}
	return true;
}

/* ---- on its way ---- */

void move_launched(struct move *m, const struct cast *c)
{
	struct msg reply = { .type = M_launched };

	reply.launched = (struct m_launched){ c->seq, c->bucket, c->buffer };
	if (!c->is_orphan)
		move_send(m, &reply);
}

static void launch(struct move *m, struct cast *c)
{
	int rc;

	watchdog_set("the launch of a bucket", MOVE_CALL_MS);
	rc = m->wire->launch(m, c);
	watchdog_clear();
	if (rc == -E_UNAVAIL)
		fail(m, c, rc);
	else if (rc < 0)
		move_give_up(m, rc);
}

void move_taken(struct move *m, uint64_t seq)
{
	struct cast *c = m->cast;

	while (c && (c->seq != seq || c->state != CAST_HELD))
		c = c->next;
	if (!c)
		return;
	move_finish(m, c);
	move_go_on(m);
}

/* ---- files to device ---- */

static void chunk_loaded(void *arg)
{
	struct chunk *k = arg;

	k->is_busy = false;
}

static int load_chunk(struct move *m, struct cast *c, struct chunk *k)
{
	uint64_t left = c->bytes - c->queued;
	int rc;

	k->n = left < m->chunk_size ? (size_t)left : m->chunk_size;
	rc = walk(m, c, k->p, k->n, read_bytes);
	if (rc < 0)
		return rc;
	rc = copy(m, k, (char *)c->staging->memory + c->queued, k->p,
		  chunk_loaded);
	if (rc < 0) {
		move_give_up(m, rc);
		return 0;
	}
	k->is_busy = true;
	c->queued += k->n;
	return 0;
}

/* 1: it is on its way to the device; 0: the ring is full; or -E_*. */
static int load(struct move *m, struct cast *c)
{
	while (c->queued < c->bytes) {
		struct chunk *k = free_chunk(m);
		int rc = k ? load_chunk(m, c, k) : 0;

		if (!k || rc < 0)
			return rc;
	}
	c->staging->wave = c->wave;
	c->staging->bucket = c->bucket;
	return 1;
}

/* ---- order ---- */

static bool take_staging(struct move *m, struct cast *c)
{
	struct staging *s = c->group->rank == 0 ? loaded_staging(m, c) : NULL;

	c->state = CAST_LOADS;
	/* Who maps rank 0's has none. */
	if (m->nstagings == 0)
		return true;
	if (s)
		c->queued = c->bytes;
	else
		s = free_staging(m);
	if (!s) {
		c->state = CAST_WAITS;
		return false;
	}
	if (c->queued < c->bytes)
		s->bucket = ID_NONE;
	s->users++;
	c->staging = s;
	return true;
}

/* False: what is behind it has to wait as well. */
static bool send_on(struct move *m, struct cast *c)
{
	int rc = 1;

	if (c->bytes == 0) {
		if (c->group->rank == 0)
			move_launched(m, c);
		move_finish(m, c);
		return true;
	}
	if (c->state == CAST_WAITS && !take_staging(m, c))
		return false;
	if (c->is_orphan)
		move_finish(m, c);
	else if (c->group->rank == 0 && (rc = load(m, c)) < 0)
		fail(m, c, rc);
	else if (rc > 0)
		launch(m, c);
	return rc != 0;
}

static void go_down(struct move *m)
{
	for (struct cast *c = m->cast; c; c = c->next)
		if (c->state == CAST_UNLOADS && !unload(m, c))
			return;
}

static void go_up(struct move *m)
{
	struct cast *next;

	for (struct cast *c = m->cast; c; c = next) {
		next = c->next;
		if (c->state <= CAST_LOADS && !send_on(m, c))
			return;
	}
}

void move_go_on(struct move *m)
{
	go_up(m);
	go_down(m);
}

/* ---- offers ---- */

/* NULL, or what is wrong with it. */
static const char *wrong_with(struct move *m, const struct m_offer *o)
{
	const struct group *g = move_group(m, o->group);
	uint64_t sum = 0;

	if (!g || g->state != GROUP_FORMED)
		return "offer: its group is not there";
	if (o->buffer >= MOVE_STAGING ||
	    (g->rank > 0 && m->nstagings == 0 && !g->mapped[o->buffer]))
		return "offer: in a buffer that is not mapped";
	if (o->bytes > m->room)
		return "offer: a bucket larger than the room for one";
	if (m->ncasts == MOVE_CASTS_MAX)
		return "offer: too many are waiting";
	for (uint32_t i = 0; i < o->pieces.n; i++) {
		const struct m_piece *p = &o->pieces.v[i];

		if (p->file >= m->nfiles || m->file[p->file] < 0)
			return "offer: a file that was not attached";
		if (p->bytes > o->bytes - sum || p->bytes == 0)
			return "offer: pieces of another size than the bucket";
		sum += p->bytes;
	}
	if (sum != o->bytes && (o->pieces.n > 0 || g->rank == 0))
		return "offer: pieces of another size than the bucket";
	return NULL;
}

static struct cast *new_cast(struct move *m, const struct m_offer *o)
{
	struct cast *c = xcalloc(1, sizeof(*c)), **at = &m->cast;

	*c = (struct cast){ .seq = o->seq,
			    .bytes = o->bytes,
			    .wave = o->wave,
			    .bucket = o->bucket,
			    .group = move_group(m, o->group),
			    .npieces = o->pieces.n,
			    .buffer = o->buffer };
	c->piece = xcalloc(o->pieces.n, sizeof(*c->piece));
	if (o->pieces.n)
		memcpy(c->piece, o->pieces.v, o->pieces.n * sizeof(*c->piece));
	while (*at)
		at = &(*at)->next;
	*at = c;
	m->ncasts++;
	return c;
}

void move_offer(struct move *m, const struct m_offer *o)
{
	const char *wrong = wrong_with(m, o);

	if (wrong) {
		move_refuse(m, o->seq, E_PROTO, o->bucket, wrong);
		return;
	}
	new_cast(m, o);
	move_go_on(m);
}
