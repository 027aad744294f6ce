/*
 * mutants_slot.c - four faults that weir-move-slot could have; as mutants.c.
 *
 *	no-wait		what is still on its way counts as there
 *	no-lock		a slot is written that a consumer holds
 *	early-show	a version is offered before it is to be served
 *	no-check	whatever is on the device is good enough
 *
 * And a clock of its own, with which waits are over soon:
 *
 *	hurry		each look at it is HURRY_MS later than the last
 */
#include "pipes/move_slot_part.h"

#include "common/clock.h"

#include <stdlib.h>
#include <string.h>

#define HURRY_MS 200

int __real_gpu_stream_wait(void *stream);
int __wrap_gpu_stream_wait(void *stream);
int __real_page_lock(struct page *p, uint32_t slot);
int __wrap_page_lock(struct page *p, uint32_t slot);
int __real_page_describe(struct page *p, const struct load *l);
int __wrap_page_describe(struct page *p, const struct load *l);
bool __real_digest_eq(const struct digest *a, const struct digest *b);
bool __wrap_digest_eq(const struct digest *a, const struct digest *b);
int64_t __real_clock_mono_ms(void);
int64_t __wrap_clock_mono_ms(void);

static bool is_mutant(const char *name)
{
	const char *wanted = getenv("WEIR_MUTANT");

	return wanted && strcmp(wanted, name) == 0;
}

int __wrap_gpu_stream_wait(void *stream)
{
	return is_mutant("no-wait") ? 0 : __real_gpu_stream_wait(stream);
}

int __wrap_page_lock(struct page *p, uint32_t slot)
{
	int rc = __real_page_lock(p, slot);

	return is_mutant("no-lock") ? 0 : rc;
}

int __wrap_page_describe(struct page *p, const struct load *l)
{
	int rc = __real_page_describe(p, l);

	if (is_mutant("early-show")) {
		l->slot->version = l->record.version;
		l->slot->bytes = l->bytes;
		page_show(p, l->slot);
	}
	return rc;
}

bool __wrap_digest_eq(const struct digest *a, const struct digest *b)
{
	return is_mutant("no-check") || __real_digest_eq(a, b);
}

int64_t __wrap_clock_mono_ms(void)
{
	static int64_t late;

	if (is_mutant("hurry"))
		late += HURRY_MS;
	return __real_clock_mono_ms() + late;
}
