/*
 * limits.h - what --max-inflight-* may say, by transport.
 */
#ifndef WEIR_LIMITS_H
#define WEIR_LIMITS_H

#include "pipes/options.h"

/* Of a transport that carries versions whole: no credit and no order, there
 * are no buckets; waves apply.  Of the others: no expert routing yet.
 * -E_USAGE, logged, naming the option. */
int limits_check(const struct limits_conf *c, const char *transport);

#endif
