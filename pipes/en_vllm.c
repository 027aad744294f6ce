/*
 * en_vllm.c - vLLM's own calls; share/doc/interop.md says where each was
 * read.  It never tells which directory it has loaded: a load whose answer
 * was lost stays unknown.
 */
#include "pipes/en_http.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>

static void load_body(const struct http_engine *h, struct jsonw *j)
{
	char path[ENGINE_PATH];

	jsonw_str(j, "method", "reload_weights");
	jsonw_object(j, "kwargs");
	jsonw_str(j, "weights_path", http_load_path(h, path));
	jsonw_end(j);
	jsonw_i64(j, "timeout", http_left_ms(h) / 1000 + 1);
}

static void sum_body(const struct http_engine *h, struct jsonw *j)
{
	(void)h;
	jsonw_str(j, "action", "checksum");
}

static void set_body(const struct http_engine *h, struct jsonw *j)
{
	char n[24];

	snprintf(n, sizeof n, "%llu", (unsigned long long)h->e->goal->version);
	jsonw_str(j, "new_version", n);
}

/* One of several served names is enough. */
static int take_models(struct http_engine *h, const struct doc *d)
{
	const struct doc *all = doc_at(d, "data");
	int rc = -E_CONFIG;

	if (doc_count(all) == 0)
		return http_say(h, rc, "no model: is it vLLM?");
	for (size_t i = 0; rc < 0 && i < doc_count(all); i++) {
		const char *id = doc_text(doc_at(doc_item(all, i), "id"));

		rc = id ? http_check_model(h, id) : -E_CONFIG;
	}
	return rc < 0 ? rc : http_check_quantization(h);
}

static int take_truth(struct http_engine *h, const struct doc *d,
		      const char *key, bool *out)
{
	const struct doc *m = doc_at(d, key);

	*out = doc_is_true(m);
	if (*out || doc_is_false(m))
		return 0;
	return http_say(h, -E_PROTO, "no %s: is it vLLM?", key);
}

static int take_asleep(struct http_engine *h, const struct doc *d)
{
	bool asleep;
	int rc = take_truth(h, d, "is_sleeping", &asleep);

	if (rc == 0 && asleep)
		rc = http_say(h, -E_UNAVAIL, "it is asleep: wake it first");
	return rc;
}

static int take_paused(struct http_engine *h, const struct doc *d)
{
	return take_truth(h, d, "is_paused", &h->paused);
}

static int take_still(struct http_engine *h, const struct doc *d)
{
	int rc = take_paused(h, d);

	return rc < 0 ? rc : http_check_still(h);
}

static int take_label(struct http_engine *h, const struct doc *d)
{
	const struct doc *label = doc_at(d, "weight_version");

	if (!label)
		return http_say(h, -E_PROTO, "no weight_version: is it vLLM?");
	return http_take_label(h, label);
}

static int take_told(struct http_engine *h, const struct doc *d)
{
	return http_take_told(h, doc_at(d, "weight_version"));
}

/* All that are there get ranks, in the order of all parallelism. */
static int take_world(struct http_engine *h, const struct doc *d)
{
	h->e->live.ranks = http_ranks(doc_at(d, "world_size"));
	return 0;
}

static int take_config(struct http_engine *h, const struct doc *d)
{
	const struct doc *all = doc_at(d, "vllm_config");
	const struct doc *c = doc_at(all, "weight_transfer_config");
	const char *backend = doc_text(doc_at(c, "backend"));

	if (!doc_is_null(c) && (!backend || strcmp(backend, "nccl") == 0))
		return 0;
	return http_say(h, -E_CONFIG,
			"its backend for weights is %.60s: start it with "
			"--weight-transfer-config '{\"backend\":\"nccl\"}'",
			backend ? backend : "none");
}

static int take_packs_at_join(struct http_engine *h, const struct doc *d)
{
	(void)d;
	h->packing = NP_AT_JOIN;
	return 0;
}

static int check_ranks(struct http_engine *h, const struct doc *d)
{
	(void)d;
	return http_check_ranks(h, "");
}

/* One null for each worker; anything else is that worker's complaint. */
static int take_results(struct http_engine *h, const struct doc *d)
{
	const struct doc *all = doc_at(d, "results");
	size_t n = doc_count(all);

	for (size_t i = 0; i < n; i++) {
		struct buf b = { 0 };

		if (doc_is_null(doc_item(all, i)))
			continue;
		doc_add_text(doc_item(all, i), &b);
		http_say(h, -E_IO, "worker %zu of %zu: %.200s", i, n,
			 buf_cstr(&b));
		buf_release(&b);
		return -E_IO;
	}
	return n ? 0 : http_say(h, -E_PROTO, "no worker has answered");
}

/* Older ones answer with nothing. */
static int take_reset(struct http_engine *h, const struct doc *d)
{
	if (!doc_is_false(doc_at(d, "success")))
		return 0;
	return http_say(h, -E_AGAIN, "blocks are held still");
}

static int take_sum(struct http_engine *h, const struct doc *d)
{
	const struct doc *sums = doc_at(d, "checksums");

	http_take_sum(h, sums, sums);
	return 0;
}

static int offer_sum(struct http_engine *h, const struct doc *d)
{
	(void)d;
	http_offer(h, LOAD_CHECKED);
	return 0;
}

#define PAUSED .method = "GET", .path = "/is_paused", .optional = true
#define KEEP                                                            \
	.method = "POST", .path = "/pause?mode=keep&clear_cache=false", \
	.key = "status", .want = "paused"
#define CAN(p)                                   \
	{                                        \
		.method = "OPTIONS", .path = (p) \
	}

static const enum http_op probe[] = { HO_MODELS,   HO_ASLEEP,	 HO_PAUSED,
				      HO_LABEL,	   HO_CAN_PAUSE, HO_CAN_FLUSH,
				      HO_CAN_LOAD, HO_WORLD,	 HO_CONFIG,
				      HO_CAN_PACK, HO_CAN_MEET,	 HO_CAN_END,
				      HO_CAN_CAST, HO_CAN_SUM,	 HO_NONE };
static const enum http_op hold[] = { HO_PAUSE_KEEP, HO_PAUSE_ABORT, HO_NONE };
static const enum http_op flush[] = { HO_FLUSH, HO_FLUSH_MM, HO_FLUSH_ENCODER,
				      HO_NONE };
static const enum http_op load[] = { HO_STILL,	       HO_END,	 HO_LEAVE,
				     HO_CAST,	       HO_LOAD,	 HO_STILL,
				     HO_SUM,	       HO_FLUSH, HO_FLUSH_MM,
				     HO_FLUSH_ENCODER, HO_NONE };
static const enum http_op tell[] = { HO_STILL, HO_SET, HO_TOLD, HO_NONE };
static const enum http_op resume[] = { HO_RESUME, HO_NONE };
/* Paused first: an earlier attempt may have resumed it. */
static const enum http_op back[] = {
	HO_PAUSE_KEEP, HO_PAUSE_ABORT, HO_FLUSH, HO_END,      HO_LEAVE,
	HO_LOAD,       HO_STILL,       HO_FLUSH, HO_FLUSH_MM, HO_FLUSH_ENCODER,
	HO_RESUME,     HO_HEALTH,      HO_NONE
};
static const enum http_op stay[] = { HO_LOOK,  HO_HOLD, HO_END,
				     HO_LEAVE, HO_STAY, HO_NONE };

/* Its reload makes each layer's parameters anew and processes them again. */
static const char *const reloads[] = { "fp8",	   "compressed-tensors",
				       "modelopt", "awq",
				       "gptq",	   NULL };

static const struct http_dialect vllm = {
	.name = "vllm",
	.row = {
		[HO_MODELS] = { .method = "GET", .path = "/v1/models",
				.take = take_models },
		[HO_ASLEEP] = { .method = "GET", .path = "/is_sleeping",
				.take = take_asleep, .optional = true },
		[HO_PAUSED] = { PAUSED, .take = take_paused },
		[HO_LABEL] = { .method = "GET", .path = "/weight_info",
			       .take = take_label, .optional = true },
		[HO_CAN_PAUSE] = CAN("/pause"),
		[HO_CAN_FLUSH] = CAN("/reset_prefix_cache"),
		[HO_CAN_LOAD] = CAN("/collective_rpc"),
		[HO_WORLD] = { .method = "GET",
			       .path = "/get_world_size?include_dp=true",
			       .take = take_world, .is_wanted = http_casts,
			       .optional = true },
		[HO_CONFIG] = { .method = "GET",
				.path = "/server_info?config_format=json",
				.take = take_config, .is_wanted = http_casts,
				.optional = true, .soft = true, .big = true,
				.brief = true },
		[HO_CAN_PACK] = { .method = "OPTIONS",
				  .path = "/shutdown_weight_transfer_engine",
				  .take = take_packs_at_join,
				  .is_wanted = http_casts, .optional = true },
		[HO_CAN_MEET] = { .method = "OPTIONS",
				  .path = "/init_weight_transfer_engine",
				  .take = check_ranks,
				  .is_wanted = http_casts },
		[HO_CAN_END] = { .method = "OPTIONS",
				 .path = "/finish_weight_update",
				 .is_wanted = http_must_end },
		[HO_CAN_CAST] = { .method = "OPTIONS",
				  .path = "/update_weights",
				  .take = http_cast_check,
				  .is_wanted = http_casts },
		[HO_CAN_SUM] = { .method = "OPTIONS",
				 .path = "/weight_checker",
				 .take = offer_sum, .optional = true,
				 .soft = true },
		[HO_PAUSE_KEEP] = { KEEP, .ask = HO_PAUSED,
				    .is_done = http_is_paused,
				    .is_wanted = http_keeps_requests },
		[HO_PAUSE_ABORT] = { .method = "POST",
				     .path = "/pause?mode=abort"
					     "&clear_cache=true",
				     .key = "status", .want = "paused",
				     .ask = HO_PAUSED,
				     .is_done = http_is_paused,
				     .is_wanted = http_aborts_requests },
		[HO_STILL] = { PAUSED, .take = take_still },
		[HO_LOOK] = { PAUSED, .take = take_paused, .soft = true,
			      .brief = true },
		[HO_HOLD] = { KEEP, .take = http_take_held,
			      .is_wanted = http_is_running, .optional = true,
			      .soft = true, .brief = true },
		[HO_FLUSH] = { .method = "POST",
			       .path = "/reset_prefix_cache"
				       "?reset_running_requests=true"
				       "&reset_external=true",
			       .take = take_reset, .patient = true },
		[HO_FLUSH_MM] = { .method = "POST", .path = "/reset_mm_cache",
				  .optional = true },
		[HO_FLUSH_ENCODER] = { .method = "POST",
				       .path = "/reset_encoder_cache",
				       .optional = true },
		[HO_END] = { .method = "POST", .path = "/finish_weight_update",
			     .body = http_no_body, .is_wanted = http_is_grouped,
			     .optional = true, .soft = true, .brief = true },
		[HO_LEAVE] = { .method = "POST",
			       .path = "/shutdown_weight_transfer_engine",
			       .is_wanted = http_is_grouped, .optional = true,
			       .soft = true, .brief = true },
		[HO_CAST] = { .is_wanted = http_casts_now },
		[HO_LOAD] = { .method = "POST", .path = "/collective_rpc",
			      .body = load_body, .take = take_results,
			      .is_wanted = http_loads_now },
		[HO_SUM] = { .method = "POST", .path = "/weight_checker",
			     .body = sum_body, .take = take_sum,
			     .optional = true, .soft = true, .big = true },
		[HO_SET] = { .method = "POST", .path = "/update_weight_version",
			     .body = set_body, .key = "success",
			     .ask = HO_TOLD, .is_done = http_is_told,
			     .optional = true },
		[HO_TOLD] = { .method = "GET", .path = "/weight_info",
			      .take = take_told, .optional = true },
		[HO_RESUME] = { .method = "POST", .path = "/resume",
				.key = "status", .want = "resumed",
				.ask = HO_PAUSED,
				.is_done = http_is_running },
		[HO_HEALTH] = { .method = "GET", .path = "/health" },
	},
	.script = {
		[EC_PROBE] = probe,
		[EC_PAUSE] = hold,
		[EC_FLUSH] = flush,
		[EC_LOAD] = load,
		[EC_SWAP] = load,
		[EC_SET_VERSION] = tell,
		[EC_RESUME] = resume,
		[EC_ABORT] = resume,
	},
	.back = back,
	.stay = stay,
	.hint = "start it with VLLM_SERVER_DEV_MODE=1",
	.reloads = reloads,
};

static int vllm_open(struct engine *e)
{
	return http_engine_open(e, &vllm);
}

const struct engine_ops en_vllm_ops = {
	.name = "vllm",
	.kind = ENGINE_VLLM,
	.in_place = true,
	.open = vllm_open,
	.call = HTTP_ENGINE_CALLS,
	.ended = http_engine_ended,
	.close = http_engine_close,
};
