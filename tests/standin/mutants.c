/*
 * mutants.c - four faults that a mover could have, one at a time.
 *
 * Linked in front of what weir-move-nccl calls (--wrap), into a binary of the
 * same name that only tests start; WEIR_MUTANT names the fault.
 *
 *	no-wait		a broadcast does not wait for the copies before it
 *	early-use	pinned memory is used while it is still copied to
 *	early-ack	a broadcast counts as done when it is begun: rank 0
 *			uses its staging again, others write what is in theirs
 *	wrong-order	two broadcasts happen in each other's place
 *	forgets		it tells of groups that it has not kept
 */
#include "common/gpu.h"
#include "common/nccl.h"
#include "pipes/move_shell.h"

#include <stdlib.h>
#include <string.h>

int __real_gpu_stream_after(void *stream, void *other);
int __wrap_gpu_stream_after(void *stream, void *other);
int __real_gpu_copy(void *stream, void *to, const void *from, size_t n);
int __wrap_gpu_copy(void *stream, void *to, const void *from, size_t n);
int __real_gpu_call(void *stream, void (*fn)(void *arg), void *arg);
int __wrap_gpu_call(void *stream, void (*fn)(void *arg), void *arg);
int __real_nccl_broadcast(void *comm, void *memory, size_t n, void *stream);
int __wrap_nccl_broadcast(void *comm, void *memory, size_t n, void *stream);
struct group *__real_move_find_kept(const struct move *m,
				    const struct m_join *j);
struct group *__wrap_move_find_kept(const struct move *m,
				    const struct m_join *j);

static enum { OTHER, COPY, BROADCAST } last;

static bool is_mutant(const char *name)
{
	const char *wanted = getenv("WEIR_MUTANT");

	return wanted && strcmp(wanted, name) == 0;
}

int __wrap_gpu_stream_after(void *stream, void *other)
{
	return is_mutant("no-wait") ? 0
				    : __real_gpu_stream_after(stream, other);
}

int __wrap_gpu_copy(void *stream, void *to, const void *from, size_t n)
{
	last = n == MOVE_PROBE ? OTHER : COPY;
	return __real_gpu_copy(stream, to, from, n);
}

int __wrap_gpu_call(void *stream, void (*fn)(void *arg), void *arg)
{
	if ((last == COPY && is_mutant("early-use")) ||
	    (last == BROADCAST && is_mutant("early-ack"))) {
		fn(arg);
		return 0;
	}
	return __real_gpu_call(stream, fn, arg);
}

/* The first of two is held back until the second has been begun. */
static int swapped(void *comm, void *memory, size_t n, void *stream)
{
	static void *held;
	static size_t held_n;
	int rc;

	if (!held) {
		held = memory;
		held_n = n;
		return 0;
	}
	rc = __real_nccl_broadcast(comm, memory, n, stream);
	if (rc == 0)
		rc = __real_nccl_broadcast(comm, held, held_n, stream);
	held = NULL;
	return rc;
}

int __wrap_nccl_broadcast(void *comm, void *memory, size_t n, void *stream)
{
	last = n == MOVE_PROBE ? OTHER : BROADCAST;
	if (last == BROADCAST && is_mutant("wrong-order"))
		return swapped(comm, memory, n, stream);
	return __real_nccl_broadcast(comm, memory, n, stream);
}

struct group *__wrap_move_find_kept(const struct move *m,
				    const struct m_join *j)
{
	return is_mutant("forgets") ? NULL : __real_move_find_kept(m, j);
}
