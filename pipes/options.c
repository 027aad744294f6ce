#include "options.h"
#include "common/version.h"
#include "delta_choice.h"

#define STAGE_TIMEOUT(conf)                                               \
	{                                                                 \
		.name = "stage-timeout",                                  \
		OPT_TO_DURATION(conf, stage_timeout_ms), .value = "TIME", \
		.def = "10s", .min = 100,                                 \
		.help = "wait this long for a vanished neighbour"         \
	}

/* Plan knows them for --dry-run only, so there they are no property of the
 * run. */
#define LIMITS(conf, is_transient)                                            \
	{ .name = "max-inflight-engine-groups",                               \
	  OPT_TO_UINT(conf, limits.groups),                                   \
	  .value = "N",                                                       \
	  .def = "0",                                                         \
	  .max = UINT32_MAX,                                                  \
	  .transient = is_transient,                                          \
	  .aliases = { "update-weight-max-inflight-engine-groups" },          \
	  .help = "engines that receive at a time; 0: all at once" },         \
		{ .name = "max-inflight-buckets",                             \
		  OPT_TO_UINT(conf, limits.buckets),                          \
		  .value = "N",                                               \
		  .def = "0",                                                 \
		  .transient = is_transient,                                  \
		  .aliases = { "update-weight-max-inflight-buckets" },        \
		  .help = "credit in buckets; 0: this dimension is off" },    \
		{ .name = "max-inflight-bytes",                               \
		  OPT_TO_SIZE(conf, limits.bytes),                            \
		  .value = "SIZE",                                            \
		  .def = "0",                                                 \
		  .transient = is_transient,                                  \
		  .aliases = { "update-weight-max-inflight-bytes" },          \
		  .help = "credit in bytes; 0: this dimension is off" },      \
		{ .name = "order",                                            \
		  OPT_TO_CHOICE(conf, limits.order),                          \
		  .def = "auto",                                              \
		  .choices = orders,                                          \
		  .transient = is_transient,                                  \
		  .help = "all buckets per wave, or all waves per window of " \
			  "credit; auto: by transport" },                     \
	{                                                                     \
		.name = "expert-routing",                                     \
		OPT_TO_CHOICE(conf, limits.expert_routing), .def = "off",     \
		.choices = routings, .transient = is_transient,               \
		.help = "auto, sending experts only where they live, is not " \
			"built yet"                                           \
	}

static const char *const orders[] = { "auto", "wave", "window", NULL };
static const char *const routings[] = { "off", "auto", NULL };
static const char *const proofs[] = { "ack", "sampled", "copied", "reread",
				      NULL };

static const char *const expectations[] = {
	[EXPECT_SAME] = "same-structure",
	[EXPECT_ANY] = "any",
	NULL,
};

static const char *const pause_modes[] = { "keep", "abort", NULL };
static const char *const on_failures[] = { "keep", "rollback", NULL };

static const struct opt plan_rows[] = {
	{ .name = "source",
	  OPT_TO_LIST(struct plan_conf, sources),
	  .value = "DIR",
	  .help = "directory of safetensors files; "
		  "model.safetensors.index.json is honoured; gpu:FILE: tensors "
		  "in a device's memory, which FILE lists; given again: "
		  "source ranks, one for each worker" },
	{ .name = "fleet",
	  OPT_TO_STRING(struct plan_conf, fleet),
	  .value = "FILE",
	  .help = "the engines, as YAML; -: from stdin" },
	{ .name = "engine",
	  OPT_TO_LIST(struct plan_conf, engines),
	  .value = "[KIND=]ENDPOINT",
	  .help = "an engine without a fleet file; they are called "
		  "engine-0, engine-1 ... in order" },
	{ .name = "only",
	  OPT_TO_LIST(struct plan_conf, only),
	  .value = "NAME",
	  .help = "bring this engine to the published version, and touch no "
		  "other; without --fleet the last fleet is meant" },
	{ .name = "to",
	  OPT_TO_STRING(struct plan_conf, to),
	  .value = "VERSION",
	  .help = "publish what this version is under a new number, as weir "
		  "rollback does; previous: the last that is something else" },
	{ .name = "bucket-size",
	  OPT_TO_SIZE(struct plan_conf, bucket_size),
	  .value = "SIZE",
	  .def = "512MiB",
	  .min = 1,
	  .aliases = { "update-weight-buffer-size" },
	  .help = "a larger tensor makes its own bucket" },
	{ .name = "split-tensors",
	  OPT_TO_FLAG(struct plan_conf, split_tensors),
	  .help = "split tensors above the bucket size, on 16 MiB edges" },
	{ .name = "keep-together",
	  OPT_TO_LIST(struct plan_conf, keep_together),
	  .value = "REGEX",
	  .help = "tensors with the same first (...) of this extended regular "
		  "expression share a bucket, or it is an error; none: not "
		  "even the built-in groups (q/k/v, gate/up, weight and "
		  "scales, ...), which are kept where they fit" },
	{ .name = "transport",
	  OPT_TO_STRING(struct plan_conf, transport),
	  .value = "NAME",
	  .def = "auto",
	  .help = "how bytes move: host; disk, by a version directory that "
		  "engines load; delta, the same with what changed only; nccl, "
		  "by broadcasts between devices; cuda-ipc, by buffers on "
		  "the source's device; auto: host" },
	{ .name = "disk-dir",
	  OPT_TO_STRING(struct plan_conf, disk_dir),
	  .value = "DIR",
	  .aliases = { "update-weight-disk-dir" },
	  .help = "where transports disk and delta put version directories, "
		  "weight_v000007 and so on; engines must see it under the "
		  "same path" },
	{ .name = "output",
	  .letter = 'o',
	  OPT_TO_STRING(struct plan_conf, out),
	  .value = "FILE",
	  .transient = true,
	  .help = "write the plan to FILE and end" },
	{ .name = "dry-run",
	  OPT_TO_FLAG(struct plan_conf, dry_run),
	  .transient = true,
	  .help = "print what each wave would move, and end" },
	{ .name = "rate",
	  OPT_TO_SIZE(struct plan_conf, rate),
	  .value = "SIZE",
	  .def = "1GB",
	  .min = 1,
	  .transient = true,
	  .help = "bytes per second and engine that --dry-run assumes" },
	LIMITS(struct plan_conf, true),
	STAGE_TIMEOUT(struct plan_conf),
};

const struct opt_spec plan_spec = {
	.program = "weir-plan",
	.summary = "read a checkpoint and a fleet, say what is to be moved",
	.opts = plan_rows,
	.nopts = COUNT(plan_rows),
	.common = offsetof(struct plan_conf, common),
};

static const struct opt admit_rows[] = {
	LIMITS(struct admit_conf, false),
	STAGE_TIMEOUT(struct admit_conf),
};

const struct opt_spec admit_spec = {
	.program = "weir-admit",
	.summary = "say when: waves of engines, credit of buckets and bytes",
	.args = "[PLAN]",
	.max_args = 1,
	.opts = admit_rows,
	.nopts = COUNT(admit_rows),
	.common = offsetof(struct admit_conf, common),
};

static const struct opt transfer_rows[] = {
	{ .name = "hash-threads",
	  OPT_TO_UINT(struct transfer_conf, hash_threads),
	  .value = "N",
	  .def = "2",
	  .min = 1,
	  .max = 64,
	  .help = "threads that hash the source beside the offers" },
	{ .name = "post-write",
	  OPT_TO_STRING(struct transfer_conf, post_write),
	  .value = "CMD",
	  .help = "run when a version directory is there, before any engine "
		  "loads it, with WEIR_DIR and WEIR_VERSION set; for stores "
		  "that need an explicit publish" },
	{ .name = "disk-link",
	  OPT_TO_FLAG(struct transfer_conf, disk_link),
	  .help = "make version directories of hard links to the source's "
		  "files; only for a trainer that never writes into a file "
		  "again" },
	{ .name = "delta-encoding",
	  OPT_TO_CHOICE(struct transfer_conf, delta_encoding),
	  .choices = delta_encodings,
	  .def = "xor",
	  .aliases = { "update-weight-delta-encoding" },
	  .help = "of transport delta: xor and overwrite can be read by slime "
		  "too, sparse and auto (the best for each tensor) only by "
		  "weir" },
	{ .name = "delta-checksum",
	  OPT_TO_CHOICE(struct transfer_conf, delta_checksum),
	  .choices = delta_checksums,
	  .def = "xxh3-128",
	  .aliases = { "update-weight-delta-checksum" },
	  .help = "of transport delta: of each new tensor" },
	{ .name = "full-every",
	  OPT_TO_UINT(struct transfer_conf, full_every),
	  .value = "K",
	  .def = "0",
	  .help = "of transport delta: write every K-th version whole; 0: "
		  "only where a delta will not do" },
	{ .name = "max-chain",
	  OPT_TO_UINT(struct transfer_conf, max_chain),
	  .value = "N",
	  .def = "16",
	  .max = 256,
	  .help = "of transport delta: write a version whole after N deltas" },
	{ .name = "disk-wait",
	  OPT_TO_DURATION(struct transfer_conf, disk_wait_ms),
	  .value = "TIME",
	  .def = "30s",
	  .help = "how long a version directory may take to become visible "
		  "where an engine runs" },
	{ .name = "keeper",
	  OPT_TO_STRING(struct transfer_conf, keeper),
	  .value = "PATH",
	  .help = "of transport nccl: use the source's devices by the "
		  "weir-keeper that listens there, and groups again that it "
		  "has kept" },
	STAGE_TIMEOUT(struct transfer_conf),
};

const struct opt_spec transfer_spec = {
	.program = "weir-transfer",
	.summary = "let the engines copy, hash the source beside them",
	.opts = transfer_rows,
	.nopts = COUNT(transfer_rows),
	.common = offsetof(struct transfer_conf, common),
};

static const struct opt commit_rows[] = {
	{ .name = "weight-version",
	  OPT_TO_UINT(struct commit_conf, weight_version),
	  .value = "N",
	  .min = 1,
	  .max = VERSION_MAX,
	  .help = "publish under this number instead of highest + 1" },
	{ .name = "min-engines",
	  OPT_TO_UINT(struct commit_conf, min_engines),
	  .value = "K",
	  .min = 1,
	  .help = "publish if at least K engines hold it; default: all" },
	{ .name = "retire-after",
	  OPT_TO_UINT(struct commit_conf, retire_after),
	  .value = "K",
	  .def = "3",
	  .max = COMMIT_RETIRE_MAX,
	  .help = "with --min-engines: leave out, untried, an engine that "
		  "failed in each of the last K versions; 0: try it always" },
	{ .name = "accept-proof",
	  OPT_TO_CHOICE(struct commit_conf, accept_proof),
	  .def = "copied",
	  .choices = proofs,
	  .help = "lowest proof level that a receipt may have" },
	{ .name = "expect",
	  OPT_TO_CHOICE(struct commit_conf, expect),
	  .def = "same-structure",
	  .choices = expectations,
	  .help = "refuse tensors whose names, dtypes or shapes are not those "
		  "of the version served; any: another model is fine" },
	{ .name = "engine-timeout",
	  OPT_TO_DURATION(struct commit_conf, engine_timeout_ms),
	  .value = "TIME",
	  .def = "60s",
	  .min = 10,
	  .help = "for one answer of an engine" },
	{ .name = "load-timeout",
	  OPT_TO_DURATION(struct commit_conf, load_timeout_ms),
	  .value = "TIME",
	  .def = "600s",
	  .min = 10,
	  .help = "for one bucket, and for post-load and seal" },
	{ .name = "run-timeout",
	  OPT_TO_DURATION(struct commit_conf, run_timeout_ms),
	  .value = "TIME",
	  .def = "1h",
	  .min = 100,
	  .help = "for the whole run, restarts included" },
	{ .name = "wait",
	  OPT_TO_DURATION(struct commit_conf, wait_ms),
	  .value = "TIME",
	  .def = "0",
	  .help = "wait this long for another run's lock" },
	{ .name = "pause-mode",
	  OPT_TO_CHOICE(struct commit_conf, pause_mode),
	  .def = "keep",
	  .choices = pause_modes,
	  .help = "what an sglang or vllm engine does with its requests while "
		  "it loads: they wait, or are aborted" },
	{ .name = "on-failure",
	  OPT_TO_CHOICE(struct commit_conf, on_failure),
	  .def = "keep",
	  .choices = on_failures,
	  .help = "an sglang or vllm engine that may be partly loaded is kept "
		  "paused, or loads again what it served before" },
	{ .name = "api-key-file",
	  OPT_TO_STRING(struct commit_conf, api_key_file),
	  .value = "FILE",
	  .help = "key for the servers of sglang and vllm engines, one line" },
	{ .name = "keep",
	  OPT_TO_UINT(struct commit_conf, keep),
	  .value = "K",
	  .def = "2",
	  .min = 1,
	  .help = "version directories of --disk-dir that stay, beside those "
		  "that they are made from and those in use" },
	STAGE_TIMEOUT(struct commit_conf),
};

const struct opt_spec commit_spec = {
	.program = "weir-commit",
	.summary = "say whether: probe, receipts, decision, swap",
	.opts = commit_rows,
	.nopts = COUNT(commit_rows),
	.common = offsetof(struct commit_conf, common),
};
