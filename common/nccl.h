/*
 * nccl.h - groups of devices and broadcasts in them, by NCCL.
 *
 * The only user of the library; linked into weir-move-nccl alone.  Nothing
 * here waits: a group is begun and then asked for, a broadcast is put into a
 * stream (gpu.h).  nccl_end() may hang, as the library's own clean-up may:
 * call it under a watchdog (watchdog.h).
 *
 * Failures are logged with the call and the library's own text.
 */
#ifndef WEIR_NCCL_H
#define WEIR_NCCL_H

#include <stddef.h>
#include <stdint.h>

#define NCCL_ID_LEN	128

struct nccl_id {
	char b[NCCL_ID_LEN];
};

int nccl_version(uint32_t *code);
/* A fresh one, by rank 0 alone. */
int nccl_new_id(struct nccl_id *out);
/* Begins to form a group; nccl_state() tells when it is there. */
int nccl_begin(void **comm, const struct nccl_id *id, uint32_t rank,
	       uint32_t world);
/* 1: all is well; 0: still forming; -E_UNAVAIL, logged: it is broken. */
int nccl_state(void *comm);
/* From rank 0's memory into that of all others. */
int nccl_broadcast(void *comm, void *memory, size_t n, void *stream);
/* The sum of one float of each rank, into its place. */
int nccl_sum_float(void *comm, void *memory, void *stream);
/* At once, whatever is on its way. */
void nccl_end(void *comm);

#endif
