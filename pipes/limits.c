#include "pipes/limits.h"
#include "common/err.h"
#include "common/log.h"
#include "pipes/trcaps.h"

static int check_whole(const struct limits_conf *c, const char *transport)
{
	const struct {
		bool is_given;
		const char *name;
	} no[] = {
		{ c->buckets != 0, "max-inflight-buckets" },
		{ c->bytes != 0, "max-inflight-bytes" },
		{ c->order != ORDER_AUTO, "order" },
		{ c->expert_routing != 0, "expert-routing" },
	};

	for (size_t i = 0; i < COUNT(no); i++)
		if (no[i].is_given)
			return log_error(E_USAGE,
					 "--%s: transport %s moves whole "
					 "versions and no buckets; leave it "
					 "out, --max-inflight-engine-groups "
					 "bounds how many engines load at once",
					 no[i].name, transport);
	return 0;
}

/* A worker's store is a whole checkpoint, and so is what it proves. */
static int check_buckets(const struct limits_conf *c)
{
	if (c->expert_routing == 0)
		return 0;
	return log_error(E_USAGE, "--expert-routing auto: not built yet; each "
				  "worker is sent all experts");
}

int limits_check(const struct limits_conf *c, const char *transport)
{
	return transport_has(transport, TR_WHOLE) ? check_whole(c, transport)
						  : check_buckets(c);
}
