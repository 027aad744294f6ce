/*
 * mutants_ipc.c - two faults that weir-move-ipc could have; as mutants.c.
 *
 *	no-wait		what is still on its way counts as there
 *	early-reuse	rank 0 uses a buffer again that others still read
 */
#include "pipes/move_shell.h"

#include <stdlib.h>
#include <string.h>

int __real_gpu_call(void *stream, void (*fn)(void *arg), void *arg);
int __wrap_gpu_call(void *stream, void (*fn)(void *arg), void *arg);
void __real_move_launched(struct move *m, const struct cast *c);
void __wrap_move_launched(struct move *m, const struct cast *c);

static bool is_mutant(const char *name)
{
	const char *wanted = getenv("WEIR_MUTANT");

	return wanted && strcmp(wanted, name) == 0;
}

int __wrap_gpu_call(void *stream, void (*fn)(void *arg), void *arg)
{
	if (!is_mutant("no-wait"))
		return __real_gpu_call(stream, fn, arg);
	fn(arg);
	return 0;
}

void __wrap_move_launched(struct move *m, const struct cast *c)
{
	__real_move_launched(m, c);
	if (is_mutant("early-reuse"))
		move_taken(m, c->seq);
}
