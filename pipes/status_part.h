/*
 * status_part.h - what weir-status has learnt, shared by who learns it
 * (status.c) and who prints it (status_show.c).
 */
#ifndef WEIR_STATUS_PART_H
#define WEIR_STATUS_PART_H

#include "common/loop.h"
#include "pipes/engine_ops.h"
#include "pipes/ledger.h"
#include "pipes/registry.h"
#include "pipes/status.h"

#define WHY_MAX 512	    /* bytes of why an engine did not answer */

struct row { /* one receiver of one engine, or a server that is alone */
	char *name, *endpoint, *url; /* endpoint "": alone */
	enum engine_kind kind;
	uint32_t worker; /* the first one there */
	bool answered;
	char boot[65], why[WHY_MAX];
	uint64_t serving, staged, pause_us;
	struct digest content;
	uint64_t since_ms; /* it serves that since then; 0: unknown */
	bool sealed, paused;
};

struct status {
	const struct status_conf *conf;
	struct registry reg;
	char *path; /* of the registry */
	bool has_reg;
	struct reg_rec decision, open;
	bool has_decision, has_open, open_is_decided, is_held;
	uint64_t version;
	struct reg_holder holder;
	struct ledger_line last; /* event empty: none */
	struct row *row;
	uint32_t nrows, nasked, left;
	struct loop *loop;
	struct fan *fan;
	struct engine_host host; /* engines with a server */
	struct engine_goal goal;
	struct engine_share share; /* goal's: nothing */
	char *token;
};

bool status_is_lagging(const struct status *st, const struct row *r);
/* Calls fn for each attention record; their count, or -E_*. */
int status_attention(struct status *st,
		     void (*fn)(void *, const struct m_attention *),
		     void *arg);
void status_print_text(struct status *st);
int status_print_json(struct status *st);

#endif
