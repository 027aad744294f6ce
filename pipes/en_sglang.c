/*
 * en_sglang.c - SGLang's own calls; share/doc/interop.md says where each was
 * read.  Its model_path changes when a load has succeeded, and only then: so
 * a load whose answer was lost can be asked for.
 */
#include "pipes/en_http.h"
#include "common/err.h"

#include <stdio.h>
#include <string.h>

/* ---- bodies: every flag that has an effect is said ---- */

/* Those that it was told to leave, and those to come: the oldest is next. */
static unsigned leaves(const struct http_engine *h)
{
	return h->turn + http_groups(h);
}

static void leave_body(const struct http_engine *h, struct jsonw *j)
{
	jsonw_slice(j, "group_name", h->e->live.groups.name[0]);
}

static void keep_body(const struct http_engine *h, struct jsonw *j)
{
	(void)h;
	jsonw_str(j, "mode", "retract");
}

static void abort_body(const struct http_engine *h, struct jsonw *j)
{
	(void)h;
	jsonw_str(j, "mode", "abort");
}

/* It takes the version whole or as deltas, and is done if it has it. */
static void pull_body(const struct http_engine *h, struct jsonw *j)
{
	char path[ENGINE_PATH];

	jsonw_str(j, "local_checkpoint_dir", http_load_path(h, path));
	jsonw_str(j, "source_dir", h->e->goal->disk_dir);
	jsonw_u64(j, "target_version", h->e->goal->version);
}

static void load_body(const struct http_engine *h, struct jsonw *j)
{
	char path[ENGINE_PATH];

	jsonw_str(j, "model_path", http_load_path(h, path));
	jsonw_bool(j, "abort_all_requests", false);
	jsonw_bool(j, "is_async", false);
	jsonw_bool(j, "torch_empty_cache", false);
	jsonw_bool(j, "keep_pause", true);
	jsonw_bool(j, "recapture_cuda_graph", false);
	jsonw_bool(j, "flush_cache", false);
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
	jsonw_bool(j, "abort_all_requests", false);
}

static void resume_body(const struct http_engine *h, struct jsonw *j)
{
	(void)h;
	jsonw_bool(j, "torch_empty_cache", true);
}

/* ---- answers ---- */

static int take_info(struct http_engine *h, const struct doc *d)
{
	const char *path = doc_text(doc_at(d, "model_path"));
	const char *name = doc_text(doc_at(d, "served_model_name"));

	if (!path)
		return http_say(h, -E_CONFIG, "no model_path: is it SGLang?");
	snprintf(h->path, sizeof h->path, "%s", path);
	if (name && strcmp(name, path) != 0 && http_check_model(h, name) < 0)
		return -E_CONFIG;
	if (http_check_architecture(h, doc_at(d, "architectures")) < 0)
		return -E_CONFIG;
	if (http_check_quantization(h) < 0)
		return -E_CONFIG;
	return http_take_label(h, doc_at(d, "weight_version"));
}

static int take_path(struct http_engine *h, const struct doc *d)
{
	const char *path = doc_text(doc_at(d, "model_path"));

	snprintf(h->path, sizeof h->path, "%s", path ? path : "");
	if (!http_is_loaded(h))
		return http_say(h, -E_PROTO, "it says done, but serves \"%s\"",
				h->path);
	memcpy(h->loaded, h->path, sizeof h->loaded);
	return 0;
}

/* Nothing fences servers: whoever else pushes to it has loaded there, too. */
static int take_ours(struct http_engine *h, const struct doc *d)
{
	const char *path = doc_text(doc_at(d, "model_path"));

	if (path && strcmp(path, h->loaded) == 0)
		return 0;
	h->e->live.loaded = false;
	return http_say(h, -E_UNAVAIL,
			"it serves \"%.150s\" by now, not what it had loaded: "
			"does another push use it?",
			path ? path : "");
}

static bool has_told_path(const struct http_engine *h)
{
	return h->loaded[0];
}

static int take_told(struct http_engine *h, const struct doc *d)
{
	return http_take_told(h, doc_at(d, "weight_version"));
}

/* A load from a path goes into the draft model as well.  Of one that serves a
 * version of ours this was asked before. */
static int check_draft(struct http_engine *h, const struct doc *d)
{
	const char *draft = doc_text(doc_at(d, "speculative_draft_model_path"));

	if (!draft || h->label || strcmp(draft, h->path) == 0)
		return 0;
	return http_say(h, -E_CONFIG,
			"its draft model \"%.150s\" is another than the one "
			"that it serves, and would get the same weights",
			draft);
}

static int take_server(struct http_engine *h, const struct doc *d)
{
	http_take_start(h, doc_at(d, "startup_time"));
	/* A worker's rank in a group is counted over TP alone. */
	h->e->live.ranks = 0;
	if (doc_number(doc_at(d, "pp_size")) < 2 &&
	    doc_number(doc_at(d, "dp_size")) < 2)
		h->e->live.ranks = http_ranks(doc_at(d, "tp_size"));
	return check_draft(h, d);
}

static int check_ranks(struct http_engine *h, const struct doc *d)
{
	(void)d;
	return http_check_ranks(h, ", and no pipeline or data parallel ones,");
}

/* Paused servers are not ready; neither are unhealthy ones. */
static int take_ready(struct http_engine *h, const struct doc *d)
{
	(void)d;
	h->paused = h->status == 503;
	return 0;
}

static int take_still(struct http_engine *h, const struct doc *d)
{
	take_ready(h, d);
	return http_check_still(h);
}

static int take_sum(struct http_engine *h, const struct doc *d)
{
	const struct doc *all = doc_at(d, "per_engine_checksum");
	const struct doc *ranks = doc_at(d, "ranks");

	http_take_sum(h, all ? all : ranks, ranks);
	return 0;
}

/* Of a matrix one row: a whole one would be large. */
static void sample_body(const struct http_engine *h, struct jsonw *j)
{
	jsonw_str(j, "name", http_sample(h));
	jsonw_i64(j, "truncate_size", 1);
}

static int take_sample(struct http_engine *h, const struct doc *d)
{
	if (doc_count(d) == 0)
		return http_say(h, -E_DATA, "no values");
	http_take_sample(h, d);
	return 0;
}

static int offer_sum(struct http_engine *h, const struct doc *d)
{
	(void)d;
	http_offer(h, LOAD_CHECKED);
	return 0;
}

static int offer_sample(struct http_engine *h, const struct doc *d)
{
	(void)d;
	http_offer(h, LOAD_SAMPLED);
	return 0;
}

#define INFO .method = "GET", .path = "/model_info", .older = "/get_model_info"
#define READY .method = "GET", .path = "/ready", .also = 503, .optional = true
#define CAN(p)                                   \
	{                                        \
		.method = "OPTIONS", .path = (p) \
	}

#define MAY(p, fn)                                              \
	{                                                       \
		.method = "OPTIONS", .path = (p), .take = (fn), \
		.optional = true, .soft = true                  \
	}

static const enum http_op probe[] = { HO_INFO,	     HO_SERVER,	   HO_PAUSED,
				      HO_CAN_PAUSE,  HO_CAN_FLUSH, HO_CAN_LOAD,
				      HO_CAN_LABEL,  HO_CAN_PULL,  HO_CAN_MEET,
				      HO_CAN_END,    HO_CAN_CAST,  HO_CAN_SUM,
				      HO_CAN_SAMPLE, HO_NONE };
static const enum http_op hold[] = { HO_PAUSE_KEEP, HO_PAUSE_ABORT, HO_NONE };
static const enum http_op flush[] = { HO_FLUSH, HO_NONE };
static const enum http_op pull[] = { HO_PULL, HO_NONE };
static const enum http_op load[] = { HO_STILL,	HO_END,	   HO_LEAVE, HO_CAST,
				     HO_LOAD,	HO_LOADED, HO_STILL, HO_SUM,
				     HO_SAMPLE, HO_FLUSH,  HO_NONE };
/* As load, of what it may not have pulled yet. */
static const enum http_op swap[] = { HO_STILL,	HO_END,	   HO_LEAVE, HO_PULL,
				     HO_LOAD,	HO_LOADED, HO_STILL, HO_SUM,
				     HO_SAMPLE, HO_FLUSH,  HO_NONE };
static const enum http_op tell[] = { HO_STILL, HO_OURS, HO_SET, HO_TOLD,
				     HO_NONE };
static const enum http_op resume[] = { HO_RESUME, HO_NONE };
/* Paused first: an earlier attempt may have resumed it. */
static const enum http_op back[] = { HO_PAUSE_KEEP, HO_PAUSE_ABORT, HO_FLUSH,
				     HO_END,	    HO_LEAVE,	    HO_LOAD,
				     HO_LOADED,	    HO_FLUSH,	    HO_RESUME,
				     HO_HEALTH,	    HO_NONE };
static const enum http_op stay[] = { HO_LOOK,  HO_HOLD, HO_END,
				     HO_LEAVE, HO_STAY, HO_NONE };

/* What its loaders repack they must be able to undo. */
static const char *const reloads[] = { "fp8", "compressed-tensors", NULL };

static const struct http_dialect sglang = {
	.name = "sglang",
	.row = {
		[HO_INFO] = { INFO, .take = take_info },
		[HO_SERVER] = { .method = "GET", .path = "/server_info",
				.older = "/get_server_info",
				.take = take_server, .optional = true,
				.soft = true },
		[HO_PAUSED] = { READY, .take = take_ready },
		[HO_CAN_PAUSE] = CAN("/pause_generation"),
		[HO_CAN_FLUSH] = CAN("/flush_cache"),
		[HO_CAN_LOAD] = CAN("/update_weights_from_disk"),
		[HO_CAN_LABEL] = CAN("/update_weight_version"),
		[HO_CAN_PULL] = { .method = "OPTIONS",
				  .path = "/pull_weights",
				  .is_wanted = http_may_pull },
		[HO_CAN_MEET] = { .method = "OPTIONS",
				  .path = "/init_weights_update_group",
				  .take = check_ranks,
				  .is_wanted = http_casts },
		[HO_CAN_END] = { .method = "OPTIONS",
				 .path = "/end_weight_update",
				 .is_wanted = http_must_end },
		[HO_CAN_CAST] = { .method = "OPTIONS",
				  .path = "/update_weights_from_distributed",
				  .take = http_cast_check,
				  .is_wanted = http_casts },
		[HO_CAN_SUM] = MAY("/weights_checker", offer_sum),
		[HO_CAN_SAMPLE] = MAY("/get_weights_by_name", offer_sample),
		[HO_PAUSE_KEEP] = { .method = "POST",
				    .path = "/pause_generation",
				    .body = keep_body,
				    .key = "status", .want = "ok",
				    .ask = HO_PAUSED,
				    .is_done = http_is_paused,
				    .is_wanted = http_keeps_requests },
		[HO_PAUSE_ABORT] = { .method = "POST",
				     .path = "/pause_generation",
				     .body = abort_body,
				     .key = "status", .want = "ok",
				     .ask = HO_PAUSED,
				     .is_done = http_is_paused,
				     .is_wanted = http_aborts_requests },
		[HO_STILL] = { READY, .take = take_still },
		[HO_LOOK] = { READY, .take = take_ready, .soft = true,
			      .brief = true },
		[HO_HOLD] = { .method = "POST", .path = "/pause_generation",
			      .body = keep_body, .key = "status", .want = "ok",
			      .take = http_take_held,
			      .is_wanted = http_is_running, .optional = true,
			      .soft = true, .brief = true },
		[HO_FLUSH] = { .method = "POST", .path = "/flush_cache",
			       .patient = true },
		[HO_END] = { .method = "POST", .path = "/end_weight_update",
			     .body = http_no_body, .is_wanted = http_is_grouped,
			     .optional = true, .soft = true, .brief = true },
		[HO_LEAVE] = { .method = "POST",
			       .path = "/destroy_weights_update_group",
			       .body = leave_body, .is_wanted = http_is_grouped,
			       .turns = leaves, .optional = true,
			       .soft = true, .brief = true },
		[HO_PULL] = { .method = "POST", .path = "/pull_weights",
			      .body = pull_body, .key = "success",
			      .is_wanted = http_pulls },
		[HO_CAST] = { .is_wanted = http_casts_now },
		[HO_LOAD] = { .method = "POST",
			      .path = "/update_weights_from_disk",
			      .body = load_body, .key = "success",
			      .ask = HO_LOADED, .is_done = http_has_loaded,
			      .is_wanted = http_loads_now },
		[HO_LOADED] = { INFO, .take = take_path,
				.is_wanted = http_loads_now },
		[HO_SUM] = { .method = "POST", .path = "/weights_checker",
			     .body = sum_body, .key = "success",
			     .take = take_sum, .optional = true,
			     .soft = true, .big = true },
		[HO_SAMPLE] = { .method = "POST",
				.path = "/get_weights_by_name",
				.body = sample_body, .take = take_sample,
				.is_wanted = http_has_sample,
				.turns = http_samples, .optional = true,
				.soft = true, .big = true },
		[HO_OURS] = { INFO, .take = take_ours,
			      .is_wanted = has_told_path },
		[HO_SET] = { .method = "POST",
			     .path = "/update_weight_version",
			     .body = set_body, .key = "success",
			     .ask = HO_TOLD, .is_done = http_is_told },
		[HO_TOLD] = { INFO, .take = take_told },
		[HO_RESUME] = { .method = "POST",
				.path = "/continue_generation",
				.body = resume_body,
				.key = "status", .want = "ok",
				.ask = HO_PAUSED,
				.is_done = http_is_running },
		[HO_HEALTH] = { .method = "GET", .path = "/health" },
	},
	.script = {
		[EC_PROBE] = probe,
		[EC_PAUSE] = hold,
		[EC_FLUSH] = flush,
		[EC_RECEIPT] = pull,
		[EC_LOAD] = load,
		[EC_SWAP] = swap,
		[EC_SET_VERSION] = tell,
		[EC_RESUME] = resume,
		[EC_ABORT] = resume,
	},
	.back = back,
	.stay = stay,
	.hint = "this SGLang is too old, or lacks slime's patches",
	.reloads = reloads,
};

static int sglang_open(struct engine *e)
{
	return http_engine_open(e, &sglang);
}

const struct engine_ops en_sglang_ops = {
	.name = "sglang",
	.kind = ENGINE_SGLANG,
	.in_place = true,
	.open = sglang_open,
	.call = HTTP_ENGINE_CALLS,
	.ended = http_engine_ended,
	.close = http_engine_close,
};
