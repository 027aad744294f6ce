/*
 * receipt.h - is this receipt enough to decide on?  (I1)
 *
 * Pure but for log_error(): every refusal names the engine, what was
 * expected and what was found.
 */
#ifndef WEIR_RECEIPT_H
#define WEIR_RECEIPT_H

#include "pipes/engine_ops.h"

struct receipt_want {
	uint8_t proof;			/* lowest level that counts */
};

/* Every part's receipt of an engine, against its goal (what the source hashed
 * to included) and the boots that it was begun with.  -E_DATA (bytes, digest),
 * -E_PROTO (anything else). */
int receipt_check(const struct engine *e, const struct receipt_want *w);
/* Installed digests of engines with the same literal post-load are equal,
 * unless it is declared to vary; of several source ranks, within each rank.
 * -E_DATA naming two engines; *odd is the later one.  skip[i]: engine i is
 * out. */
int receipt_agree(struct engine *const *v, uint32_t n, const bool *skip,
		  uint32_t *odd);
/* The first receipt of its parts, or NULL: it needed nothing. */
const struct engine_receipt *receipt_of(const struct engine *e);
/* Has its installed digest another engine's to be compared with? */
bool receipt_has_peer(struct engine *const *v, uint32_t n, uint32_t engine,
		      const bool *skip);
/* The first engine whose literal post-load is not that of those before it,
 * or NULL: all have the same. */
const struct engine *receipt_odd_load(struct engine *const *v, uint32_t n,
				      const bool *skip);
/* What servers have shown of their loads is equal for those of one kind that
 * have shown the same things.  -E_DATA naming two. */
int load_agree(struct engine *const *v, uint32_t n, const bool *skip);
/* The weakest of them, and how many were compared with another. */
enum load_proof load_proof_of(struct engine *const *v, uint32_t n,
			      const bool *skip, uint32_t *compared);
/* Lowest level among the receipts of engines that are not skipped. */
uint8_t receipt_proof(struct engine *const *v, uint32_t n, const bool *skip);
/* The receipt as a message; borrows it. */
void receipt_msg(const struct engine_receipt *r, struct msg *m);

#endif
