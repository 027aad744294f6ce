#include "wave.h"

#include "err.h"

static uint32_t waves_for(const struct waves *w, uint32_t n)
{
	return n / w->limit + (n % w->limit != 0);
}

int waves_init(struct waves *w, uint32_t staged, uint32_t engines,
	       int64_t limit)
{
	if (limit < 0 || limit > UINT32_MAX)
		return -E_USAGE;
	if (engines == 0 || staged > engines)
		return -E_DATA;
	w->staged = staged;
	w->engines = engines;
	w->limit = limit == 0 || limit > engines ? engines : (uint32_t)limit;
	return 0;
}

uint32_t waves_count(const struct waves *w)
{
	return waves_for(w, w->staged) + waves_for(w, w->engines - w->staged);
}

void waves_get(const struct waves *w, uint32_t i, uint32_t *first,
	       uint32_t *count)
{
	uint32_t before = waves_for(w, w->staged);
	uint32_t base = i < before ? 0 : w->staged;
	uint32_t end = i < before ? w->staged : w->engines;
	uint32_t nth = i < before ? i : i - before;

	*first = base + nth * w->limit;
	*count = end - *first < w->limit ? end - *first : w->limit;
}

uint32_t waves_of(const struct waves *w, uint32_t e)
{
	if (e < w->staged)
		return e / w->limit;
	return waves_for(w, w->staged) + (e - w->staged) / w->limit;
}
