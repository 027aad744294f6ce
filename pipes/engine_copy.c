#include "pipes/engine_shell.h"
#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A bucket on its way.  The offer that is answered is the last one. */
struct copy_task {
	uint32_t bucket;
	struct asker from;
	uint32_t left;	  /* jobs that have not come back */
	bool is_in_place; /* a mover has written it: it is only hashed */
	struct digest *leaf;
	int rc;
	char cause[256];
};

struct copy_job {
	struct job job; /* first: the pool's */
	struct shell *sh;
	struct copy_task *task;
	struct piece *piece;
	int *fd; /* of each piece's source */
	struct digest *leaf;
	uint32_t n;
	int rc;
	char cause[256];
};

static void give_up(struct copy_job *c)
{
	c->rc = -E_AGAIN;
	snprintf(c->cause, sizeof c->cause, "bucket %u: given up with its run",
		 c->task->bucket);
}

static void explain(struct copy_job *c, const struct piece *p, int rc)
{
	const struct store_file *f = &c->sh->slot.file[p->file];

	c->rc = rc;
	if (rc == -E_AGAIN)
		give_up(c);
	else if (rc == -E_DATA)
		snprintf(c->cause, sizeof c->cause,
			 "bucket %u: %s is shorter than its %llu bytes now",
			 c->task->bucket, f->path,
			 (unsigned long long)f->bytes);
	else
		snprintf(c->cause, sizeof c->cause,
			 "bucket %u: %s: %llu bytes at %llu cannot be copied: "
			 "%s",
			 c->task->bucket, f->path, (unsigned long long)p->bytes,
			 (unsigned long long)p->offset, err_text(rc));
}

/* In a thread of the pool: no log, nothing of the shell is written. */
static void run_copy(struct job *job)
{
	struct copy_job *c = (struct copy_job *)job;
	struct digest *leaf = c->leaf;
	struct window w = { 0 };
	uint32_t file = ID_NONE;

	for (uint32_t i = 0; i < c->n && c->rc == 0; i++) {
		struct piece *p = &c->piece[i];
		int rc;

		if (p->file != file) {
			file = p->file;
			window_release(&w);
			window_init(&w, c->fd[i], c->sh->slot.file[file].bytes,
				    WINDOW_AUTO);
		}
		rc = c->task->is_in_place
			     ? piece_hash(&w, p, leaf, &c->sh->cancel)
			     : piece_copy(&w, &c->sh->files.file[file], p, leaf,
					  &c->sh->cancel);
		if (rc < 0)
			explain(c, p, rc);
		leaf += piece_leaves(p);
	}
	window_release(&w);
}

static struct copy_job *new_job(struct shell *sh, struct copy_task *t,
				struct digest *leaf)
{
	struct copy_job *c = xcalloc(1, sizeof *c);

	c->job.fn = run_copy;
	c->sh = sh;
	c->task = t;
	c->leaf = leaf;
	return c;
}

static void free_job(struct copy_job *c)
{
	free(c->piece);
	free(c->fd);
	free(c);
}

static void add_piece(struct copy_job *c, const struct piece *p)
{
	c->piece = xreallocarray(c->piece, c->n + 1, sizeof *c->piece);
	c->fd = xreallocarray(c->fd, c->n + 1, sizeof *c->fd);
	c->piece[c->n] = *p;
	c->fd[c->n++] = c->task->is_in_place ? c->sh->files.file[p->file].fd
					     : c->sh->source[p->file].fd;
}

static void submit(struct shell *sh, struct copy_job *c)
{
	c->task->left++;
	if (pool_submit_take(sh->pool, &c->job) == 0)
		return;
	c->task->left--;
	c->task->rc = -E_AGAIN;
	snprintf(c->task->cause, sizeof c->task->cause,
		 "bucket %u: more than %u copies are waiting", c->task->bucket,
		 SHELL_JOBS_MAX);
	free_job(c);
}

/* Spreads a bucket's leaves over as many jobs as there are threads: a whole
 * bucket for each would leave all but one idle at the end of a version. */
static void submit_all(struct shell *sh, struct copy_task *t)
{
	const struct fill_bucket *b = &sh->fill.bucket[t->bucket];
	uint64_t share = b->bytes / sh->conf->copy_threads + 1, room;
	struct digest *leaf = t->leaf;
	struct copy_job *c = new_job(sh, t, leaf);

	if (share < DIGEST_LEAF)
		share = DIGEST_LEAF;
	room = share;
	for (uint32_t i = 0; i < b->n; i++) {
		struct piece rest = sh->fill.piece[b->first + i].p;

		while (rest.bytes > 0) {
			struct piece head = piece_cut(&rest, room);

			add_piece(c, &head);
			leaf += piece_leaves(&head);
			room -= head.bytes < room ? head.bytes : room;
			if (room > 0)
				continue;
			submit(sh, c);
			c = new_job(sh, t, leaf);
			room = share;
		}
	}
	if (c->n > 0)
		submit(sh, c);
	else
		free_job(c);
}

void shell_ack(struct shell *sh, const struct asker *to, uint32_t bucket)
{
	const struct fill_bucket *b = &sh->fill.bucket[bucket];
	struct msg m = { .type = M_ack };

	if (shell_is_overtaken(sh, to))
		return;
	for (uint32_t i = 0; i < sh->m.workers; i++) {
		m.ack = (struct m_ack){
			.seq = to->seq,
			.boot = slice_of(sh->store.boot),
			.bucket = bucket,
			.worker = sh->m.worker + i,
			.bytes = b->bytes,
			.digest = b->digest,
		};
		shell_answer(sh, to, &m);
	}
}

static void end_task(struct shell *sh, struct copy_task *t)
{
	struct en_event ev = { .on = t->rc < 0 ? EN_COPY_FAILED : EN_COPIED };

	sh->task[t->bucket] = NULL;
	/* The bytes are there before anybody hears of them. */
	if (t->rc == 0) {
		fill_hold(&sh->fill, t->bucket, t->leaf);
		shell_ack(sh, &t->from, t->bucket);
	} else {
		/* A run that is given up is somebody's wish. */
		if (t->rc != -E_AGAIN)
			log_warn("%s", t->cause);
		shell_refuse(sh, &t->from, t->rc, t->bucket, t->cause);
	}
	free(t->leaf);
	free(t);
	shell_step(sh, &ev);
}

static void end_copy(struct shell *sh, struct copy_job *c)
{
	struct copy_task *t = c->task;

	if (!c->job.has_run && c->rc == 0)
		give_up(c);
	if (c->rc < 0 && t->rc == 0) {
		t->rc = c->rc;
		snprintf(t->cause, sizeof t->cause, "%s", c->cause);
	}
	free_job(c);
	if (--t->left == 0)
		end_task(sh, t);
}

static void end_seal(struct shell *sh, int rc)
{
	struct en_event ev = { .on = EN_SEAL_OK };
	char cause[256];

	if (rc < 0) {
		snprintf(cause, sizeof cause, "%s", log_cause());
		ev.on = EN_SEAL_FAILED;
		ev.code = rc;
		ev.cause = cause;
	} else {
		ev.content = sh->slot.received;
		log_info("version %llu is sealed, proof %s",
			 (unsigned long long)sh->slot.version,
			 proof_name(sh->slot.proof));
	}
	shell_step(sh, &ev);
}

static void seal_job_ended(struct shell *sh, struct seal_job *j)
{
	int rc = j->rc;

	if (j->kept) {
		shell_checked_link(sh);
		return;
	}
	log_adopt_cause(-rc, j->cause);
	if (rc == 0 && sh->m.slot == EN_SEALING)
		rc = store_seal(&sh->store, &sh->slot);
	if (rc < 0 || sh->m.slot == EN_DROPPING)
		end_seal(sh, rc);
	else
		shell_device_stage(sh, sh->slot.version, end_seal);
}

void shell_pool_ready(void *arg)
{
	struct shell *sh = arg;
	struct job *job;

	while ((job = pool_next(sh->pool))) {
		if (job == &sh->seal.job)
			seal_job_ended(sh, &sh->seal);
		else if (job == &sh->make.job)
			shell_made(sh);
		else
			end_copy(sh, (struct copy_job *)job);
	}
}

/* NULL, or the path of a file that the bucket needs and that is not there. */
static const char *missing_source(const struct shell *sh, uint32_t bucket)
{
	const struct fill_bucket *b = &sh->fill.bucket[bucket];

	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t file = sh->fill.piece[b->first + i].p.file;

		if (!sh->source || sh->source[file].fd < 0)
			return sh->slot.file[file].path;
	}
	return NULL;
}

static struct copy_task *begin(struct shell *sh, uint32_t bucket,
			       const struct asker *from)
{
	struct copy_task *t = xcalloc(1, sizeof *t);
	struct en_event ev = { .on = EN_COPY_BEGUN };

	t->bucket = bucket;
	t->from = *from;
	t->leaf =
		xcalloc(fill_bucket_leaves(&sh->fill, bucket), sizeof *t->leaf);
	sh->task[bucket] = t;
	shell_step(sh, &ev);
	return t;
}

static void work(struct shell *sh, struct copy_task *t)
{
	submit_all(sh, t);
	if (t->left == 0) /* an empty bucket, or a full pool */
		end_task(sh, t);
}

void shell_landed(struct shell *sh, uint32_t bucket, int rc, const char *cause)
{
	struct copy_task *t = sh->task[bucket];

	t->is_in_place = true;
	if (rc == 0) {
		work(sh, t);
		return;
	}
	t->rc = rc;
	snprintf(t->cause, sizeof t->cause, "%s", cause);
	end_task(sh, t);
}

/* Whoever is in a group receives what the group is sent. */
static void offer_group(struct shell *sh, const struct m_offer *o,
			const struct asker *from)
{
	bool is_held = sh->fill.bucket[o->bucket].state == FILL_HELD;

	if (sh->task[o->bucket]) {
		shell_refuse(sh, from, -E_PROTO, o->bucket,
			     "a bucket on its way is offered again");
		return;
	}
	if (!is_held)
		begin(sh, o->bucket, from);
	shell_offer_group(sh, is_held);
}

void shell_offer(struct shell *sh)
{
	const struct m_offer *o = &sh->now->offer;
	const struct asker *from = &sh->asker[EN_OFFER];
	const char *path;
	struct copy_task *t;
	char cause[512];

	if (sh->linked) {
		shell_refuse(sh, from, -E_PROTO, o->bucket,
			     "the version is a kept one: nothing is missing");
		return;
	}
	if (fill_claim(&sh->fill, o) < 0) {
		shell_refuse(sh, from, -E_PROTO, o->bucket, log_cause());
		return;
	}
	if (o->group) {
		offer_group(sh, o, from);
		return;
	}
	if (sh->fill.bucket[o->bucket].state == FILL_HELD) {
		shell_ack(sh, from, o->bucket);
		return;
	}
	t = sh->task[o->bucket];
	if (t) { /* offered again: this one is answered */
		t->from = *from;
		return;
	}
	path = missing_source(sh, o->bucket);
	if (path) {
		snprintf(cause, sizeof cause,
			 "bucket %u: no descriptor of %s was attached",
			 o->bucket, path);
		shell_refuse(sh, from, -E_PROTO, o->bucket, cause);
		return;
	}
	work(sh, begin(sh, o->bucket, from));
}
