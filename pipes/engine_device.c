#include "pipes/engine_shell.h"

#include "common/err.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long ull;

/* ---- calls ---- */

static uint64_t add_call(struct shell *sh, shell_then_fn *then)
{
	struct device_call *c = xcalloc(1, sizeof *c);

	c->seq = ++sh->device.seq;
	c->then = then;
	c->next = sh->device.call;
	sh->device.call = c;
	return c->seq;
}

/* The one with that number is over; nobody knows it afterwards. */
static void end_call(struct shell *sh, uint64_t seq, int rc)
{
	struct device_call **at = &sh->device.call, *c;

	while (*at && (*at)->seq != seq)
		at = &(*at)->next;
	c = *at;
	if (!c)
		return;
	*at = c->next;
	if (sh->device.install == seq) {
		sh->device.install = 0;
		close(sh->device.dirfd);
	}
	c->then(sh, rc);
	free(c);
}

/* ---- what the mover says ---- */

/* The mover keeps it for us: nobody has printed it yet. */
static void refused(struct shell *sh, const struct m_refused *r)
{
	int code = r->code ? r->code : E_PROTO;

	end_call(sh, r->seq, log_error(code, "%.*s", SLICE_ARG(r->cause)));
}

/* All its replies begin with seq. */
static void said(void *arg, const struct msg *m)
{
	struct shell *sh = arg;

	if (m->type == M_refused)
		refused(sh, &m->refused);
	else if (m->type == M_enrolled || m->type == M_installed ||
		 m->type == M_shown)
		end_call(sh, m->enrolled.seq, 0);
}

/* The memory is gone with it: a new start puts all of it right. */
static void ended(void *arg, int rc)
{
	struct shell *sh = arg;

	log_error(-rc, "the device's slots are lost: %s", log_cause());
	loop_stop(sh->loop, rc);
}

static const struct mover_ops ops = { .msg = said, .ended = ended };

/* ---- what it is asked ---- */

static void ask(struct shell *sh, const struct msg *m, uint64_t seq, int dirfd)
{
	int rc = mover_send(sh->device.mover, m, &dirfd, dirfd >= 0);

	if (rc < 0)
		end_call(sh, seq, rc);
}

static void install(struct shell *sh, uint64_t version, shell_then_fn *then)
{
	struct msg m = { .type = M_install };
	int dirfd;

	dirfd = store_open_dir(&sh->store, version);
	if (dirfd < 0) {
		then(sh, dirfd);
		return;
	}
	m.install = (struct m_install){
		.seq = add_call(sh, then),
		.version = version,
		.ms = (uint64_t)sh->conf->post_load_ms,
	};
	sh->device.install = m.install.seq;
	sh->device.dirfd = dirfd;
	ask(sh, &m, m.install.seq, dirfd);
}

void shell_device_stage(struct shell *sh, uint64_t version, shell_then_fn *then)
{
	if (sh->device.mover && !sh->conf->in_place)
		install(sh, version, then);
	else
		then(sh, 0);
}

/* Only consumers that would not let go leave the old version as it was. */
static void replaced(struct shell *sh, int rc)
{
	if (rc < 0 && rc != -E_AGAIN)
		loop_stop(sh->loop, rc);
	sh->device.replaced(sh, rc);
}

void shell_device_replace(struct shell *sh, uint64_t version,
			  shell_then_fn *then)
{
	sh->device.replaced = then;
	if (sh->device.mover && sh->conf->in_place)
		install(sh, version, replaced);
	else
		then(sh, 0);
}

void shell_device_show(struct shell *sh, uint64_t version, shell_then_fn *then)
{
	struct msg m = { .type = M_show };

	if (!sh->device.mover) {
		then(sh, 0);
		return;
	}
	m.show = (struct m_show){ .seq = add_call(sh, then),
				  .version = version };
	ask(sh, &m, m.show.seq, -1);
}

static void show_served(struct shell *sh, int rc)
{
	if (rc < 0)
		sh->device.served(sh, rc);
	else
		shell_device_show(sh, sh->store.serving, sh->device.served);
}

void shell_device_restore(struct shell *sh, shell_then_fn *then)
{
	sh->device.served = then;
	if (sh->device.mover && sh->conf->in_place && sh->store.serving)
		install(sh, sh->store.serving, show_served);
	else
		show_served(sh, 0);
}

void shell_device_give_up(struct shell *sh)
{
	struct msg m = { .type = M_give_up };

	m.give_up.seq = sh->device.install;
	if (sh->device.install)
		mover_send(sh->device.mover, &m, NULL, 0);
}

/* ---- life ---- */

static void install_served(struct shell *sh, int rc)
{
	if (rc < 0 || sh->store.serving == 0)
		sh->device.served(sh, rc);
	else
		install(sh, sh->store.serving, show_served);
}

void shell_device_open(struct shell *sh, shell_then_fn *then)
{
	struct msg m = { .type = M_slots };
	int rc;

	if (!sh->conf->has_device) {
		then(sh, 0);
		return;
	}
	sh->device.served = then;
	rc = mover_start(&sh->device.mover, sh->loop, &mover_slot, &ops, sh);
	if (rc < 0) {
		then(sh, rc);
		return;
	}
	m.slots = (struct m_slots){
		.seq = add_call(sh, install_served),
		.device = sh->conf->device,
		.count = sh->conf->in_place ? 1 : 2,
	};
	ask(sh, &m, m.slots.seq, sh->store.dirfd);
}

void shell_device_close(struct shell *sh)
{
	struct device_call *c;

	mover_free(sh->device.mover);
	if (sh->device.install)
		close(sh->device.dirfd);
	while ((c = sh->device.call)) {
		sh->device.call = c->next;
		free(c);
	}
}
