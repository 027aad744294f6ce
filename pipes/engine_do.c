#include "pipes/engine_shell.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLACE_MAX 4096			/* bytes of a path in a receipt */
#define LEASE_MAX_MS (24 * 3600 * 1000) /* a longer one is no lease */

typedef unsigned long long ull;

void shell_report(struct shell *sh, enum en_ev on, int rc)
{
	char cause[512];
	struct en_event ev = { .on = on, .code = rc, .cause = cause };

	snprintf(cause, sizeof cause, "%s", rc < 0 ? log_cause() : "");
	shell_step(sh, &ev);
}

void shell_drop_slot(struct shell *sh)
{
	if (!sh->rest.is)
		shell_mover_stop(sh);
	store_files_release(&sh->files);
	fill_release(&sh->fill);
	shell_close_sources(sh);
	store_slot_release(&sh->slot);
	sh->linked = false;
	free(sh->task);
	sh->task = NULL;
	atomic_store(&sh->cancel, false);
}

/* What the slot was filled with is of no use once it is served; not while
 * somebody waits for the end of a pause. */
static void settle_swap(struct shell *sh)
{
	if (!sh->slot.file || sh->store.serving != sh->slot.version)
		return;
	if (sh->files.n > 0)
		store_keep_take(&sh->store, &sh->files);
	shell_drop_slot(sh);
	log_info("version %llu is served", (ull)sh->store.serving);
}

static void open_slot(struct shell *sh)
{
	sh->slot = sh->next;
	sh->next = (struct store_slot){ 0 };
	if (quant_is_name(sh->conf->post_load))
		sh->slot.spare = quant_spare(&sh->slot);
	sh->proof = sh->next_proof;
	sh->source = xcalloc(sh->slot.nfiles, sizeof *sh->source);
	for (uint32_t i = 0; i < sh->slot.nfiles; i++)
		sh->source[i].fd = -1;
	sh->task = xcalloc(sh->m.buckets, sizeof *sh->task);
	fill_init(&sh->fill, &sh->slot, sh->m.buckets);
}

static void end_make(struct shell *sh, int rc)
{
	if (rc < 0)
		shell_drop_slot(sh);
	else
		log_info("version %llu is being filled: %llu bytes in %u "
			 "files",
			 (ull)sh->slot.version, (ull)sh->slot.bytes,
			 sh->slot.nfiles);
	shell_report(sh, rc < 0 ? EN_MAKE_FAILED : EN_MADE, rc);
}

static void run_make(struct job *job)
{
	struct make_job *j = (struct make_job *)job;

	log_adopt_cause(0, "");
	j->rc = store_make_space(&j->making, j->cancel, &j->made);
	snprintf(j->cause, sizeof j->cause, "%s",
		 j->rc == -E_AGAIN ? "cancelled" : log_cause());
}

void shell_made(struct shell *sh)
{
	struct make_job *j = &sh->make;

	sh->files = j->made;
	j->made = (struct store_files){ 0 };
	if (j->rc < 0)
		log_adopt_cause(-j->rc, j->cause);
	end_make(sh, j->rc);
}

static void make_anew(struct shell *sh)
{
	struct make_job *j = &sh->make;
	int rc;

	*j = (struct make_job){ .job.fn = run_make, .cancel = &sh->cancel };
	rc = store_make_names(&sh->store, &sh->slot, &j->making);
	if (rc < 0)
		end_make(sh, rc);
	else
		BUG_ON(pool_submit_take(sh->pool, &j->job) < 0);
}

/* It was hashed when it was sealed the first time, and is untouched. */
static int seal_served(struct seal_job *j)
{
	struct store_slot *slot = j->seal.slot;

	log_info("version %llu is version %llu, untouched: it is linked and "
		 "not read",
		 (ull)slot->version, (ull)j->fetch.has);
	slot->received = slot->installed = j->fetch.has_content;
	slot->proof = PROOF_COPIED;
	return store_sync(j->seal.store, slot->version);
}

static int seal_read(struct seal_job *j)
{
	const struct seal *s = &j->seal;
	struct slotstill now = { 0 };
	bool is = j->still &&
		  slotstill_begin(&now, s->store, s->slot->version, s->slot);
	int rc = seal_run(s);

	if (j->still)
		slotstill_release(j->still);
	if (rc == 0 && is && slotstill_end(&now))
		*j->still = now;
	else
		slotstill_release(&now);
	return rc;
}

static void run_seal(struct job *job)
{
	struct seal_job *j = (struct seal_job *)job;

	log_adopt_cause(0, "");
	j->rc = j->fetch.place ? fetch_run(&j->fetch) : 0;
	if (j->rc > 0)
		j->rc = seal_served(j);
	else if (j->rc == 0)
		j->rc = j->is_check ? seal_check(&j->seal) : seal_read(j);
	if (j->rc == 0 && j->kept)
		j->rc = store_sync(j->seal.store, j->seal.slot->version);
	snprintf(j->cause, sizeof j->cause, "%s",
		 j->rc == -E_AGAIN ? "cancelled" : log_cause());
}

/* A reread costs a pass over the slot: when asked for, and now and then. */
static bool wants_reread(struct shell *sh)
{
	return sh->proof == PROOF_REREAD ||
	       (sh->conf->reread && ++sh->seals % sh->conf->reread == 0);
}

/* What every seal has, to be completed and submitted. */
static struct seal_job *new_seal(struct shell *sh)
{
	struct seal_job *j = &sh->seal;

	fetch_release(&j->fetch);
	*j = (struct seal_job){ .job.fn = run_seal,
				.seal = { .store = &sh->store,
					  .cancel = &sh->cancel,
					  .slot = &sh->slot } };
	return j;
}

static void submit_seal(struct shell *sh)
{
	/* Nothing else is in the pool: copies have ended. */
	BUG_ON(pool_submit_take(sh->pool, &sh->seal.job) < 0);
}

static void check(struct shell *sh)
{
	new_seal(sh)->is_check = true;
	submit_seal(sh);
}

/* Of a version that is here for the first time. */
static struct seal *first_seal(struct shell *sh)
{
	const char *command = sh->conf->post_load;
	struct seal *s = &new_seal(sh)->seal;

	s->files = &sh->files;
	s->post_load = command;
	s->engine = sh->conf->name;
	s->post_load_ms = sh->conf->post_load_ms;
	free(sh->slot.post_load);
	sh->slot.post_load = xstrdup(command ? command : "");
	sh->slot.varies = sh->conf->post_load_varies;
	return s;
}

static void seal(struct shell *sh)
{
	struct seal *s = first_seal(sh);

	s->fill = &sh->fill;
	s->reread = wants_reread(sh);
	submit_seal(sh);
}

/* Has it the files that are wanted, and need they not be read? */
static bool may_be_linked(struct shell *sh, const struct store_slot *served)
{
	return !wants_reread(sh) && !sh->conf->post_load &&
	       served->nfiles == sh->slot.nfiles &&
	       digest_eq(&served->structure, &sh->slot.structure);
}

/* A delta is made for what arrived, not for what post-load made of it. */
static void take_base(struct shell *sh, struct fetch *f)
{
	uint64_t serving = sh->store.serving;
	struct store_slot slot = { 0 };

	if (serving && store_slot_load(&sh->store, serving, &slot) == 0 &&
	    !slot.post_load[0]) {
		f->has = serving;
		f->has_content = slot.received;
		f->has_path = store_version_path(&sh->store, serving);
		if (may_be_linked(sh, &slot))
			f->still = &sh->still;
	}
	store_slot_release(&slot);
}

static void load(struct shell *sh)
{
	const struct m_load *m = &sh->now->load;

	first_seal(sh);
	sh->seal.fetch = (struct fetch){
		.store = &sh->store,
		.slot = &sh->slot,
		.place = xstrndup(m->place.p, m->place.n),
		.wait_ms = (int64_t)m->wait_ms,
		.threads = sh->conf->copy_threads,
		.cancel = &sh->cancel,
	};
	take_base(sh, &sh->seal.fetch);
	if (!sh->conf->post_load)
		sh->seal.still = &sh->still;
	submit_seal(sh);
}

/* ---- a kept version ---- */

int shell_find_kept(const struct shell *sh, const struct digest *content,
		    const struct digest *structure, struct store_slot *out)
{
	const char *post_load = sh->conf->post_load;
	struct store_want want = { .content = *content,
				   .structure = *structure,
				   .post_load = post_load ? post_load : "" };

	if (digest_is_zero(content))
		return 0;
	return store_find(&sh->store, &want, out);
}

static void take_kept(struct store_slot *slot, const struct store_slot *kept)
{
	free(slot->post_load);
	slot->post_load = xstrdup(kept->post_load);
	slot->varies = kept->varies;
	slot->proof = kept->proof;
	slot->received = kept->received;
	slot->installed = kept->installed;
}

/* Hashed again before it counts: it may have lain there for long. */
static bool link_kept(struct shell *sh)
{
	struct store_slot kept = { 0 };
	bool linked;

	if (!shell_find_kept(sh, &sh->next_content, &sh->slot.structure, &kept))
		return false;
	/* What was received can only be read again before post-load. */
	linked = (!kept.post_load[0] || kept.proof >= sh->proof) &&
		 store_link(&sh->store, kept.version, sh->slot.version) == 0;
	if (linked) {
		take_kept(&sh->slot, &kept);
		new_seal(sh)->is_check = true;
		sh->seal.kept = kept.version;
		submit_seal(sh);
	}
	store_slot_release(&kept);
	return linked;
}

static void make(struct shell *sh)
{
	settle_swap(sh);
	open_slot(sh);
	if (!link_kept(sh))
		make_anew(sh);
}

/* It may be sealed already: a new start would find it so. */
static void drop_link(struct shell *sh)
{
	char cause[512];

	snprintf(cause, sizeof cause, "%s", log_cause());
	store_drop_staging(&sh->store);
	log_adopt_cause(0, cause);
}

static void end_link(struct shell *sh, int rc)
{
	struct en_event ev = { .on = EN_LINKED, .content = sh->slot.received };

	if (rc < 0) {
		drop_link(sh);
		end_make(sh, rc);
		return;
	}
	sh->linked = true;
	log_info("version %llu is version %llu, which was kept",
		 (ull)sh->slot.version, (ull)sh->seal.kept);
	shell_step(sh, &ev);
}

static void seal_link(struct shell *sh)
{
	int rc = store_seal(&sh->store, &sh->slot);

	if (rc < 0)
		end_link(sh, rc);
	else
		shell_device_stage(sh, sh->slot.version, end_link);
}

void shell_checked_link(struct shell *sh)
{
	struct seal_job *j = &sh->seal;

	if (sh->m.slot != EN_MAKING || j->rc == -E_AGAIN) {
		log_adopt_cause(E_AGAIN, "cancelled");
		end_make(sh, -E_AGAIN);
	} else if (j->rc == 0) {
		seal_link(sh);
	} else {
		log_warn("version %llu is kept here, but %s: it is loaded anew",
			 (ull)j->kept, j->cause);
		make_anew(sh);
	}
}

/* A store that cannot say what it serves must be looked at by a new start. */
static void give_up(struct shell *sh, int rc)
{
	loop_stop(sh->loop, rc);
}

/* What is on disk says what is served; the device has to follow. */
static void published(struct shell *sh, int rc)
{
	if (rc < 0)
		give_up(sh, rc);
	shell_report(sh, rc < 0 ? EN_PUBLISH_FAILED : EN_PUBLISHED, rc);
}

static void publish_store(struct shell *sh, int rc)
{
	bool is_replaced = rc >= 0 && sh->conf->in_place;

	if (rc >= 0)
		rc = store_publish(&sh->store);
	/* In place, the version that stays served is not on the device. */
	if (sh->store.unsure || (rc < 0 && is_replaced))
		give_up(sh, rc);
	if (rc < 0)
		shell_report(sh, EN_PUBLISH_FAILED, rc);
	else
		shell_device_show(sh, sh->store.serving, published);
}

static void publish(struct shell *sh)
{
	sh->before_swap = sh->store.serving;
	shell_device_replace(sh, sh->slot.version, publish_store);
}

/* On disk and on the device: now whoever asked may hear of it. */
static void unpublished(struct shell *sh, int rc)
{
	if (rc < 0)
		give_up(sh, rc);
	shell_report(sh, EN_PUBLISH_FAILED,
		     log_adopt_cause(-sh->undo.code, sh->undo.cause));
}

static void unpublish(struct shell *sh, const struct en_action *why)
{
	int rc = store_unpublish(&sh->store, sh->before_swap);

	sh->undo.code = why->code;
	memcpy(sh->undo.cause, why->cause, sizeof sh->undo.cause);
	if (rc < 0)
		unpublished(sh, rc);
	else
		shell_device_restore(sh, unpublished);
}

static void lease_end(void *arg)
{
	struct shell *sh = arg;
	const struct en_event ev = { .on = EN_LEASE_END };

	log_warn("the lease of the pause ended");
	shell_step(sh, &ev);
}

static void arm_lease(struct shell *sh)
{
	uint64_t ms = sh->m.lease_ms;

	sh->lease.fn = lease_end;
	sh->lease.arg = sh;
	loop_arm(sh->loop, &sh->lease,
		 ms == 0	     ? 1
		 : ms > LEASE_MAX_MS ? LEASE_MAX_MS
				     : (int64_t)ms);
}

static void pause_ends(struct shell *sh)
{
	if (sh->paused_ns)
		sh->pause_us =
			(uint64_t)(clock_mono_ns() - sh->paused_ns) / 1000;
	sh->paused_ns = 0;
}

/* ---- replies ---- */

/* After post-load it is no longer what arrived. */
static char *place_of(const struct shell *sh, const struct store_slot *slot)
{
	char *path = store_version_path(&sh->store, slot->version);

	if (slot->post_load[0] || strlen(path) > PLACE_MAX)
		path[0] = '\0';
	return path;
}

static void answer_receipt(struct shell *sh, const struct asker *to)
{
	const struct store_slot *slot = &sh->slot;
	struct store_slot served = { 0 };
	struct msg m = { .type = M_receipt };
	char *place;

	if (!slot->file) {
		if (store_slot_load(&sh->store, sh->m.serving, &served) < 0) {
			shell_refuse(sh, to, -E_IO, ID_NONE,
				     "the record of the version is lost");
			return;
		}
		slot = &served;
	}
	place = place_of(sh, slot);
	m.receipt = (struct m_receipt){
		.seq = to->seq,
		.engine = slice_of(sh->conf->name),
		.worker = slot->worker,
		.workers = slot->workers,
		.boot = slice_of(sh->store.boot),
		.registry = slice_of(slot->registry),
		.epoch = slot->epoch,
		.run = slice_of(slot->run),
		.version = slot->version,
		.bytes = slot->bytes,
		.received = slot->received,
		.installed = slot->installed,
		.proof = (uint8_t)slot->proof,
		.post_load = slice_of(slot->post_load),
		.varies = slot->varies,
		.place = slice_of(place),
	};
	shell_answer(sh, to, &m);
	free(place);
	store_slot_release(&served);
}

static void all_bits(struct buf *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += 8) {
		unsigned char byte = n - i < 8 ? (1u << (n - i)) - 1 : 0xff;

		buf_add(b, &byte, 1);
	}
}

static void answer_holding(struct shell *sh)
{
	const struct asker *to = &sh->asker[EN_HOLDING];
	struct buf bits = { 0 };
	struct msg m = { .type = M_held };

	/* Sealed in an earlier life: no bitmap, sealed says it. */
	if (sh->linked)
		all_bits(&bits, sh->fill.nbuckets);
	else if (sh->fill.bucket)
		fill_bitmap(&sh->fill, &bits);
	m.held = (struct m_held){
		.seq = to->seq,
		.boot = slice_of(sh->store.boot),
		.sealed = sh->m.slot == EN_SEALED || sh->m.slot == EN_CHECKING,
		.kept = sh->linked,
		.count = sh->fill.nbuckets,
		.bitmap = buf_slice(&bits),
	};
	shell_answer(sh, to, &m);
	buf_release(&bits);
}

static void answer(struct shell *sh, enum en_ev req)
{
	const struct asker *to = &sh->asker[req];
	struct slice boot = slice_of(sh->store.boot);
	struct msg m = { 0 };

	switch (req) {
	case EN_BEGIN:
		m.type = M_begun;
		m.begun = (struct m_begun){ to->seq, boot };
		break;
	case EN_FINISH:
		m.type = M_finished;
		m.finished =
			(struct m_finished){ to->seq, boot, sh->m.version };
		break;
	case EN_LOAD:
		m.type = M_loaded;
		m.loaded = (struct m_loaded){ to->seq, boot, sh->m.version };
		break;
	case EN_PAUSE:
		m.type = M_paused;
		m.paused = (struct m_paused){ to->seq, boot, sh->m.token };
		break;
	case EN_SWAP:
		m.type = M_swapped;
		m.swapped = (struct m_swapped){ to->seq, boot, sh->m.serving };
		break;
	case EN_RESUME:
		m.type = M_resumed;
		m.resumed = (struct m_resumed){ to->seq, boot, sh->m.serving,
						sh->pause_us };
		break;
	case EN_CANCEL:
		m.type = M_cancelled;
		m.cancelled =
			(struct m_cancelled){ to->seq, boot, sh->m.serving };
		break;
	case EN_RECEIPT:
		answer_receipt(sh, to);
		return;
	default:
		BUG("%s has no plain reply", engine_event_name(req));
	}
	shell_answer(sh, to, &m);
}

static bool is_overtaken(const struct shell *sh, enum en_ev req)
{
	return (req == EN_FINISH || req == EN_LOAD) &&
	       shell_is_overtaken(sh, &sh->asker[req]);
}

static void reach_source(struct shell *sh)
{
	if (sh->now->type == M_enroll)
		shell_enroll(sh);
	else if (sh->now->type == M_join)
		shell_join(sh);
	else
		shell_attach(sh);
}

void shell_perform(struct shell *sh, const struct en_action *a)
{
	log_debug("%s %s", engine_do_name(a->what),
		  a->what <= EN_DO_REFUSE ? engine_event_name(a->req) : "");
	switch (a->what) {
	case EN_DO_REPLY:
		if (is_overtaken(sh, a->req))
			shell_refuse(sh, &sh->asker[a->req], -E_FENCED, ID_NONE,
				     "a newer instance has asked since");
		else
			answer(sh, a->req);
		break;
	case EN_DO_REFUSE:
		shell_refuse(sh, &sh->asker[a->req], a->code,
			     a->req == EN_OFFER ? sh->now->offer.bucket
						: ID_NONE,
			     a->cause);
		break;
	case EN_DO_ATTACH:
		reach_source(sh);
		break;
	case EN_DO_OFFER:
		shell_offer(sh);
		break;
	case EN_DO_HOLDING:
		answer_holding(sh);
		break;
	case EN_DO_MAKE:
		make(sh);
		break;
	case EN_DO_SEAL:
		shell_mover_rest(sh);
		seal(sh);
		break;
	case EN_DO_LOAD:
		load(sh);
		break;
	case EN_DO_CHECK:
		check(sh);
		break;
	case EN_DO_STOP:
		atomic_store(&sh->cancel, true);
		shell_mover_stop(sh);
		shell_device_give_up(sh);
		break;
	case EN_DO_DROP:
		shell_mover_stop(sh);
		shell_drop_slot(sh);
		store_drop_staging(&sh->store);
		break;
	case EN_DO_HOOK_PAUSE:
		shell_hook(sh, HOOK_PAUSE);
		break;
	case EN_DO_HOOK_SWAP:
		shell_hook(sh, HOOK_SWAP);
		break;
	case EN_DO_HOOK_RESUME:
		shell_hook(sh, HOOK_RESUME);
		break;
	case EN_DO_PUBLISH:
		publish(sh);
		break;
	case EN_DO_UNPUBLISH:
		unpublish(sh, a);
		break;
	case EN_DO_LEASE:
		arm_lease(sh);
		break;
	case EN_DO_LEASE_OFF:
		loop_disarm(sh->loop, &sh->lease);
		break;
	case EN_DO_PAUSED:
		sh->paused_ns = clock_mono_ns();
		break;
	case EN_DO_SERVING:
		store_unset_paused(&sh->store);
		pause_ends(sh);
		settle_swap(sh);
		break;
	case EN_NDO:
		break;
	}
}
