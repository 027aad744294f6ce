#include "common/expert.h"
#include "tests/tap.h"

static void is(bool want, const char *name)
{
	ok(expert_is_routed(slice_of(name)) == want, "%s: %s", name,
	   want ? "a routed expert's" : "is not");
}

int main(void)
{
	is(true, "model.layers.3.mlp.experts.17.gate_proj.weight");
	is(true, "model.layers.3.block_sparse_moe.experts.0.w1.weight");
	is(true, "model.layers.3.mlp.experts.gate_up_proj");
	is(true, "experts.0.w");
	is(false, "model.layers.3.mlp.shared_experts.up_proj.weight");
	is(false, "model.layers.3.mlp.shared_expert.up_proj.weight");
	is(false, "model.layers.3.mlp.experts_bias.0");
	is(false, "model.layers.3.mlp.gate.weight");
	is(false, "model.layers.3.mlp.experts");
	is(false, "");
	return tap_done();
}
