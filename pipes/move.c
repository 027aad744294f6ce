#include "pipes/move_shell.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/gputext.h"
#include "common/log.h"
#include "common/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void move_give_up(struct move *m, int rc)
{
	loop_stop(m->loop, rc);
}

/* ---- messages ---- */

/* Replies are few and short; whoever reads none of them is not well. */
void move_send(struct move *m, const struct msg *reply)
{
	int rc;

	buf_clear(&m->out);
	rc = msg_pack(&m->out, reply);
	if (rc == 0)
		rc = fdpass_send(m->sock, buf_slice(&m->out), NULL, 0);
	if (rc == -E_AGAIN)
		log_error(E_AGAIN, "whoever started this reads no replies");
	if (rc < 0)
		move_give_up(m, rc == -E_UNAVAIL ? 0 : rc);
}

void move_refuse(struct move *m, uint64_t seq, int code, uint32_t bucket,
		 const char *cause)
{
	struct msg reply = { .type = M_refused };

	reply.refused = (struct m_refused){ .seq = seq,
					    .code = (uint8_t)code,
					    .bucket = bucket,
					    .cause = slice_of(cause) };
	move_send(m, &reply);
}

static int find_device(const struct move_wire *wire, uint32_t number,
		       struct gpu_device *d, uint32_t *library)
{
	int rc = gpu_open((int)number, d);

	return rc == 0 ? wire->version(library) : rc;
}

static int start_device(struct move *m, uint32_t number)
{
	int rc;

	watchdog_set("the start of the device", MOVE_CALL_MS);
	rc = find_device(m->wire, number, &m->device, &m->library);
	if (rc == 0)
		rc = m->npeers = gpu_peers(m->peer);
	if (rc >= 0)
		rc = gpu_stream_new(&m->copies);
	watchdog_clear();
	return rc;
}

static int open_device(struct move *m, uint32_t number)
{
	int rc = start_device(m, number);
	char version[NCCL_TEXT];

	if (rc < 0)
		return rc;
	nccl_version_text(m->library, version);
	log_info("%s, CUDA runtime %d, driver %d%s%s", m->device.name,
		 m->device.runtime, m->device.driver,
		 m->library ? ", NCCL " : "", m->library ? version : "");
	loop_arm(m->loop, &m->look, MOVE_LOOK_MS);
	return 0;
}

/* With a device there is a stream. */
bool move_is_enrolled(const struct move *m)
{
	return m->copies != NULL;
}

static int enroll(struct move *m, const struct m_enroll *e)
{
	struct msg reply = { .type = M_enrolled };
	struct m_kept *kept;
	int rc = 0;

	if (!move_is_enrolled(m))
		rc = open_device(m, e->device);
	if (rc < 0)
		return rc;
	move_make_room(m, e->room);
	kept = xcalloc(m->ngroups, sizeof(*kept));
	reply.enrolled = (struct m_enrolled){
		.seq = e->seq,
		.uuid = { (const char *)m->device.uuid, GPU_UUID_LEN },
		.device = slice_of(m->device.name),
		.library = m->library,
		.peers = { (const char *)m->peer,
			   (size_t)m->npeers * GPU_UUID_LEN },
		.kept = { kept, move_list_kept(m, kept) },
	};
	move_send(m, &reply);
	free(kept);
	return 0;
}

/* The descriptors are ours from here on, whatever becomes of them. */
static int take_files(struct move *m, const struct m_attach *a, const int *fd,
		      size_t n)
{
	if (a->count != n || a->first > MOVE_FILES_MAX ||
	    n > MOVE_FILES_MAX - a->first)
		return log_error(E_PROTO, "attach of files that cannot be");
	if (a->first + n > m->nfiles) {
		m->file =
			xreallocarray(m->file, a->first + n, sizeof(*m->file));
		while (m->nfiles < a->first + n)
			m->file[m->nfiles++] = -1;
	}
	for (size_t i = 0; i < n; i++) {
		if (m->file[a->first + i] >= 0)
			close(m->file[a->first + i]);
		m->file[a->first + i] = fd[i];
	}
	return 0;
}

static int take_message(struct move *m, const int *fd, size_t n)
{
	struct msg msg;
	int rc = msg_unpack(&msg, &m->arena, buf_slice(&m->in));

	if (rc == 0 && msg.type == M_attach)
		rc = take_files(m, &msg.attach, fd, n);
	else if (rc == 0 && n > 0)
		rc = log_error(E_PROTO, "descriptors with a %s",
			       msg_name(msg.type));
	if (rc < 0) {
		for (size_t i = 0; i < n; i++)
			close(fd[i]);
		return rc;
	}
	switch (msg.type) {
	case M_attach:
		return 0;
	case M_enroll:
		return enroll(m, &msg.enroll);
	case M_join:
		move_join(m, &msg.join);
		return 0;
	case M_offer:
		move_offer(m, &msg.offer);
		return 0;
	case M_taken:
		move_taken(m, msg.taken.seq);
		return 0;
	case M_leave:
		move_leave(m, msg.leave.group);
		return 0;
	case M_rest:
		move_rest(m, msg.rest.seq);
		return 0;
	default:
		return log_error(E_PROTO, "a %s is nothing to ask a mover",
				 msg_name(msg.type));
	}
}

static void sock_ready(void *arg)
{
	struct move *m = arg;
	int fd[FDPASS_MAX], rc;
	size_t n;

	while ((rc = fdpass_recv(m->sock, &m->in, fd, &n)) > 0) {
		rc = take_message(m, fd, n);
		if (rc < 0)
			break;
	}
	if (rc < 0)
		move_give_up(m, rc == -E_UNAVAIL ? 0 : rc);
}

/* ---- what the device tells ---- */

/* In a thread of the runtime.  The pipe has room for every tick there can
 * be: one for each chunk, broadcast and probe. */
static void tell(void *arg)
{
	struct tick *t = arg;

	while (write(t->m->done_fd[1], &t, sizeof(t)) < 0 && errno == EINTR)
		;
}

int move_when_done(struct move *m, void *stream, struct tick *t,
		   void (*fn)(void *), void *arg)
{
	*t = (struct tick){ m, fn, arg };
	return gpu_call(stream, tell, t);
}

static void ticks_ready(void *arg)
{
	struct move *m = arg;
	struct tick *t;

	while (read(m->done_fd[0], &t, sizeof(t)) == sizeof(t))
		t->fn(t->arg);
	move_go_on(m);
}

/* ---- life ---- */

static int check(const struct move_wire *wire, uint32_t device)
{
	struct gpu_device d;
	uint32_t library;

	return find_device(wire, device, &d, &library);
}

static int start(struct move *m)
{
	int rc = watchdog_start();

	if (rc == 0 && pipe2(m->done_fd, O_CLOEXEC | O_NONBLOCK) < 0)
		rc = log_errno(E_IO, "pipe");
	if (rc < 0)
		return rc;
	m->look = (struct loop_timer){ .fn = move_look, .arg = m };
	loop_add_fd(m->loop, m->done_fd[0], ticks_ready, m);
	loop_add_fd(m->loop, m->sock, sock_ready, m);
	return 0;
}

static void stop(struct move *m)
{
	move_free_groups(m);
	watchdog_set("the end of the device's work", MOVE_END_MS);
	gpu_stream_free(m->copies);
	move_free_casts(m);
	for (uint32_t i = 0; i < m->nstagings; i++)
		gpu_free(m->staging[i].memory);
	for (uint32_t i = 0; i < MOVE_RING; i++)
		if (m->chunk[i].p)
			gpu_host_free(m->chunk[i].p, m->chunk[i].is_pinned);
	if (m->probe)
		gpu_host_free(m->probe, m->probe_is_pinned);
	gpu_free(m->probe_memory);
	watchdog_clear();
	for (uint32_t i = 0; i < m->nfiles; i++)
		if (m->file[i] >= 0)
			close(m->file[i]);
	free(m->file);
	buf_release(&m->in);
	buf_release(&m->out);
	msg_arena_release(&m->arena);
	loop_free(m->loop);
}

/* Until the socket ends. */
static int run(const struct move_wire *wire, int fd)
{
	struct move m = { .wire = wire, .sock = fd, .done_fd = { -1, -1 } };
	int rc;

	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return log_errno(E_USAGE, "descriptor %d", fd);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	m.loop = loop_new();
	rc = start(&m);
	if (rc == 0)
		rc = loop_run(m.loop);
	stop(&m);
	return rc;
}

int move_main(const char *name, const struct move_wire *wire, int argc,
	      char **argv)
{
	int rc;

	log_init(name, LOG_INFO);
	if (argc == 3 && strcmp(argv[1], "check") == 0)
		rc = check(wire, (uint32_t)atoi(argv[2]));
	else if (argc == 2)
		rc = run(wire, atoi(argv[1]));
	else
		rc = log_error(E_USAGE,
			       "usage: %s FD, or check DEVICE; it is started "
			       "by other programs",
			       name);
	return err_exit_code(rc);
}
