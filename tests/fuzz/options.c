#include "common/err.h"
#include "pipes/options.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

union any_conf {
	struct plan_conf plan;
	struct admit_conf admit;
	struct transfer_conf transfer;
	struct commit_conf commit;
};

static const struct opt_spec *const specs[] = { &plan_spec, &admit_spec,
						&transfer_spec, &commit_spec };

static void start(const struct opt_spec *spec, union any_conf *conf)
{
	char *argv[] = { (char *)(uintptr_t)spec->program, NULL };

	memset(conf, 0, sizeof *conf);
	opt_parse(spec, conf, 1, argv);
}

/* STAGE.options: what was loaded is dumped, loaded and dumped the same. */
void fuzz_options(struct slice in)
{
	static struct buf dump[2];
	const struct opt_spec *spec = specs[fuzz_number(&in, 1) % COUNT(specs)];
	union any_conf conf[2];

	start(spec, &conf[0]);
	start(spec, &conf[1]);
	if (opt_load(spec, &conf[0], in) == 0) {
		buf_clear(&dump[0]);
		buf_clear(&dump[1]);
		opt_dump(spec, &conf[0], &dump[0]);
		BUG_ON(opt_load(spec, &conf[1], buf_slice(&dump[0])) < 0);
		opt_dump(spec, &conf[1], &dump[1]);
		BUG_ON(!slice_eq(buf_slice(&dump[0]), buf_slice(&dump[1])));
	}
	opt_release(spec, &conf[0]);
	opt_release(spec, &conf[1]);
}
