/*
 * standin.h - what the two stand-in libraries share.
 *
 * libcudart.so.13 and libnccl.so.2 for machines without a device, found by
 * LD_LIBRARY_PATH in tests and never installed.  They say what they are on
 * stderr when they are loaded.  "Device memory" is shared memory that other
 * processes can map; a stream is a thread that carries out what it is given
 * later, in order, with pauses from a seed, so that what is not synchronised
 * shows as wrong bytes.  Code for a device is leafsum.cu's, run as leafsum.h
 * has it.  A copy beyond an allocation is refused; a process that ends with
 * handles open says how many.
 *
 *	WEIR_STANDIN_DEVICES=N		of this machine; 8
 *	CUDA_VISIBLE_DEVICES=A,B	as the real ones take it (numbers)
 *	WEIR_STANDIN_MEMORY=BYTES	of each device; 1 GiB
 *	WEIR_STANDIN_SEED=N		of the pauses; 1
 *	WEIR_STANDIN_PAUSE_US=N		the longest one; 300
 *	WEIR_STANDIN_NCCL=CODE		version that libnccl says it has
 *	WEIR_STANDIN_LOG=FILE		a line for each rank that joins a group,
 *					"join RANK RANKS", for each broadcast,
 *					"cast RANK BYTES", and at the end of a
 *					process, "open HANDLES 0", goes there
 *	WEIR_STANDIN_FAULT=NAME[=K],...	from the K-th time on (1):
 *
 *	no-device oom no-pin sticky	calls of the runtime
 *	no-ipc				no memory can be shared
 *	no-map				no handle can be opened
 *	no-code				nothing can be run on a device
 *	bad-code			what is run there is wrong from then on
 *	no-peer				no device reads another one's memory
 *	bad-copy			one copy changes a bit
 *	begin-hang			a rank never joins
 *	init-error			a communicator cannot be made
 *	init-hang broadcast-hang abort-hang	never ends, never returns
 *	async-error			a remote error, which ends no broadcast
 *	no-data				a group forms, its bytes never come
 */
#ifndef WEIR_TESTS_STANDIN_H
#define WEIR_TESTS_STANDIN_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

/* True from the K-th call with that name on, if the environment wants it. */
bool standin_fault(const char *name);
uint64_t standin_number(const char *variable, uint64_t otherwise);
#define REFUSE_IF_STUCK                                 \
	do {                                            \
		if (standin_fault("sticky"))            \
			return cudaErrorIllegalAddress; \
	} while (0)
/* fn(arg) in the stream's thread, behind all that it was given before. */
void standin_queue(cudaStream_t stream, void (*fn)(void *), void *arg);
/* Of the device in use. */
void standin_uuid(unsigned char uuid[16]);
/* Its number, as this process counts; -1: it does not see it. */
int standin_device(const unsigned char uuid[16]);
void standin_nap(uint64_t us);
/* A line of WEIR_STANDIN_LOG. */
void standin_log(const char *what, uint64_t a, uint64_t b);

#endif
