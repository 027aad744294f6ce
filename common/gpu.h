/*
 * gpu.h - one CUDA device: memory, streams, copies.
 *
 * The only user of the CUDA runtime; linked into movers alone, so that no
 * other program needs the library or pays for its start.  Streams and device
 * memory are opaque pointers.  Copies and whatever else is put into a stream
 * happen later, in the order of that stream; gpu_call() tells when.
 *
 * Every failure is logged with the name of the call and the runtime's own
 * text, and is -E_NOMEM (no device memory), -E_UNAVAIL (no device) or -E_IO.
 * After most of them a device is of no use to this process any more: the
 * process should end.
 */
#ifndef WEIR_GPU_H
#define WEIR_GPU_H

#include "gputext.h"

#include <stddef.h>

#define GPU_NAME_MAX	256

struct gpu_device {
	unsigned char uuid[GPU_UUID_LEN];
	char name[GPU_NAME_MAX];
	int runtime, driver;		/* version codes */
};

/* Uses this device, counted as CUDA_VISIBLE_DEVICES shows them, from here on.
 * A missing driver is a missing device. */
int gpu_open(int device, struct gpu_device *out);
/* The one with this UUID, whatever its number here. */
int gpu_open_uuid(const unsigned char uuid[GPU_UUID_LEN],
		  struct gpu_device *out);

#define GPU_PEERS_MAX	64

/* Devices whose memory the one in use reads directly, of those that this
 * process sees: how many, their UUIDs in uuid; the first GPU_PEERS_MAX. */
int gpu_peers(unsigned char uuid[GPU_PEERS_MAX][GPU_UUID_LEN]);

int gpu_alloc(void **p, size_t n);
void gpu_free(void *p);			/* NULL is fine */
/* What another process on this device maps the memory by, p being what
 * gpu_alloc() gave.  -E_UNAVAIL, with hints, if the platform cannot share. */
int gpu_share(void *p, unsigned char handle[GPU_HANDLE_LEN]);
/* An allocation that another process has shared, from its start, on the device
 * in use or a peer of it, access to which is enabled then; -E_UNAVAIL, with
 * hints, if it is gone or cannot be mapped here. */
int gpu_map(void **p, const unsigned char handle[GPU_HANDLE_LEN]);
int gpu_unmap(void *p);
/* The device that the memory is on, whoever has allocated it. */
int gpu_device_of(const void *p, unsigned char uuid[GPU_UUID_LEN]);
/* Bytes from p to the end of its allocation. */
int gpu_room_at(const void *p, size_t *n);
/* Host memory that the device reads directly; *is_pinned false: ordinary
 * memory, slower, because none could be had (not logged). */
int gpu_host_alloc(void **p, size_t n, bool *is_pinned);
void gpu_host_free(void *p, bool is_pinned);

int gpu_stream_new(void **stream);
/* Waits for what is in it. */
void gpu_stream_free(void *stream);	/* NULL is fine */
/* Until all that is in it has happened: 0, or what failed of it. */
int gpu_stream_wait(void *stream);
/* What is put into `stream` from now on happens after what is in `other`. */
int gpu_stream_after(void *stream, void *other);
/* Between host and device, in either direction. */
int gpu_copy(void *stream, void *to, const void *from, size_t n);
/* Code for devices (PTX), ended by a NUL, and the functions in it, each of
 * which takes one struct.  -E_UNAVAIL, logged, if it cannot be used here; the
 * device is as it was. */
int gpu_code_load(void **code, const char *text);
void gpu_code_free(void *code);		/* NULL is fine */
int gpu_function(void **fn, void *code, const char *name);
/* width x rows blocks of GPU_THREADS threads each; arg is copied. */
#define GPU_THREADS	256u
int gpu_run(void *stream, void *fn, unsigned width, unsigned rows, void *arg);
/* Calls fn(arg) in a thread of the runtime, after all that is in the stream;
 * it must not call anything of the runtime. */
int gpu_call(void *stream, void (*fn)(void *arg), void *arg);
/* 0, or what the device has failed with meanwhile. */
int gpu_check(void *stream);

#endif
