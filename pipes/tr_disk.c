/*
 * tr_disk.c - engines load a version directory: transports disk and delta,
 * which differ in what is written there.
 *
 * It is written in a thread, beside the offers that there are none of, and
 * told when it is there (and --post-write has run).  A receiver that is to
 * load gets its path and answers when it has sealed; the wave's width bounds
 * how many do that at once.
 */
#include "pipes/transport.h"

#include "common/child.h"
#include "common/err.h"
#include "common/log.h"
#include "common/patch.h"
#include "common/pool.h"
#include "pipes/delta_choice.h"
#include "pipes/fan.h"
#include "pipes/vdir_write.h"

#include <stdio.h>
#include <stdlib.h>

struct writer {
	struct job job; /* first: the pool's */
	struct vdir_write write;
	struct vdir_diff diff;
	struct vmark_from *from;
	struct identity same;
	bool is_delta;
	struct vdir_made made;
	const char *post_write; /* or NULL */
	int64_t post_write_ms;
	int rc;
	char cause[TR_CAUSE_MAX];
};

struct disk {
	struct fan *fan;
	struct pool *pool;
	struct writer writer;
	char *registry;
	atomic_bool cancel;
};

static struct disk *disk_of(const struct transport *t)
{
	return t->self;
}

/* ---- the directory ---- */

/* For stores that need an explicit publish. */
static int post_write(const struct writer *w)
{
	char *dir = xasprintf("WEIR_DIR=%s", w->made.path);
	char *version = xasprintf("WEIR_VERSION=%llu",
				  (unsigned long long)w->write.version);
	const char *const env[] = { dir, version, NULL };
	int rc = child_run("post-write", w->post_write, env, w->post_write_ms,
			   w->write.cancel);

	free(version);
	free(dir);
	return rc;
}

static void run_writer(struct job *job)
{
	struct writer *w = (struct writer *)job;

	/* Who is told of it says it. */
	log_quiet_thread(1);
	log_adopt_cause(0, "");
	if (w->is_delta)
		w->rc = vdir_write_diff(&w->write, &w->diff, &w->made);
	else
		w->rc = vdir_write_full(&w->write, &w->made);
	if (w->rc == 0 && w->post_write)
		w->rc = post_write(w);
	snprintf(w->cause, sizeof w->cause, "%s", log_cause());
}

static void written(void *arg)
{
	struct transport *t = arg;
	struct writer *w = &disk_of(t)->writer;

	if (!pool_next(disk_of(t)->pool))
		return;
	if (w->rc < 0)
		tr_tell_failed(t, ID_NONE, ID_NONE, -w->rc, slice_of(w->cause));
	else
		tr_tell(t, &(struct tr_event){ .kind = TR_PLACED,
					       .receiver = ID_NONE,
					       .bucket = ID_NONE,
					       .digest = w->made.content,
					       .bytes = w->made.bytes });
}

/* ---- loads ---- */

static void load_ended(void *arg, uint32_t receiver, uint64_t tag,
		       const struct msg *m, int rc)
{
	struct transport *t = arg;

	(void)tag;
	if (rc < 0)
		tr_tell_failed(t, receiver, ID_NONE, -rc,
			       slice_of(log_cause()));
	else if (m->type == M_refused)
		tr_tell_failed(t, receiver, ID_NONE, m->refused.code,
			       m->refused.cause);
	else if (!slice_eq(m->loaded.boot, slice_of(t->env->boot[receiver])))
		tr_tell_failed(t, receiver, ID_NONE, E_FENCED,
			       SLICE("it was restarted"));
	else
		tr_tell(t, &(struct tr_event){ .kind = TR_LOADED,
					       .receiver = receiver,
					       .bucket = ID_NONE });
}

static void stray(void *arg, uint32_t receiver, const struct msg *m)
{
	(void)arg;
	log_debug("receiver %u: %s that nobody waits for", receiver,
		  msg_name(m->type));
}

static void lost(void *arg, uint32_t receiver)
{
	tr_tell_lost(arg, receiver);
}

static const struct fan_ops disk_fan = {
	.reply = load_ended,
	.stray = stray,
	.lost = lost,
};

/* It opens the path by itself. */
static int disk_attach(struct transport *t, uint32_t receiver)
{
	tr_tell_attached(t, receiver);
	return 0;
}

static int disk_load(struct transport *t, uint32_t receiver)
{
	struct disk *d = disk_of(t);
	struct msg m = {
		.type = M_load,
		.load = { .fence = t->env->fence,
			  .boot = slice_of(t->env->boot[receiver]),
			  .version = t->env->version,
			  .place = slice_of(d->writer.made.path),
			  .wait_ms = (uint64_t)t->env->conf->disk_wait_ms },
	};

	return fan_call(d->fan, receiver, &m, 0, 1, t->env->load_ms);
}

/* ---- life ---- */

static void disk_abort(struct transport *t, uint32_t receiver)
{
	fan_forget(disk_of(t)->fan, receiver);
}

static void disk_close(struct transport *t)
{
	struct disk *d = disk_of(t);

	atomic_store(&d->cancel, true);
	if (d->pool)
		loop_del_fd(t->env->loop, pool_fd(d->pool));
	pool_free(d->pool);
	fan_free(d->fan);
	free(d->writer.made.path);
	free(d->writer.from);
	free(d->registry);
	free(d);
}

/* Engines that pull read what slime writes. */
static int check_encoding(const struct transport *t)
{
	const struct plan *p = t->env->plan;
	unsigned encoding = delta_encoding_of(t->env->conf->delta_encoding);

	if (t->ops != &tr_delta_ops || encoding == PATCH_XOR ||
	    encoding == PATCH_OVERWRITE)
		return 0;
	for (uint32_t i = 0; i < p->nengines; i++)
		if (*p->engine[i].pull)
			return log_error(E_CONFIG,
					 "engine %s pulls, and reads "
					 "--delta-encoding xor and overwrite "
					 "alone",
					 p->engine[i].name);
	return 0;
}

/* Who asks for all to be read again gets that. */
static void look_at_source(struct transport *t, struct writer *w)
{
	w->write.from = w->from = vdir_look(&w->write);
	if (!w->is_delta || t->env->proof == PROOF_REREAD ||
	    !vdir_is_base(&w->write, &w->diff, &w->same))
		return;
	w->diff.same = &w->same;
	t->is_base = true;
	log_info("the source is what version %llu was made from, untouched: "
		 "it is not read",
		 (unsigned long long)w->diff.base);
}

static int start_writer(struct transport *t)
{
	const struct tr_env *env = t->env;
	struct disk *d = disk_of(t);

	d->registry = xstrndup(env->fence.registry.p, env->fence.registry.n);
	d->writer = (struct writer){
		.job.fn = run_writer,
		.post_write = env->conf->post_write,
		.post_write_ms = (int64_t)env->load_ms,
		.write = { .disk_dir = env->plan->disk_dir,
			   .plan = env->plan,
			   .fd = env->fd,
			   .registry = d->registry,
			   .version = env->version,
			   .link = env->conf->disk_link,
			   .cancel = &d->cancel },
		.is_delta = t->ops == &tr_delta_ops,
		.diff = { .base = env->base.version,
			  .content = &env->base.content,
			  .place = (const char *const *)env->base.place,
			  .nplaces = env->base.nplaces,
			  .encoding =
				  delta_encoding_of(env->conf->delta_encoding),
			  .checksum = env->conf->delta_checksum,
			  .full_every = env->conf->full_every,
			  .max_chain = env->conf->max_chain },
	};
	look_at_source(t, &d->writer);
	d->pool = pool_new("weir-disk", 1, 1);
	if (!d->pool)
		return -E_IO;
	loop_add_fd(env->loop, pool_fd(d->pool), written, t);
	return pool_submit_take(d->pool, &d->writer.job);
}

static int disk_open(struct transport *t)
{
	struct disk *d = xcalloc(1, sizeof(*d));
	int rc = -E_IO;

	t->self = d;
	d->fan = fan_new(t->env->loop, &disk_fan, t);
	if (d->fan)
		rc = check_encoding(t);
	if (rc == 0)
		rc = tr_add_receivers(t, d->fan, 0);
	if (rc == 0)
		rc = start_writer(t);
	if (rc < 0)
		disk_close(t);
	return rc;
}

#define OPS(transport)                                                        \
	{                                                                     \
		.name = transport, .check = tr_no_check, .open = disk_open,   \
		.attach = disk_attach, .offer = tr_no_offer,                  \
		.post = tr_no_post, .load = disk_load, .poll = tr_no_poll,    \
		.keep = tr_no_keep, .abort = disk_abort, .close = disk_close, \
	}

const struct transport_ops tr_disk_ops = OPS("disk");
const struct transport_ops tr_delta_ops = OPS("delta");
