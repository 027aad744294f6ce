#include "pipes/receipt.h"
#include "common/err.h"
#include "common/log.h"

#include <string.h>

static int bad_text(const struct engine *e, const char *what, const char *want,
		    const char *got)
{
	if (strcmp(want, got) == 0)
		return 0;
	return log_error(E_PROTO,
			 "engine %s: receipt of %s \"%s\", expected \"%s\"",
			 e->name, what, got, want);
}

static int bad_number(const struct engine *e, const char *what, uint64_t want,
		      uint64_t got)
{
	if (want == got)
		return 0;
	return log_error(E_PROTO,
			 "engine %s: receipt of %s %llu, expected %llu",
			 e->name, what, (unsigned long long)got,
			 (unsigned long long)want);
}

static int check_identity(const struct engine *e, const struct engine_part *p)
{
	const struct engine_receipt *r = p->receipt;
	const struct engine_goal *g = e->goal;
	int rc = bad_text(e, "engine", e->name, r->engine);

	rc = rc ? rc : bad_text(e, "boot", p->boot, r->boot);
	rc = rc ? rc : bad_text(e, "registry", g->registry, r->registry);
	rc = rc ? rc : bad_text(e, "run", g->run, r->run);
	rc = rc ? rc : bad_number(e, "epoch", g->epoch, r->epoch);
	rc = rc ? rc : bad_number(e, "version", g->version, r->version);
	rc = rc ? rc : bad_number(e, "first worker", p->worker, r->worker);
	return rc ? rc : bad_number(e, "workers", p->workers, r->workers);
}

static int check_content(const struct engine *e, const struct engine_part *p,
			 const struct receipt_want *w)
{
	const struct engine_receipt *r = p->receipt;
	const struct engine_share *s = engine_share(e, p);
	char want[DIGEST_HEX], got[DIGEST_HEX];

	if (r->bytes != s->bytes)
		return log_error(E_DATA,
				 "engine %s: holds %llu bytes, expected %llu",
				 e->name, (unsigned long long)r->bytes,
				 (unsigned long long)s->bytes);
	if (!digest_eq(&r->received, &s->content))
		return log_error(E_DATA,
				 "engine %s: received content %s, the source "
				 "has %s",
				 e->name, digest_hex(&r->received, got),
				 digest_hex(&s->content, want));
	if (r->proof < w->proof)
		return log_error(E_PROTO,
				 "engine %s: proof level \"%s\", at least "
				 "\"%s\" is needed (--accept-proof)",
				 e->name, proof_name(r->proof),
				 proof_name(w->proof));
	return 0;
}

int receipt_check(const struct engine *e, const struct receipt_want *w)
{
	for (uint32_t i = 0; i < e->nparts; i++) {
		const struct engine_part *p = &e->part[i];
		int rc;

		if (engine_part_is_there(e, p))
			continue;
		if (!p->receipt)
			return log_error(E_PROTO, "engine %s: no receipt",
					 e->name);
		rc = check_identity(e, p);
		if (rc == 0)
			rc = check_content(e, p, w);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Only receipts of one literal post-load can be compared. */
static bool is_comparable(const struct engine_receipt *a,
			  const struct engine_receipt *b)
{
	return !a->varies && !b->varies &&
	       strcmp(a->post_load, b->post_load) == 0;
}

/* The first receipt before (engine, part) that can be compared with it.
 * Equality is transitive, so that one comparison each is enough. */
static const struct engine *peer_of(struct engine *const *v, uint32_t engine,
				    uint32_t part, const bool *skip,
				    const struct engine_receipt **out)
{
	const struct engine_part *own = &v[engine]->part[part];
	const struct engine_share *s = engine_share(v[engine], own);
	const struct engine_receipt *r = own->receipt;

	for (uint32_t i = 0; r && i <= engine; i++) {
		uint32_t n = i == engine ? part : v[i]->nparts;

		for (uint32_t k = 0; !skip[i] && k < n; k++) {
			const struct engine_part *p = &v[i]->part[k];

			*out = p->receipt;
			if (*out && engine_share(v[i], p) == s &&
			    is_comparable(*out, r))
				return v[i];
		}
	}
	return NULL;
}

static int agree(struct engine *const *v, uint32_t i, uint32_t part,
		 const bool *skip)
{
	const struct engine_receipt *r = v[i]->part[part].receipt, *other;
	const struct engine *peer = peer_of(v, i, part, skip, &other);
	char a[DIGEST_HEX], b[DIGEST_HEX];

	if (!peer || digest_eq(&other->installed, &r->installed))
		return 0;
	return log_error(E_DATA,
			 "engine %s installed %s, engine %s %s, after the same "
			 "post-load \"%s\"",
			 v[i]->name, digest_hex(&r->installed, a), peer->name,
			 digest_hex(&other->installed, b), r->post_load);
}

int receipt_agree(struct engine *const *v, uint32_t n, const bool *skip,
		  uint32_t *odd)
{
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; !skip[i] && k < v[i]->nparts; k++) {
			int rc = agree(v, i, k, skip);

			if (rc < 0) {
				*odd = i;
				return rc;
			}
		}
	}
	return 0;
}

const struct engine_receipt *receipt_of(const struct engine *e)
{
	for (uint32_t k = 0; k < e->nparts; k++)
		if (e->part[k].receipt)
			return e->part[k].receipt;
	return NULL;
}

bool receipt_has_peer(struct engine *const *v, uint32_t n, uint32_t engine,
		      const bool *skip)
{
	const struct engine_receipt *r = receipt_of(v[engine]), *other;

	for (uint32_t i = 0; r && i < n; i++) {
		if (i == engine || skip[i])
			continue;
		other = receipt_of(v[i]);
		if (other && is_comparable(other, r))
			return true;
	}
	return false;
}

const struct engine *receipt_odd_load(struct engine *const *v, uint32_t n,
				      const bool *skip)
{
	const struct engine_receipt *first = NULL, *r;

	for (uint32_t i = 0; i < n; i++) {
		r = skip[i] ? NULL : receipt_of(v[i]);
		if (first && r && strcmp(r->post_load, first->post_load) != 0)
			return v[i];
		first = first ? first : r;
	}
	return NULL;
}

uint8_t receipt_proof(struct engine *const *v, uint32_t n, const bool *skip)
{
	uint8_t low = PROOF_N - 1;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; !skip[i] && k < v[i]->nparts; k++) {
			const struct engine_receipt *r = v[i]->part[k].receipt;

			if (r && r->proof < low)
				low = r->proof;
		}
	return low;
}

void receipt_msg(const struct engine_receipt *r, struct msg *m)
{
	*m = (struct msg){ .type = M_receipt };
	m->receipt.engine = slice_of(r->engine);
	m->receipt.worker = r->worker;
	m->receipt.workers = r->workers;
	m->receipt.boot = slice_of(r->boot);
	m->receipt.registry = slice_of(r->registry);
	m->receipt.epoch = r->epoch;
	m->receipt.run = slice_of(r->run);
	m->receipt.version = r->version;
	m->receipt.bytes = r->bytes;
	m->receipt.received = r->received;
	m->receipt.installed = r->installed;
	m->receipt.proof = r->proof;
	m->receipt.post_load = slice_of(r->post_load);
	m->receipt.varies = r->varies;
	m->receipt.place = slice_of(r->place);
}

/* ---- servers' own loads ---- */

static bool has_shown(const struct engine *e)
{
	return e->ops->in_place && e->live.loaded && e->live.proof != LOAD_ACK;
}

static bool shows_like(const struct engine *a, const struct engine *b)
{
	return a->ops == b->ops && a->live.proof == b->live.proof &&
	       digest_eq(&a->live.layout, &b->live.layout);
}

/* Another of the first n that has shown the same things, or NULL. */
static const struct engine *shown_by(struct engine *const *v, uint32_t n,
				     uint32_t engine, const bool *skip)
{
	for (uint32_t i = 0; i < n; i++)
		if (i != engine && !skip[i] && has_shown(v[i]) &&
		    shows_like(v[i], v[engine]))
			return v[i];
	return NULL;
}

int load_agree(struct engine *const *v, uint32_t n, const bool *skip)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct engine *e = v[i], *other;

		if (skip[i] || !has_shown(e))
			continue;
		other = shown_by(v, i, i, skip);
		if (other && !digest_eq(&other->live.sum, &e->live.sum))
			return log_error(
				E_DATA,
				"engines %s and %s have loaded the same "
				"version, but their weights differ (%s)",
				other->name, e->name,
				load_proof_name(e->live.proof));
	}
	return 0;
}

enum load_proof load_proof_of(struct engine *const *v, uint32_t n,
			      const bool *skip, uint32_t *compared)
{
	uint8_t least = LOAD_CHECKED;

	*compared = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (skip[i] || !v[i]->ops->in_place)
			continue;
		if (v[i]->live.proof < least)
			least = v[i]->live.proof;
		*compared += has_shown(v[i]) && shown_by(v, n, i, skip);
	}
	return least;
}
