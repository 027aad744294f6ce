#include "pipes/move_slot_part.h"

#include "common/clock.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/units.h"
#include "common/watchdog.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long ull;

/* In that order. */
enum phase { IDLE, WAITS, COPIES, SUMS, HASHES };

struct move_slot {
	int sock;
	struct loop *loop;
	struct gpu_device device;
	struct store store; /* its dirfd alone is used */
	struct page page;
	struct devslot slot[DEVPAGE_SLOTS];
	uint32_t nslots;       /* 0: not opened yet */
	struct devslot *shown; /* NULL: none */
	struct chunk chunk[2];
	struct hasher hasher;

	enum phase phase;
	struct load load;
	uint64_t seq, deadline; /* of the install */
	int64_t began, there;	/* ns: its first copy, its last */
	struct loop_timer step;
	struct buf in, out;
	struct msg_arena arena;
};

static void give_up(struct move_slot *m, int rc)
{
	loop_stop(m->loop, rc);
}

/* ---- replies ---- */

static void reply(struct move_slot *m, const struct msg *r)
{
	int rc;

	buf_clear(&m->out);
	rc = msg_pack(&m->out, r);
	if (rc == 0)
		rc = fdpass_send(m->sock, buf_slice(&m->out), NULL, 0);
	if (rc < 0)
		give_up(m, rc == -E_UNAVAIL ? 0 : rc);
}

static void refuse(struct move_slot *m, uint64_t seq, int rc)
{
	struct msg r = { .type = M_refused };

	r.refused = (struct m_refused){ .seq = seq,
					.code = (uint8_t)-rc,
					.bucket = ID_NONE,
					.cause = slice_of(log_cause()) };
	reply(m, &r);
}

/* ---- which device ---- */

static int open_chunks(struct move_slot *m)
{
	bool is_pinned = true;
	int rc = 0;

	for (int i = 0; i < 2 && rc == 0; i++) {
		struct chunk *c = &m->chunk[i];

		watchdog_set("pinned memory and a stream", MOVE_SLOT_CALL_MS);
		rc = gpu_host_alloc((void **)&c->p, MOVE_SLOT_CHUNK,
				    &c->is_pinned);
		if (rc == 0)
			rc = gpu_stream_new(&c->stream);
		watchdog_clear();
		is_pinned = is_pinned && c->is_pinned;
	}
	if (!is_pinned)
		log_warn("no pinned memory of %zu bytes can be had: copies to "
			 "the device are slower",
			 2 * MOVE_SLOT_CHUNK);
	return rc;
}

static int open_slots(struct move_slot *m, const struct m_slots *s, int dirfd)
{
	int rc;

	if (m->nslots || s->count == 0 || s->count > DEVPAGE_SLOTS)
		return log_error(E_PROTO, "%u slots cannot be", s->count);
	watchdog_set("the start of the device", MOVE_SLOT_CALL_MS);
	rc = gpu_open((int)s->device, &m->device);
	watchdog_clear();
	if (rc == 0)
		rc = page_open(&m->page, dirfd, m->device.uuid);
	if (rc == 0)
		rc = open_chunks(m);
	if (rc < 0)
		return rc;
	hasher_open(&m->hasher, &m->chunk[0]);
	m->store.dirfd = dup(dirfd);
	m->nslots = s->count;
	for (uint32_t i = 0; i < m->nslots; i++)
		m->slot[i].number = i;
	return 0;
}

static void take_slots(struct move_slot *m, const struct m_slots *s, int dirfd)
{
	struct msg r = { .type = M_enrolled };
	int rc = open_slots(m, s, dirfd);

	if (rc < 0) {
		give_up(m, rc);
		return;
	}
	log_info("%s, CUDA runtime %d, driver %d", m->device.name,
		 m->device.runtime, m->device.driver);
	r.enrolled = (struct m_enrolled){
		.seq = s->seq,
		.uuid = { (const char *)m->device.uuid, GPU_UUID_LEN },
		.device = slice_of(m->device.name),
	};
	reply(m, &r);
}

/* ---- one install ---- */

static void end_install(struct move_slot *m)
{
	loop_disarm(m->loop, &m->step);
	load_release(&m->load);
	m->phase = IDLE;
}

/* Nothing has been written into the slot: it has what it had. */
static void end_untouched(struct move_slot *m, int rc)
{
	uint64_t seq = m->seq;

	/* Hidden for this install; before anybody hears of its end. */
	if (m->shown == m->load.slot)
		page_show(&m->page, m->shown);
	end_install(m);
	refuse(m, seq, rc);
}

/* The device is of no use to us after most failures of it; a file's are not
 * its own. */
static void end_touched(struct move_slot *m, int rc)
{
	uint64_t seq = m->seq;

	watchdog_set("the end of the copies", MOVE_SLOT_CALL_MS);
	for (int i = 0; i < 2; i++)
		if (gpu_stream_wait(m->chunk[i].stream) < 0)
			give_up(m, rc);
	watchdog_clear();
	end_install(m);
	refuse(m, seq, rc);
}

static int make_room(struct move_slot *m)
{
	struct devslot *s = m->load.slot;
	uint64_t need = m->load.bytes ? m->load.bytes : 1;
	int rc;

	s->version = 0;
	if (s->room >= need && s->room / 2 <= need)
		return 0;
	watchdog_set("room for a version on the device", MOVE_SLOT_CALL_MS);
	gpu_free(s->memory);
	*s = (struct devslot){ .number = s->number };
	rc = gpu_alloc(&s->memory, need);
	if (rc == 0)
		rc = gpu_share(s->memory, s->handle);
	watchdog_clear();
	if (rc == 0)
		s->room = need;
	if (rc == -E_NOMEM && m->nslots > 1)
		return log_error(E_NOMEM,
				 "%s, beside the version that is served: "
				 "--in-place needs room for one alone",
				 log_cause());
	return rc;
}

/* 0; 1: not yet. */
static int lock_slot(struct move_slot *m)
{
	const struct devslot *s = m->load.slot;
	int rc = page_lock(&m->page, s->number);

	if (rc != -E_AGAIN)
		return rc;
	/* Of a former life, whose memory went with it. */
	if (!s->memory)
		return 0;
	if ((uint64_t)clock_mono_ms() < m->deadline)
		return 1;
	return log_error(E_AGAIN,
			 "a consumer still maps slot %u of %s, and with it "
			 "version %llu: version %llu needs its place",
			 s->number, m->device.name, (ull)s->version,
			 (ull)m->load.record.version);
}

static void wait_for_slot(struct move_slot *m)
{
	int rc = lock_slot(m);

	if (rc > 0) {
		loop_arm(m->loop, &m->step, MOVE_SLOT_LOOK_MS);
		return;
	}
	if (rc < 0) {
		end_untouched(m, rc);
		return;
	}
	if (m->shown == m->load.slot)
		m->shown = NULL;
	m->phase = COPIES;
	rc = make_room(m);
	m->began = clock_mono_ns();
	if (rc < 0)
		end_touched(m, rc);
	else
		loop_arm(m->loop, &m->step, 0);
}

static int check(const struct load *l, const struct digest *found)
{
	char want[DIGEST_HEX], got[DIGEST_HEX];

	if (digest_eq(found, &l->record.installed))
		return 0;
	return log_error(E_DATA,
			 "version %llu has digest %s on the device, %s in the "
			 "store",
			 (ull)l->record.version, digest_hex(found, got),
			 digest_hex(&l->record.installed, want));
}

static void say_installed(const struct move_slot *m)
{
	log_info("version %llu: %llu bytes on the device, there in %.3f s, "
		 "hashed in %.3f s, %u leaves of them there",
		 (ull)m->load.record.version, (ull)m->load.bytes,
		 (double)(m->there - m->began) / 1e9,
		 (double)(clock_mono_ns() - m->there) / 1e9, m->load.nused);
}

static void finish(struct move_slot *m, const struct digest *found)
{
	struct load *l = &m->load;
	struct msg r = { .type = M_installed };
	int rc = check(l, found);

	if (rc == 0)
		rc = page_describe(&m->page, l);
	if (rc < 0) {
		end_touched(m, rc);
		return;
	}
	say_installed(m);
	l->slot->version = l->record.version;
	l->slot->bytes = l->bytes;
	r.installed = (struct m_installed){ .seq = m->seq,
					    .version = l->record.version,
					    .bytes = l->bytes,
					    .content = *found };
	end_install(m);
	reply(m, &r);
}

/* 1: a little further in this phase; 0: at its end; -E_*. */
static int go_on(struct move_slot *m, struct digest *found)
{
	if (m->phase == COPIES)
		return load_copy(&m->load, m->chunk);
	if (m->phase == SUMS)
		return hasher_step(&m->hasher, &m->load, &m->chunk[0]);
	return load_hash(&m->load, m->chunk, found);
}

static void step(void *arg)
{
	struct move_slot *m = arg;
	struct digest found;
	int rc;

	if (m->phase == WAITS) {
		wait_for_slot(m);
		return;
	}
	rc = go_on(m, &found);
	if (rc < 0) {
		end_touched(m, rc);
		return;
	}
	if (rc == 0 && m->phase == HASHES) {
		finish(m, &found);
		return;
	}
	if (rc == 0 && m->phase == COPIES)
		m->there = clock_mono_ns();
	if (rc == 0)
		m->phase++;
	loop_arm(m->loop, &m->step, 0);
}

static struct devslot *slot_to_fill(struct move_slot *m)
{
	for (uint32_t i = 0; i < m->nslots; i++)
		if (&m->slot[i] != m->shown && page_lock(&m->page, i) == 0)
			return &m->slot[i];
	for (uint32_t i = 0; i < m->nslots; i++)
		if (&m->slot[i] != m->shown)
			return &m->slot[i];
	return m->shown;
}

static void install(struct move_slot *m, const struct m_install *i, int dirfd)
{
	int rc = 0;

	if (m->phase != IDLE || !m->nslots)
		rc = log_error(E_PROTO, "install: %s",
			       m->nslots ? "one after the other"
					 : "no slots yet");
	if (rc < 0) {
		refuse(m, i->seq, rc);
		return;
	}
	rc = load_open(&m->load, &m->store, dirfd, i->version);
	if (rc < 0) {
		load_release(&m->load);
		refuse(m, i->seq, rc);
		return;
	}
	m->seq = i->seq;
	m->deadline = (uint64_t)clock_mono_ms() + i->ms;
	m->load.slot = slot_to_fill(m);
	if (m->load.slot == m->shown)
		page_show(&m->page, NULL);
	m->phase = WAITS;
	loop_arm(m->loop, &m->step, 0);
}

static void show(struct move_slot *m, const struct m_show *s)
{
	struct msg r = { .type = M_shown };
	struct devslot *to = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < m->nslots && s->version; i++)
		if (m->slot[i].version == s->version)
			to = &m->slot[i];
	if (s->version && !to)
		rc = log_error(E_PROTO, "version %llu is not on the device",
			       (ull)s->version);
	if (rc < 0) {
		refuse(m, s->seq, rc);
		return;
	}
	page_show(&m->page, to);
	m->shown = to;
	r.shown = (struct m_shown){ .seq = s->seq, .version = s->version };
	reply(m, &r);
}

static void take_back(struct move_slot *m, uint64_t seq)
{
	if (m->phase == IDLE || m->seq != seq)
		return;
	log_quiet_thread(1);
	log_error(E_AGAIN, "given up with its run");
	log_quiet_thread(0);
	if (m->phase == WAITS)
		end_untouched(m, -E_AGAIN);
	else
		end_touched(m, -E_AGAIN);
}

/* ---- messages ---- */

static int take(struct move_slot *m, const struct msg *msg, int fd)
{
	bool has_dir = msg->type == M_slots || msg->type == M_install;

	if (has_dir != (fd >= 0))
		return log_error(E_PROTO, "a %s %s a directory",
				 msg_name(msg->type),
				 has_dir ? "without" : "with");
	if (msg->type == M_slots)
		take_slots(m, &msg->slots, fd);
	else if (msg->type == M_install)
		install(m, &msg->install, fd);
	else if (msg->type == M_show)
		show(m, &msg->show);
	else if (msg->type == M_give_up)
		take_back(m, msg->give_up.seq);
	else
		return log_error(E_PROTO, "a %s is nothing to ask a mover",
				 msg_name(msg->type));
	return 0;
}

static void sock_ready(void *arg)
{
	struct move_slot *m = arg;
	int fd[FDPASS_MAX], rc;
	size_t n;

	while ((rc = fdpass_recv(m->sock, &m->in, fd, &n)) > 0) {
		struct msg msg;

		rc = msg_unpack(&msg, &m->arena, buf_slice(&m->in));
		if (rc == 0)
			rc = take(m, &msg, n > 0 ? fd[0] : -1);
		while (n > 0)
			close(fd[--n]);
		if (rc < 0)
			break;
	}
	if (rc < 0)
		give_up(m, rc == -E_UNAVAIL ? 0 : rc);
}

/* ---- life ---- */

/* What a consumer maps is left to the end of the process: cudaFree() of it is
 * not defined. */
static void free_slot(struct move_slot *m, struct devslot *s)
{
	if (s->memory && page_lock(&m->page, s->number) == 0)
		gpu_free(s->memory);
}

static void stop(struct move_slot *m)
{
	if (m->page.p)
		page_show(&m->page, NULL);
	watchdog_set("the end of the device's work", MOVE_SLOT_CALL_MS);
	hasher_close(&m->hasher);
	for (int i = 0; i < 2; i++) {
		gpu_stream_free(m->chunk[i].stream);
		if (m->chunk[i].p)
			gpu_host_free(m->chunk[i].p, m->chunk[i].is_pinned);
	}
	for (uint32_t i = 0; i < m->nslots; i++)
		free_slot(m, &m->slot[i]);
	watchdog_clear();
	/* The owner's lock until then: the next one finds the memory free. */
	page_close(&m->page);
	load_release(&m->load);
	if (m->store.dirfd >= 0)
		close(m->store.dirfd);
	buf_release(&m->in);
	buf_release(&m->out);
	msg_arena_release(&m->arena);
	loop_free(m->loop);
}

int move_slot_check(void)
{
	struct gpu_device d;

	return gpu_open(0, &d);
}

int move_slot_run(int fd)
{
	struct move_slot m = { .sock = fd,
			       .store = { .dirfd = -1,
					  .path = (char[]){ "STORE" } },
			       .page = { .dirfd = -1, .fd = -1 },
			       .load = LOAD_NONE };
	int rc;

	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return log_errno(E_USAGE, "descriptor %d", fd);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	m.loop = loop_new();
	m.step = (struct loop_timer){ .fn = step, .arg = &m };
	rc = watchdog_start();
	if (rc == 0) {
		loop_add_fd(m.loop, fd, sock_ready, &m);
		rc = loop_run(m.loop);
	}
	stop(&m);
	return rc;
}
