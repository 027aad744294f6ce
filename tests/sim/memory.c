/* Memory of the simulator, and of each process: freed with its owner. */
#include "kern.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN 64    /* bytes */
#define CLASSES 32u /* of blocks that are kept to be used again */
#define SLAB 1024u  /* grains */

struct owned {
	_Alignas(max_align_t) struct owned *next;
	struct owned **at;
	size_t n;
};

struct foreign {
	void (*end)(void *);
	void *p;
};

void *must(void *p)
{
	if (!p)
		abort();
	return p;
}

static void enlist(struct owned **list, struct owned *o)
{
	o->next = *list;
	o->at = list;
	if (o->next)
		o->next->at = &o->next;
	*list = o;
}

static void delist(struct owned *o)
{
	*o->at = o->next;
	if (o->next)
		o->next->at = o->at;
}

/* ---- blocks: most live for less than a step ---- */

static struct owned *kept[CLASSES];
static char *slab;
static size_t slab_left; /* grains */

/* Grains that it takes; 0: too large to be kept.  The sanitizer has to see
 * each block come and go. */
static size_t class_of(size_t n)
{
	size_t grains = (sizeof(struct owned) + n + GRAIN - 1) / GRAIN;

	return SIM_WITH_ASAN || grains >= CLASSES ? 0 : grains;
}

static struct owned *cut(size_t grains)
{
	char *p;

	if (slab_left < grains) {
		slab = must(__real_malloc((size_t)SLAB * GRAIN));
		slab_left = SLAB;
	}
	p = slab;
	slab += grains * GRAIN;
	slab_left -= grains;
	return (struct owned *)(void *)p;
}

static struct owned *get(struct owned **list, size_t n)
{
	size_t class = class_of(n);
	struct owned *o = kept[class];

	if (!class) {
		o = must(__real_malloc(sizeof *o + n));
	} else if (o) {
		kept[class] = o->next;
	} else {
		o = cut(class);
	}
	o->n = n;
	enlist(list, o);
	return o;
}

static void put(struct owned *o)
{
	size_t class = class_of(o->n);

	delist(o);
	if (!class) {
		__real_free(o);
		return;
	}
	o->next = kept[class];
	kept[class] = o;
}

static struct owned *owner_of(void *p)
{
	return (struct owned *)p - 1;
}

static void *grow(struct owned **list, void *p, size_t n)
{
	struct owned *o = get(list, n), *was;

	if (!p)
		return o + 1;
	was = owner_of(p);
	memcpy(o + 1, p, was->n < n ? was->n : n);
	put(was);
	return o + 1;
}

/* ---- the seed's: all that is left of it goes at the end ---- */

static struct owned *seed_memory;

void *sim_alloc(size_t n)
{
	return memset(get(&seed_memory, n) + 1, 0, n);
}

void sim_free(void *p)
{
	if (p)
		put(owner_of(p));
}

void *sim_grow(void *p, size_t n)
{
	return grow(&seed_memory, p, n);
}

/* ---- a process's ---- */

static struct owned *no_memory; /* of nobody: before and between processes */

static struct owned **memory_list(void)
{
	return sim.p ? &sim.p->memory : &no_memory;
}

void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	return get(memory_list(), n) + 1;
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return memset(__wrap_malloc(n * size), 0, n * size);
}

void __wrap_free(void *p);
void __wrap_free(void *p)
{
	sim_free(p);
}

void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	return grow(memory_list(), p, n);
}

/* Of jansson, whose header doc.c alone includes: what it gives away is freed
 * by who asked. */
void json_set_alloc_funcs(void *(*get)(size_t), void (*put)(void *));

void memory_begin(void)
{
	json_set_alloc_funcs(__wrap_malloc, __wrap_free);
}

void own_foreign(void *p, void (*end)(void *))
{
	struct foreign *f;

	if (!sim.p)
		return;
	f = (struct foreign *)(get(&sim.p->foreign, sizeof *f) + 1);
	*f = (struct foreign){ end, p };
}

static struct foreign *foreign_of(struct owned *o)
{
	return (struct foreign *)(o + 1);
}

void disown_foreign(void *p)
{
	struct owned *o = sim.p ? sim.p->foreign : NULL;

	while (o && foreign_of(o)->p != p)
		o = o->next;
	if (o)
		put(o);
}

void memory_drop(struct proc *p)
{
	struct owned *o;

	while ((o = p->foreign)) {
		struct foreign f = *foreign_of(o);

		put(o);
		f.end(f.p);
	}
	while ((o = p->memory))
		put(o);
}

void memory_end(void)
{
	while (seed_memory)
		put(seed_memory);
}
