/*
 * quant.h - --post-load fp8: a slot becomes a block-quantised checkpoint.
 *
 * What vLLM and SGLang load as `quant_method: fp8` with weight_block_size
 * [128, 128], the format of DeepSeek-V3 and Qwen3-FP8 (README_WEIGHTS.md of
 * DeepSeek-V3; Fp8Config in either engine): beside X.weight in F8_E4M3 stands
 * X.weight_scale_inv in F32, ceil(rows / 128) x ceil(columns / 128) numbers,
 * and weight = code * scale.  How numbers are rounded: fp8.h.
 *
 *	shards	 written again one after the other.  Tensors stand by size of
 *		 element, largest first, as in the header before within one
 *		 size: each is aligned.  __metadata__ becomes {"format":"pt"},
 *		 which transformers asks for
 *	index	 model.safetensors.index.json, if there is one, gets the new
 *		 weight_map and total_size, and keeps all else
 *	config	 config.json gets the member quantization_config
 *		 (activation_scheme, fmt, quant_method, weight_block_size, and
 *		 modules_to_not_convert) and keeps all others; it is made if
 *		 there is none
 *	others	 stay
 *
 * Quantised is each tensor "....weight" of two dimensions, BF16, F16 or F32,
 * not empty, unless a part of its name says that engines do not run it as a
 * quantised linear layer: embeddings, output heads, norms, routers, vision
 * and audio towers (the table in quant_rule.c; slime's convert_hf_to_fp8.py
 * and the published FP8 checkpoints leave the same ones).  Everything else is
 * kept as it is: biases, tensors that are F8_E4M3 already, experts fused in
 * three dimensions.  The modules of kept tensors of two or more dimensions are
 * listed in modules_to_not_convert, by full name: vLLM compares whole names.
 *
 * Refused, E_DATA: a quantization_config (or compression_config) that is
 * there already and not null, at the top or in a text_config or llm_config;
 * NaN or infinity in a tensor to be quantised, named with row and column; a
 * tensor that has the name of a scale to be made; nothing to quantise.
 *
 * The same input gives the same bytes, whatever the number of threads and the
 * processor.  Memory: QUANT_BYTES for each thread, and about 200 bytes and
 * the name for each tensor; numbers are read from the slot's own maps, under a
 * guard, or piece by piece.  Space: one shard more while it is rewritten (its
 * new size), no second model: the file that a shard was received in becomes
 * that of the next, if it is large enough, since fresh pages cost more than
 * the conversion; the last one's pages, on tmpfs, are given back as they are
 * read.  A slot that this failed in or was killed in is good for
 * nothing but to be dropped.
 */
#ifndef WEIR_QUANT_H
#define WEIR_QUANT_H

#include "pipes/store.h"

#define QUANT_NAME "fp8"		/* as --post-load has it */
#define QUANT_READ ((size_t)2 << 20)	/* bytes of a piece */
#define QUANT_WRITE (QUANT_READ / 2)	/* of its codes */
#define QUANT_BYTES (QUANT_READ + QUANT_WRITE)
#define QUANT_THREADS_MAX 64u
#define QUANT_CONFIG "config.json"
#define QUANT_CONFIG_MAX ((size_t)16 << 20)	/* bytes of it */

struct quant {
	int dirfd;			/* the slot's */
	const struct store_file *file;	/* as received */
	uint32_t nfiles;
	/* They, as they were filled, or NULL: then they are opened by name.
	 * Shards that were rewritten are closed and let go of. */
	struct store_files *files;
	unsigned threads;		/* 0: one for each core that we may use */
	int64_t timeout_ms;
	const atomic_bool *cancel;
};

/* In a thread; starts its own for as long as it runs.  -E_AGAIN, unlogged:
 * cancelled, within the time of a piece; -E_TIMEOUT, logged. */
int quant_run(const struct quant *q);
/* Is it this, and no command?  Only the bare name is: ./fp8 is a command. */
bool quant_is_name(const char *post_load);
/* Bytes that a slot should have beside its own for this: half of its largest
 * shard, what BF16 comes to.  Checked exactly for each shard later. */
uint64_t quant_spare(const struct store_slot *slot);

#endif
