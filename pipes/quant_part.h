/*
 * quant_part.h - what the files of quant.h share; nobody else includes this.
 *
 *	quant.c		all of a checkpoint
 *	quant_rule.c	which tensors
 *	quant_shard.c	one shard
 *	quant_json.c	config.json and the index
 */
#ifndef WEIR_QUANT_PART_H
#define WEIR_QUANT_PART_H

#include "pipes/quant.h"
#include "common/fp8.h"
#include "common/safetensors.h"

#define QUANT_SCALE "_scale_inv"	/* after the name of a weight */

/* Texts in a row: names of tensors, names of modules. */
struct quant_names {
	struct buf text;
	struct quant_name {
		uint64_t at;		/* in text */
		uint32_t len, file;
	} *v;
	uint32_t n, cap;
};

void quant_name_add(struct quant_names *t, struct slice name,
		    const char *suffix, uint32_t file);
struct slice quant_name(const struct quant_names *t, uint32_t i);

/* What came of all shards so far. */
struct quant_all {
	const struct quant *q;
	int64_t deadline_ms;		/* clock_mono_ms() */
	struct quant_names tensors;	/* of the output, with their files */
	struct quant_names kept;	/* modules that are not quantised */
	uint64_t before, bytes;		/* of tensors: received, now */
	uint32_t quantised;
	struct slotfile old;		/* a received file that was replaced */
};

/* -E_AGAIN or -E_TIMEOUT, unlogged: it must end. */
int quant_must_end(const struct quant_all *a);

bool quant_wants(struct slice name, const struct st *st,
		 const struct st_tensor *t, enum fp8_from *from);
/* The module of a tensor that is not quantised, if engines want to know of
 * it; {NULL} if not. */
struct slice quant_kept_module(struct slice name, const struct st_tensor *t);

/* Rewrites file number i. */
int quant_shard(struct quant_all *a, uint32_t i);
void quant_drop_old(struct quant_all *a);

/* May the checkpoint be quantised at all? */
int quant_config_check(const struct quant *q);
int quant_config_write(const struct quant_all *a);
int quant_index_write(const struct quant_all *a);

#endif
