/*
 * mutants_source.c - two faults that weir-move-source could have; as
 * mutants.c.
 *
 *	no-wait		a chunk is written while it is still copied to
 *	not-closed	a handle stays open
 */
#include "common/gpu.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int __real_gpu_stream_wait(void *stream);
int __wrap_gpu_stream_wait(void *stream);
int __real_gpu_unmap(void *p);
int __wrap_gpu_unmap(void *p);

static bool is_mutant(const char *name)
{
	const char *wanted = getenv("WEIR_MUTANT");

	return wanted && strcmp(wanted, name) == 0;
}

int __wrap_gpu_stream_wait(void *stream)
{
	return is_mutant("no-wait") ? 0 : __real_gpu_stream_wait(stream);
}

int __wrap_gpu_unmap(void *p)
{
	return is_mutant("not-closed") ? 0 : __real_gpu_unmap(p);
}
