#include "common/fleet.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check(const struct fleet *f)
{
	BUG_ON(f->n == 0 || f->n > FLEET_ENGINES_MAX);
	for (uint32_t i = 0; i < f->n; i++) {
		const struct fleet_engine *e = &f->engine[i];

		BUG_ON(!fleet_is_name(slice_of(e->name)));
		BUG_ON(e->kind >= FLEET_NKINDS);
		BUG_ON(fleet_find(f, slice_of(e->name)) != e);
		for (uint32_t w = 0; w < e->nworkers; w++)
			BUG_ON(strlen(e->endpoint[w]) >
			       FLEET_IPC_PATH_MAX + strlen("ipc://"));
	}
}

static void from_option(struct slice in)
{
	char *spec = xstrndup(in.p, in.n);
	struct fleet f = { 0 };

	if (fleet_add_endpoint(&f, spec) == 0 && fleet_check(&f, "f") == 0)
		check(&f);
	fleet_release(&f);
	free(spec);
}

/* A file, and behind a NUL an --engine. */
void fuzz_fleet(struct slice in)
{
	struct fleet f = { 0 };

	if (in.n > 0 && in.p[0] == '\0') {
		fuzz_take(&in, 1);
		from_option(in);
		return;
	}
	if (fleet_parse(&f, "fleet", in) == 0)
		check(&f);
	fleet_release(&f);
}
