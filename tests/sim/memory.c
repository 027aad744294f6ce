/* Memory of the simulator, and of each process: freed with its owner. */
#include "kern.h"

#include <stdlib.h>
#include <string.h>

struct owned {
	struct owned *next, **at;
	size_t n;
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

/* The seed's: all that is left of it goes at the end. */
static struct owned *seed_memory;

void *sim_alloc(size_t n)
{
	struct owned *o = must(__real_malloc(sizeof *o + n));

	enlist(&seed_memory, o);
	return memset(o + 1, 0, n);
}

void sim_free(void *p)
{
	struct owned *o;

	if (!p)
		return;
	o = (struct owned *)p - 1;
	delist(o);
	__real_free(o);
}

void *sim_grow(void *p, size_t n)
{
	struct owned *o;

	if (p)
		delist((struct owned *)p - 1);
	o = must(__real_realloc(p ? (struct owned *)p - 1 : NULL,
				sizeof *o + n));
	enlist(&seed_memory, o);
	return o + 1;
}

static struct owned *no_memory; /* of nobody: before and between processes */

static struct owned **memory_list(void)
{
	return sim.p ? &sim.p->memory : &no_memory;
}

void *__wrap_malloc(size_t n);
void *__wrap_malloc(size_t n)
{
	struct owned *o = __real_malloc(sizeof *o + n);

	if (!o)
		return NULL;
	o->n = n;
	enlist(memory_list(), o);
	return o + 1;
}

void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	void *p = __wrap_malloc(n * size);

	return p ? memset(p, 0, n * size) : NULL;
}

void __wrap_free(void *p);
void __wrap_free(void *p)
{
	struct owned *o;

	if (!p)
		return;
	o = (struct owned *)p - 1;
	delist(o);
	__real_free(o);
}

void *__wrap_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n)
{
	void *q = __wrap_malloc(n);
	size_t was = p ? ((struct owned *)p - 1)->n : 0;

	if (q && p)
		memcpy(q, p, was < n ? was : n);
	if (q)
		__wrap_free(p);
	return q;
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
	struct owned *o;

	if (!sim.p)
		return;
	o = sim_alloc(sizeof *o);
	o->p = p;
	o->end = end;
	enlist(&sim.p->foreign, o);
}

void disown_foreign(void *p)
{
	struct owned *o = sim.p ? sim.p->foreign : NULL;

	while (o && o->p != p)
		o = o->next;
	if (!o)
		return;
	delist(o);
	sim_free(o);
}

void memory_drop(struct proc *p)
{
	struct owned *o;

	while ((o = p->foreign)) {
		delist(o);
		o->end(o->p);
		sim_free(o);
	}
	while ((o = p->memory)) {
		delist(o);
		__real_free(o);
	}
}

void memory_end(void)
{
	while (seed_memory)
		sim_free(seed_memory + 1);
}
