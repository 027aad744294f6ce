#include "pipes/engine_shell.h"
#include "common/bucket.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/notify.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESUME_AGAIN_MS 60000 /* between two tries after a restart */

typedef unsigned long long ull;

/* ---- requests in ---- */

void shell_step(struct shell *sh, const struct en_event *ev)
{
	struct en_action a;

	engine_step(&sh->m, ev);
	while (engine_next(&sh->m, &a))
		shell_perform(sh, &a);
}

static bool keeps(const struct shell *sh, const struct m_probe *p)
{
	struct store_slot kept = { 0 };
	int rc = shell_find_kept(sh, &p->content, &p->structure, &kept);

	store_slot_release(&kept);
	return rc > 0;
}

/* probe: NULL if it was a status. */
static void answer_state(struct shell *sh, const struct asker *to,
			 const struct m_probe *probe)
{
	const struct engine *e = &sh->m;
	struct msg m = { .type = M_state };

	m.state = (struct m_state){
		.seq = to->seq,
		.boot = slice_of(sh->store.boot),
		.table = msg_table_hash(),
		.build = SLICE(PACKAGE_VERSION),
		.name = slice_of(sh->conf->name),
		.registry = slice_of(e->fence.registry),
		.epoch = e->fence.epoch,
		.run = slice_of(e->fence.run),
		.serving = e->serving,
		.structure = e->serving_structure,
		.content = e->serving_content,
		.staged = e->version,
		.highest = sh->store.highest,
		.sealed = e->slot == EN_SEALED || e->slot == EN_CHECKING,
		.paused = e->gate != EN_OPEN,
		.adopts = sh->adopt,
		.keeps = probe && keeps(sh, probe),
		.room = store_room(&sh->store),
		.post_load = slice_of(sh->conf->post_load ? sh->conf->post_load
							  : ""),
		.pause_us = sh->pause_us,
		.pid = (uint32_t)getpid(),
		.store = slice_of(sh->store.path),
	};
	shell_answer(sh, to, &m);
}

/* What all requests have, pulled out of any of them. */
struct asked {
	const struct m_fence *fence;
	const struct slice *boot; /* NULL: cancel has none */
	struct en_event ev;
	uint64_t seq;
};

/* clang-format off */
#define ASKED(name, event, ...)						\
	case M_##name:							\
		*a = (struct asked){ &m->name.fence, &m->name.boot,	\
			{ .on = event, __VA_ARGS__ }, m->name.seq };	\
		return true
/* clang-format on */

static bool take_request(const struct msg *m, struct asked *a)
{
	switch (m->type) {
		ASKED(begin, EN_BEGIN, .version = m->begin.version,
		      .structure = m->begin.structure, .bytes = m->begin.bytes,
		      .buckets = m->begin.buckets, .worker = m->begin.worker,
		      .workers = m->begin.workers, .whole = m->begin.whole);
		ASKED(attach, EN_ATTACH, .version = 0);
		ASKED(enroll, EN_ATTACH, .version = 0);
		ASKED(join, EN_ATTACH, .version = 0);
		ASKED(offer, EN_OFFER, .version = m->offer.version);
		ASKED(holding, EN_HOLDING, .version = 0);
		ASKED(finish, EN_FINISH, .version = m->finish.version);
		ASKED(load, EN_LOAD, .version = m->load.version);
		ASKED(ask_receipt, EN_RECEIPT,
		      .version = m->ask_receipt.version);
		ASKED(pause, EN_PAUSE, .token = m->pause.token,
		      .lease_ms = m->pause.lease_ms);
		ASKED(swap, EN_SWAP, .version = m->swap.version,
		      .content = m->swap.content, .token = m->swap.token);
		ASKED(resume, EN_RESUME, .token = m->resume.token);
	case M_cancel:
		*a = (struct asked){ &m->cancel.fence,
				     NULL,
				     { .on = EN_CANCEL },
				     m->cancel.seq };
		return true;
	default:
		return false;
	}
}

static int check_begin(const struct m_begin *b, struct store_slot *out)
{
	if (b->version == 0 || b->buckets > BUCKETS_MAX || b->workers == 0 ||
	    b->workers > 4096 || b->proof >= PROOF_N)
		return log_error(E_PROTO,
				 "begin: version %llu, %u buckets, %u workers, "
				 "proof %u cannot be",
				 (ull)b->version, b->buckets, b->workers,
				 b->proof);
	return store_slot_init(out, b);
}

/* slot: what a begin wants, to be taken once it has passed the fence. */
static int check_request(const struct shell *sh, const struct msg *m,
			 const struct asked *a, struct store_slot *slot)
{
	if (a->boot && !slice_eq(*a->boot, slice_of(sh->store.boot)))
		return log_error(E_FENCED,
				 "%s: for boot %.*s of this engine, which was "
				 "started again since",
				 engine_event_name(a->ev.on),
				 SLICE_ARG(*a->boot));
	if (a->ev.on == EN_PAUSE && a->ev.token == 0)
		return log_error(E_PROTO, "pause: token 0");
	return a->ev.on == EN_BEGIN ? check_begin(&m->begin, slot) : 0;
}

/* The fence, durable before anything is done for who moved it. */
static int pass_fence(struct shell *sh, const struct asked *a)
{
	const struct fence_speaker who = {
		.registry = a->fence->registry,
		.run = a->fence->run,
		.epoch = a->fence->epoch,
		.instance = a->fence->instance,
		.stage = a->fence->stage,
	};
	bool adopt = a->ev.on == EN_BEGIN && sh->adopt;
	uint64_t highest = sh->store.highest;
	char why[FENCE_WHY_MAX];
	struct fence moved = sh->m.fence;
	int rc;

	rc = engine_admit(&sh->m, a->ev.on, &who, adopt, &moved, why);
	if (rc < 0)
		return log_error(E_FENCED, "%s: %s",
				 engine_event_name(a->ev.on), why);
	if (a->ev.on == EN_BEGIN && a->ev.version > highest)
		highest = a->ev.version;
	if (rc == 0 && highest == sh->store.highest)
		return 0;
	if (moved.spent && !sh->m.fence.spent)
		log_warn("registry %s takes the store over from %s",
			 moved.registry, moved.former);
	rc = store_set_fence(&sh->store, &moved, highest);
	if (rc < 0)
		return rc;
	sh->m.fence = moved;
	sh->adopt = sh->adopt && !moved.spent;
	return 0;
}

/* One request of a kind is pending at most: the newer one is answered. */
static void take_over(struct shell *sh, const struct asked *a,
		      const struct asker *from)
{
	struct asker *to = &sh->asker[a->ev.on];

	if (sh->m.pending[a->ev.on])
		shell_refuse(sh, to, -E_AGAIN, ID_NONE, "asked again since");
	*to = *from;
	to->stage = a->fence->stage;
	to->instance = a->fence->instance;
}

bool shell_is_overtaken(const struct shell *sh, const struct asker *to)
{
	return to->instance < sh->m.fence.instance[to->stage];
}

static void take_wanted(struct shell *sh, struct store_slot *wanted,
			const struct m_begin *b)
{
	store_slot_release(&sh->next);
	sh->next = *wanted;
	sh->next_proof = b->proof;
	sh->next_content = b->content;
}

void shell_request(struct shell *sh, const struct asker *from,
		   const struct msg *m)
{
	struct store_slot wanted = { 0 };
	struct asked a;
	int rc;

	if (!take_request(m, &a)) {
		if (log_few(&sh->junk, LOG_WARN))
			log_warn("a %s is nothing to ask an engine",
				 msg_name(m->type));
		return;
	}
	a.ev.epoch = a.fence->epoch;
	log_quiet_thread(1);
	rc = check_request(sh, m, &a, &wanted);
	if (rc >= 0)
		rc = pass_fence(sh, &a);
	log_quiet_thread(0);
	if (rc < 0) {
		shell_refuse(sh, from, rc,
			     m->type == M_offer ? m->offer.bucket : ID_NONE,
			     log_cause());
		store_slot_release(&wanted);
		return;
	}
	if (m->type == M_begin)
		take_wanted(sh, &wanted, &m->begin);
	take_over(sh, &a, from);
	sh->now = m;
	shell_step(sh, &a.ev);
	sh->now = NULL;
}

/* Its build has other messages: told, it need not wait for an answer. */
static void refuse_strange(struct shell *sh, struct asker *from)
{
	if (msg_is_strange(&sh->arena, buf_slice(&sh->frame), &from->seq))
		shell_refuse(sh, from, -E_PROTO, ID_NONE,
			     "it " MSG_STRANGE " (build " PACKAGE_VERSION
			     "): restart it with the publisher's build");
}

int shell_unpack(struct shell *sh, struct msg *m)
{
	int was = log_quiet_thread(1);
	int rc = msg_unpack(m, &sh->arena, buf_slice(&sh->frame));

	log_quiet_thread(was);
	if (rc < 0 && log_few(&sh->junk, LOG_WARN))
		log_warn("a peer is not heard: %s", log_cause());
	return rc;
}

/* Of what is asked here; the rest has no answer. */
static bool take_seq(const struct msg *m, uint64_t *seq)
{
	struct asked a;

	if (m->type == M_probe)
		*seq = m->probe.seq;
	else if (m->type == M_status)
		*seq = m->status.seq;
	else if (m->type != M_attach && take_request(m, &a))
		*seq = a.seq;
	else
		return false;
	return true;
}

/* With --allow any user's connect succeeds: a socket's mode has no list. */
static void refuse_user(struct shell *sh, const struct asker *from)
{
	char cause[80];

	/* Who does not read must not take the place of replies to others. */
	if (sh->nout >= SHELL_OUT_MAX / 2 ||
	    sh->out_bytes >= SHELL_OUT_BYTES / 2)
		return;
	snprintf(cause, sizeof cause,
		 "user %lu may not connect; see weir-engine --allow",
		 (unsigned long)from->peer.uid);
	shell_refuse(sh, from, -E_PERM, ID_NONE, cause);
}

static void take_frame(struct shell *sh, struct asker *from)
{
	struct msg m;

	if (shell_unpack(sh, &m) < 0)
		refuse_strange(sh, from);
	else if (!take_seq(&m, &from->seq))
		return;
	else if (!shell_may_connect(sh, from->peer.uid))
		refuse_user(sh, from);
	else if (m.type == M_probe || m.type == M_status)
		answer_state(sh, from, m.type == M_probe ? &m.probe : NULL);
	else
		shell_request(sh, from, &m);
}

static void sock_ready(void *arg)
{
	struct shell *sh = arg;
	struct asker from = { 0 };
	uint32_t waiting = sh->nout;

	sh->in_turn = true;
	for (int turn = 0; turn < SHELL_TURN &&
			   sock_recv(&sh->sock, &from.peer, &sh->frame) > 0;
	     turn++)
		take_frame(sh, &from);
	sh->in_turn = false;
	if (sh->nout > waiting)
		shell_send_waiting(sh);
}

/* ---- start and stop ---- */

static void on_signal(int signo, void *arg)
{
	struct shell *sh = arg;

	if (signo == SIGINT || signo == SIGTERM) {
		log_info("ends on signal %d", signo);
		loop_stop(sh->loop, 0);
	}
}

static struct en_version version_of(const struct store_slot *slot)
{
	return (struct en_version){
		.version = slot->version,
		.epoch = slot->epoch,
		.structure = slot->structure,
		.content = slot->received,
	};
}

static int take_served(struct shell *sh)
{
	struct store_slot slot = { 0 };
	struct en_version v;
	int rc;

	if (sh->store.serving == 0)
		return 0;
	rc = store_slot_load(&sh->store, sh->store.serving, &slot);
	v = version_of(&slot);
	if (rc >= 0)
		engine_set_serving(&sh->m, &v);
	store_slot_release(&slot);
	return rc;
}

static int take_staged(struct shell *sh)
{
	struct en_version v;
	int rc;

	if (sh->store.staged == 0)
		return 0;
	rc = store_slot_load(&sh->store, sh->store.staged, &sh->slot);
	v = version_of(&sh->slot);
	if (rc >= 0)
		engine_set_sealed(&sh->m, &v);
	return rc;
}

/* Used up, it stays so through restarts with the same options; a start
 * without it makes the next one count again. */
static int arm_adopt(struct shell *sh)
{
	struct fence f = sh->store.fence;

	sh->adopt = sh->conf->adopt && !f.spent;
	if (sh->conf->adopt && f.spent)
		log_warn("--adopt was used: registry %s took the store over "
			 "from %s; to use it again, start once without it",
			 f.registry, f.former);
	if (sh->conf->adopt || !f.spent)
		return 0;
	f.spent = false;
	return store_set_fence(&sh->store, &f, sh->store.highest);
}

/* It stands in the answer to every probe. */
static int check_path(const char *path)
{
	if (msg_is_text(slice_of(path)))
		return 0;
	return log_error(E_USAGE,
			 "--store %s: expected a path of UTF-8 without control "
			 "characters",
			 path);
}

static int open_store(struct shell *sh)
{
	int rc = check_path(sh->conf->store);

	if (rc >= 0)
		rc = store_open(&sh->store, sh->conf->store, sh->conf->keep);
	/* Without links it may be another one. */
	if (rc >= 0)
		rc = check_path(sh->store.path);
	if (rc >= 0)
		rc = arm_adopt(sh);
	if (rc < 0)
		return rc;
	engine_init(&sh->m, &sh->store.fence);
	rc = take_served(sh);
	return rc < 0 ? rc : take_staged(sh);
}

/* Every file of the version kept and of its source may be open at once. */
static void raise_limits(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0)
		return;
	r.rlim_cur = r.rlim_max;
	setrlimit(RLIMIT_NOFILE, &r);
}

static int listen_all(struct shell *sh)
{
	int rc = shell_fd_listen(sh); /* refuses a second engine */

	if (rc < 0)
		return rc;
	rc = sock_listen(&sh->sock, sh->conf->listen, FRAME_MAX);
	if (rc < 0)
		return rc;
	if (sh->conf->nallow > 0 && chmod(sh->path, 0666) < 0)
		return log_errno(E_IO, "make %s usable for others", sh->path);
	loop_add_sock(sh->loop, &sh->sock, sock_ready, sh);
	return 0;
}

static int start(struct shell *sh)
{
	int rc;

	if (strncmp(sh->conf->listen, "ipc://", 6) != 0)
		return log_error(E_CONFIG,
				 "--listen %s: only ipc://PATH is built",
				 sh->conf->listen);
	sh->path = xstrdup(sh->conf->listen + 6);
	sh->fd_path = xasprintf("%s.fd", sh->path);
	raise_limits();
	sh->loop = loop_new();
	rc = loop_signals(sh->loop, on_signal, sh);
	if (rc >= 0)
		rc = open_store(sh);
	if (rc < 0)
		return rc;
	sh->pool = pool_new("copy", sh->conf->copy_threads, SHELL_JOBS_MAX);
	if (!sh->pool)
		return -E_IO;
	loop_add_fd(sh->loop, pool_fd(sh->pool), shell_pool_ready, sh);
	return 0;
}

/* Killed while the engine process was paused: nobody else would resume it. */
static void resume_again(struct shell *sh)
{
	const struct en_event ev = { .on = EN_LEASE_END };

	if (!sh->store.paused)
		return;
	log_warn("killed while it was paused: resumes");
	engine_set_paused(&sh->m, RESUME_AGAIN_MS);
	shell_step(sh, &ev);
}

static void say_ready(struct shell *sh)
{
	char served[40] = "nothing yet";

	if (sh->m.serving)
		snprintf(served, sizeof served, "version %llu",
			 (ull)sh->m.serving);
	log_info("engine %s listens at %s, serves %s", sh->conf->name,
		 sh->conf->listen, served);
	notify_ready();
	if (sh->conf->ready_fd < 0)
		return;
	io_write_full(sh->conf->ready_fd, "\n", 1);
	close(sh->conf->ready_fd);
}

static void go_live(struct shell *sh, int rc)
{
	if (rc >= 0)
		rc = listen_all(sh);
	if (rc < 0) {
		loop_stop(sh->loop, rc);
		return;
	}
	resume_again(sh);
	say_ready(sh);
}

/* Staging of an unsealed version is removed by the next start: a copy in
 * progress is not worth waiting for. */
static void stop(struct shell *sh)
{
	atomic_store(&sh->cancel, true);
	shell_hook_stop(sh);
	shell_mover_stop(sh);
	shell_device_close(sh);
	if (sh->pool)
		pool_stop(sh->pool);
	/* Who asked for what ended us hears why. */
	sock_finish(&sh->sock, SHELL_LAST_MS);
	shell_fd_close(sh);
	sock_end();
	pool_free(sh->pool);
	log_few_end(&sh->junk);
	log_few_end(&sh->refusals);
	log_few_end(&sh->strangers);
	for (uint32_t i = 0; i < sh->nout; i++)
		buf_release(&sh->out[i].frame);
	free(sh->out);
	store_make_undo(&sh->make.making);
	store_files_release(&sh->make.made);
	shell_drop_slot(sh);
	fetch_release(&sh->seal.fetch);
	slotstill_release(&sh->still);
	store_slot_release(&sh->next);
	store_close(&sh->store);
	loop_free(sh->loop);
	msg_arena_release(&sh->arena);
	buf_release(&sh->frame);
	buf_release(&sh->packed);
	free(sh->path);
	free(sh->fd_path);
}

int engine_run(const struct engine_conf *conf)
{
	struct shell *sh = xcalloc(1, sizeof *sh);
	int rc;

	sh->conf = conf;
	sh->junk.what = "messages that are none";
	sh->refusals.what = "refusals";
	sh->strangers.what = "closed connections";
	sh->listener = -1;
	sh->store = STORE_CLOSED;
	sh->hook = (struct child)CHILD_NONE;
	rc = start(sh);
	if (rc >= 0) {
		shell_device_open(sh, go_live);
		rc = loop_run(sh->loop);
	}
	stop(sh);
	free(sh);
	return rc;
}
