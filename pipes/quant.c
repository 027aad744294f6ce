#include "pipes/quant_part.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/names.h"
#include "common/units.h"

#include <stdlib.h>
#include <string.h>

void quant_name_add(struct quant_names *t, struct slice name,
		    const char *suffix, uint32_t file)
{
	size_t more = strlen(suffix);

	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 64;
		t->v = xreallocarray(t->v, t->cap, sizeof *t->v);
	}
	t->v[t->n++] = (struct quant_name){ t->text.n,
					    (uint32_t)(name.n + more), file };
	buf_add(&t->text, name.p, name.n);
	buf_add(&t->text, suffix, more);
}

struct slice quant_name(const struct quant_names *t, uint32_t i)
{
	return (struct slice){ t->text.p + t->v[i].at, t->v[i].len };
}

static int cmp_names(const void *pa, const void *pb, void *text)
{
	const struct quant_name *a = pa, *b = pb;
	const char *base = text;

	return slice_cmp((struct slice){ base + a->at, a->len },
			 (struct slice){ base + b->at, b->len });
}

static void sort_names(struct quant_names *t)
{
	if (t->n > 0)
		qsort_r(t->v, t->n, sizeof *t->v, cmp_names, t->text.p);
}

static void release_names(struct quant_names *t)
{
	buf_release(&t->text);
	free(t->v);
	*t = (struct quant_names){ 0 };
}

int quant_must_end(const struct quant_all *a)
{
	if (atomic_load(a->q->cancel))
		return -E_AGAIN;
	return clock_mono_ms() > a->deadline_ms ? -E_TIMEOUT : 0;
}

static int check_names(const struct quant_all *a)
{
	for (uint32_t i = 1; i < a->tensors.n; i++) {
		struct slice name = quant_name(&a->tensors, i);

		if (slice_eq(quant_name(&a->tensors, i - 1), name))
			return log_error(E_DATA,
					 "post-load fp8: tensor \"%.*s\" is "
					 "there already",
					 SLICE_ARG(name));
	}
	return 0;
}

static int convert(struct quant_all *a)
{
	int rc = quant_config_check(a->q);

	for (uint32_t i = 0; i < a->q->nfiles && rc >= 0; i++)
		if (a->q->file[i].kind == FILE_SHARD)
			rc = quant_shard(a, i);
	quant_drop_old(a);
	if (rc < 0)
		return rc;
	if (a->quantised == 0)
		return log_error(E_DATA,
				 "post-load fp8: nothing to quantise: no "
				 "BF16, F16 or F32 weight of two dimensions");
	sort_names(&a->tensors);
	sort_names(&a->kept);
	rc = check_names(a);
	if (rc >= 0)
		rc = quant_index_write(a);
	return rc < 0 ? rc : quant_config_write(a);
}

int quant_run(const struct quant *q)
{
	struct quant_all a = { .q = q, .old = SLOTFILE_INIT };
	int64_t start = clock_mono_ms();
	char time[UNITS_MAX];
	int rc;

	a.deadline_ms = start + q->timeout_ms;
	rc = convert(&a);
	if (rc == -E_TIMEOUT)
		log_error(E_TIMEOUT, "post-load fp8 did not end within %s",
			  units_time(q->timeout_ms, time));
	if (rc >= 0)
		log_info("post-load fp8: %u of %u tensors, %llu bytes made "
			 "%llu in %s",
			 a.quantised, a.tensors.n - a.quantised,
			 (unsigned long long)a.before,
			 (unsigned long long)a.bytes,
			 units_time(clock_mono_ms() - start, time));
	release_names(&a.tensors);
	release_names(&a.kept);
	return rc < 0 ? rc : 0;
}

bool quant_is_name(const char *post_load)
{
	return post_load && strcmp(post_load, QUANT_NAME) == 0;
}

uint64_t quant_spare(const struct store_slot *slot)
{
	uint64_t largest = 0;

	for (uint32_t i = 0; i < slot->nfiles; i++)
		if (slot->file[i].kind == FILE_SHARD &&
		    slot->file[i].bytes > largest)
			largest = slot->file[i].bytes;
	return largest / 2;
}
