/*
 * transfer_seek.c - where the bytes of a published version can be had.
 *
 * The plan of a join or a rollback names a content and directories that may
 * hold it: the source first, then slots of engines.  Each is opened as what
 * it is now and hashed whole; the first with the content becomes the source.
 * Nothing is read while every engine keeps a slot of its own: commit asks
 * before the first begin if one does not (`seek`), and a receiver that turns
 * out to hold nothing (its kept slot was bad, or we were started again) has
 * to wait until the source is found.
 */
#include "pipes/transfer_io.h"

#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

static void try_next(struct xfer *x);

/* A directory for each rank. */
static void place_at(const struct xfer *x, uint32_t i, const char **dirs)
{
	uint32_t n = x->plan.nranks;

	for (uint32_t r = 0; r < n; r++)
		dirs[r] = i == 0 ? x->plan.rank[r].source
				 : x->plan.place[(i - 1) * n + r];
}

static void later(struct xfer *x)
{
	loop_arm(x->s->loop, &x->seek.turn, 0);
}

/* ---- the end of it ---- */

static void say_found(struct xfer *x)
{
	struct msg m = { .type = M_found };

	m.found.place = slice_of(x->files.dir[0].path);
	x->seek.asked = false;
	stage_send(x->s, DOWN, &m);
}

static void found(struct xfer *x)
{
	x->seek.is_found = true;
	if (x->seek.tried.n)
		log_warn("version %llu is taken from %s: %s", (ull)x->plan.base,
			 x->files.dir[0].path, buf_cstr(&x->seek.tried));
	else
		log_info("version %llu is in %s", (ull)x->plan.base,
			 x->files.dir[0].path);
	if (x->seek.asked)
		say_found(x);
	for (uint32_t r = 0; r < x->plan.nreceivers; r++)
		if (x->seek.waits[r]) {
			x->seek.waits[r] = false;
			xfer_attach(x, r);
		}
	xfer_drive(x);
}

static void give_up(struct xfer *x)
{
	char *cause = xasprintf(
		"engine %s does not keep version %llu, and its bytes are "
		"nowhere: %s",
		x->seek.needy, (ull)x->plan.base, buf_cstr(&x->seek.tried));

	x->seek.is_on = false;
	xfer_add(x,
		 &(struct xf_event){ .on = XF_EV_FAULT,
				     .engine = ID_NONE,
				     .bucket = ID_NONE,
				     .code = E_NOINPUT },
		 cause);
	free(cause);
	xfer_drive(x);
}

/* ---- one place after the other ---- */

/* Causes name the file. */
static void note(struct xfer *x, const char *cause)
{
	struct buf *b = &x->seek.tried;

	if (b->n > SEEK_TRIED_MAX)
		return;
	buf_addf(b, "%s", b->n ? "; " : "");
	buf_addf(b, "%s", cause);
}

static void hashed(void *arg, uint32_t bucket, const struct digest *d)
{
	(void)arg;
	(void)bucket;
	(void)d;
}

/* The hasher is freed a moment later: it has called us. */
static void failed(void *arg, uint32_t bucket, int code, const char *cause)
{
	struct xfer *x = arg;

	(void)bucket;
	(void)code;
	note(x, cause);
	later(x);
}

static void verified(void *arg, const struct digest *content,
		     enum source_proof proof)
{
	struct xfer *x = arg;
	struct digest whole;
	char *cause;

	(void)proof;
	digest_fold(content, x->plan.nranks, &whole);
	x->seek.is_right = digest_eq(&whole, &x->plan.content);
	if (!x->seek.is_right) {
		cause = xasprintf("%s holds other weights by now",
				  x->files.dir[0].path);
		note(x, cause);
		free(cause);
	}
	later(x);
}

static const struct srchash_ops seek_ops = {
	.hashed = hashed,
	.failed = failed,
	.verified = verified,
};

static int open_place(struct xfer *x, uint32_t i)
{
	const char **dirs = xcalloc(x->plan.nranks, sizeof *dirs);
	int rc, quiet = log_quiet_thread(1);

	place_at(x, i, dirs);
	rc = srcfiles_open_at(&x->files, &x->plan, dirs);
	log_quiet_thread(quiet);
	free(dirs);
	if (rc < 0)
		return rc;
	x->seek.hash =
		srchash_new(x->s->loop, &x->files,
			    (unsigned)x->conf->hash_threads, &seek_ops, x);
	if (!x->seek.hash) {
		srcfiles_close(&x->files);
		return -E_IO;
	}
	srchash_rest(x->seek.hash);
	return 0;
}

static void try_next(struct xfer *x)
{
	while (x->seek.next <= x->plan.nplaces / x->plan.nranks) {
		if (open_place(x, x->seek.next++) == 0)
			return;
		note(x, log_cause());
	}
	give_up(x);
}

static void on_turn(void *arg)
{
	struct xfer *x = arg;

	srchash_free(x->seek.hash);
	x->seek.hash = NULL;
	if (x->seek.is_right) {
		found(x);
		return;
	}
	srcfiles_close(&x->files);
	try_next(x);
}

/* ---- who wants it ---- */

static void start(struct xfer *x, struct slice needy)
{
	struct xfer_seek *k = &x->seek;

	if (k->is_on)
		return;
	k->is_on = true;
	k->next = 0;
	k->turn = (struct loop_timer){ .fn = on_turn, .arg = x };
	buf_clear(&k->tried);
	free(k->needy);
	k->needy = xstrndup(needy.p, needy.n);
	try_next(x);
}

void xfer_seek(struct xfer *x, const struct m_seek *m)
{
	x->seek.asked = true;
	if (x->seek.is_found)
		say_found(x);
	else
		start(x, m->engine);
}

void xfer_need_source(struct xfer *x, uint32_t receiver)
{
	uint32_t engine = x->plan.receiver[receiver].engine;

	if (x->seek.is_found) {
		xfer_attach(x, receiver);
		return;
	}
	x->seek.waits[receiver] = true;
	start(x, slice_of(x->plan.engine[engine].name));
}

void xfer_seek_init(struct xfer *x)
{
	x->seek.waits = xcalloc(x->plan.nreceivers, sizeof(bool));
}

void xfer_seek_stop(struct xfer *x)
{
	if (x->seek.turn.fn)
		loop_disarm(x->s->loop, &x->seek.turn);
	srchash_free(x->seek.hash);
	x->seek.hash = NULL;
	for (uint32_t r = 0; x->seek.waits && r < x->plan.nreceivers; r++)
		x->seek.waits[r] = false;
}

void xfer_seek_release(struct xfer *x)
{
	free(x->seek.waits);
	free(x->seek.needy);
	buf_release(&x->seek.tried);
}
