/*
 * expert.h - which tensors are routed experts', by their names.
 *
 * A name is a path of modules, joined by dots.  What lies below a module
 * `experts` is a routed expert's, be it one of many ("mlp.experts.17.w1") or
 * all of them fused ("mlp.experts.gate_up_proj"); a router ("mlp.gate") and a
 * shared expert ("mlp.shared_experts.w1") are as any other.  Pure.
 */
#ifndef WEIR_EXPERT_H
#define WEIR_EXPERT_H

#include "buf.h"

#include <stdbool.h>

bool expert_is_routed(struct slice name);

#endif
