#include "pipes/engine_shell.h"

#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- errands ---- */

static uint64_t add_errand(struct shell *sh, enum msg_type type,
			   const struct asker *from)
{
	struct errand *e = xcalloc(1, sizeof *e);

	e->seq = ++sh->mover_seq;
	e->type = type;
	e->from = *from;
	e->next = sh->errand;
	sh->errand = e;
	return e->seq;
}

static struct errand **find(struct shell *sh, uint64_t seq)
{
	struct errand **at = &sh->errand;

	while (*at && (*at)->seq != seq)
		at = &(*at)->next;
	return at;
}

static void end_errand(struct errand **at)
{
	struct errand *e = *at;

	*at = e->next;
	free(e);
}

static void fail_errand(struct shell *sh, struct errand **at, int rc,
			const char *cause)
{
	struct errand e = **at;

	end_errand(at);
	if (e.type == M_offer && !e.is_held)
		shell_landed(sh, e.bucket, rc, cause);
	else
		shell_refuse(sh, &e.from, rc,
			     e.type == M_offer ? e.bucket : ID_NONE, cause);
}

static void fail_all(struct shell *sh, int rc, const char *cause)
{
	while (sh->errand)
		fail_errand(sh, &sh->errand, rc, cause);
}

static void wake(struct shell *sh)
{
	sh->rest.is = false;
	loop_disarm(sh->loop, &sh->rest.over);
}

void shell_mover_stop(struct shell *sh)
{
	struct mover *m = sh->mover;

	if (!m)
		return;
	wake(sh);
	sh->mover = NULL;
	mover_free(m);
	fail_all(sh, -E_AGAIN, "given up with its run");
}

static void rested_too_long(void *arg)
{
	log_info("no version by groups for long: they end");
	shell_mover_stop(arg);
}

/* One that this run had no use for does not wait for the next. */
void shell_mover_rest(struct shell *sh)
{
	if (!sh->mover)
		return;
	if (sh->rest.is || sh->rest.ms == 0 || sh->errand ||
	    mover_rest(sh->mover) < 0) {
		shell_mover_stop(sh);
		return;
	}
	sh->rest.is = true;
	sh->rest.over = (struct loop_timer){ .fn = rested_too_long, .arg = sh };
	loop_arm(sh->loop, &sh->rest.over, (int64_t)sh->rest.ms);
}

/* ---- what the mover says ---- */

static void enrolled(struct shell *sh, struct errand *e, const struct msg *m)
{
	struct msg reply = *m;

	reply.enrolled.seq = e->from.seq;
	reply.enrolled.boot = slice_of(sh->store.boot);
	shell_answer(sh, &e->from, &reply);
}

static void joined(struct shell *sh, struct errand *e, const struct msg *m)
{
	struct msg reply = *m;

	reply.joined.seq = e->from.seq;
	reply.joined.boot = slice_of(sh->store.boot);
	shell_answer(sh, &e->from, &reply);
}

static void landed(struct shell *sh, struct errand **at)
{
	struct errand e = **at;

	end_errand(at);
	if (e.is_held)
		shell_ack(sh, &e.from, e.bucket);
	else
		shell_landed(sh, e.bucket, 0, "");
}

static void refused(struct shell *sh, struct errand **at,
		    const struct m_refused *r)
{
	char cause[512];

	snprintf(cause, sizeof cause, "%.*s", SLICE_ARG(r->cause));
	fail_errand(sh, at, r->code ? -(int)r->code : -E_PROTO, cause);
}

/* All its replies begin with seq. */
static void said(void *arg, const struct msg *m)
{
	struct shell *sh = arg;
	struct errand **at = find(sh, m->ack.seq);

	if (!*at)
		return;
	if (m->type == M_refused) {
		refused(sh, at, &m->refused);
	} else if (m->type == M_enrolled && (*at)->type == M_enroll) {
		enrolled(sh, *at, m);
		end_errand(at);
	} else if (m->type == M_joined && (*at)->type == M_join) {
		joined(sh, *at, m);
		if (m->joined.formed)
			end_errand(at);
	} else if (m->type == M_ack && (*at)->type == M_offer) {
		landed(sh, at);
	}
}

static void ended(void *arg, int rc)
{
	struct shell *sh = arg;
	struct mover *m = sh->mover;
	char cause[512];

	snprintf(cause, sizeof cause, "%s", log_cause());
	log_warn("%s", cause);
	wake(sh);
	sh->mover = NULL;
	mover_free(m);
	fail_all(sh, rc, cause);
}

static const struct mover_ops ops = { .msg = said, .ended = ended };

/* ---- what it is asked ---- */

static void forward(struct shell *sh, const struct msg *m, uint64_t seq)
{
	int rc = mover_send(sh->mover, m, NULL, 0);

	if (rc < 0)
		fail_errand(sh, find(sh, seq), rc, log_cause());
}

/* The slot's files, to be written. */
static int send_files(struct shell *sh)
{
	int fd[FDPASS_MAX], rc = 0;

	for (uint32_t i = 0; i < sh->files.n && rc == 0; i += FDPASS_MAX) {
		uint32_t left = sh->files.n - i;
		struct msg m = { .type = M_attach };

		m.attach.first = i;
		m.attach.count = left < FDPASS_MAX ? left : FDPASS_MAX;
		for (uint32_t k = 0; k < m.attach.count; k++)
			fd[k] = sh->files.file[i + k].fd;
		rc = mover_send(sh->mover, &m, fd, m.attach.count);
	}
	return rc;
}

static const struct {
	struct slice transport;
	const struct mover_kind *mover;
} ways[] = {
	{ SLICE_INIT("nccl"), &mover_nccl },
	{ SLICE_INIT("cuda-ipc"), &mover_ipc },
};

/* Of a transport that has groups; else NULL. */
static const struct mover_kind *mover_of(struct slice transport)
{
	for (size_t i = 0; i < COUNT(ways); i++)
		if (slice_eq(ways[i].transport, transport))
			return ways[i].mover;
	return NULL;
}

/* What it sets up may be kept only for the same registry's next run, by the
 * same transport. */
static bool is_wanted_again(const struct shell *sh, const struct m_enroll *e)
{
	return sh->rest.is && e->keep_ms > 0 &&
	       mover_of(e->transport) == sh->rest.kind &&
	       slice_eq(e->fence.registry, slice_of(sh->rest.registry));
}

static int start_mover(struct shell *sh, const struct m_enroll *e)
{
	int rc = 0;

	sh->rest.ms = e->keep_ms;
	sh->rest.kind = mover_of(e->transport);
	snprintf(sh->rest.registry, sizeof sh->rest.registry, "%.*s",
		 SLICE_ARG(e->fence.registry));
	wake(sh);
	if (!sh->mover)
		rc = mover_start(&sh->mover, sh->loop, sh->rest.kind, &ops, sh);
	if (rc < 0)
		return rc;
	/* Once it is sealed, nobody writes into the slot. */
	if (sh->m.slot == EN_FILLING)
		rc = send_files(sh);
	if (rc < 0)
		shell_mover_stop(sh);
	return rc;
}

static int check_enroll(const struct shell *sh, const struct m_enroll *e)
{
	if (!mover_of(e->transport))
		return log_error(E_CONFIG, "transport %.*s has no groups",
				 SLICE_ARG(e->transport));
	if (sh->linked)
		return log_error(E_PROTO, "the version is a kept one: nothing "
					  "is missing");
	if (e->bytes != sh->slot.bytes)
		return log_error(E_PROTO,
				 "enroll for %llu bytes: the version has %llu "
				 "here",
				 (unsigned long long)e->bytes,
				 (unsigned long long)sh->slot.bytes);
	return 0;
}

void shell_enroll(struct shell *sh)
{
	const struct asker *from = &sh->asker[EN_ATTACH];
	struct msg m = *sh->now;
	int was = log_quiet_thread(1);
	int rc = check_enroll(sh, &m.enroll);

	/* An older instance of transfer died: its groups are of no use. */
	if (rc == 0 && !is_wanted_again(sh, &m.enroll))
		shell_mover_stop(sh);
	if (rc == 0)
		rc = start_mover(sh, &m.enroll);
	log_quiet_thread(was);
	if (rc < 0) {
		shell_refuse(sh, from, rc, ID_NONE, log_cause());
		return;
	}
	m.enroll.seq = add_errand(sh, M_enroll, from);
	forward(sh, &m, m.enroll.seq);
}

void shell_join(struct shell *sh)
{
	const struct asker *from = &sh->asker[EN_ATTACH];
	struct msg m = *sh->now;

	if (!sh->mover || m.join.rank == 0) {
		shell_refuse(sh, from, -E_PROTO, ID_NONE,
			     sh->mover ? "join: rank 0 is the source's"
				       : "join: it has not enrolled");
		return;
	}
	m.join.seq = add_errand(sh, M_join, from);
	forward(sh, &m, m.join.seq);
}

void shell_offer_group(struct shell *sh, bool is_held)
{
	const struct asker *from = &sh->asker[EN_OFFER];
	struct msg m = *sh->now;
	struct errand *e;

	m.offer.seq = add_errand(sh, M_offer, from);
	e = sh->errand;
	e->bucket = m.offer.bucket;
	e->is_held = is_held;
	if (is_held)
		m.offer.pieces.n = 0;
	if (sh->mover)
		forward(sh, &m, m.offer.seq);
	else
		fail_errand(sh, &sh->errand, -E_PROTO,
			    "offered to a group, but it has not enrolled");
}
