#include "pipes/status.h"

static const struct opt rows[] = {
	{ .name = "fleet",
	  OPT_TO_STRING(struct status_conf, fleet),
	  .value = "FILE",
	  .help = "ask these engines; default: those of the last decision" },
	{ .name = "engine",
	  OPT_TO_LIST(struct status_conf, engines),
	  .value = "ENDPOINT",
	  .help = "ask this engine" },
	{ .name = "api-key-file",
	  OPT_TO_STRING(struct status_conf, api_key_file),
	  .value = "FILE",
	  .help = "key for the servers of sglang and vllm engines, one line" },
	{ .name = "timeout",
	  OPT_TO_DURATION(struct status_conf, timeout_ms),
	  .value = "TIME",
	  .def = "2s",
	  .min = 10,
	  .help = "how long engines may take to answer" },
};

const struct opt_spec status_spec = {
	.program = "weir-status",
	.summary = "show what is published and what is served",
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct status_conf, common),
};
