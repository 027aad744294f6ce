#include "gpu.h"

#include "buf.h"
#include "err.h"
#include "log.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(cudaError_t e, const char *call)
{
	int code = E_IO;

	if (e == cudaErrorMemoryAllocation)
		code = E_NOMEM;
	else if (e == cudaErrorInvalidDevice || e == cudaErrorNoDevice)
		code = E_UNAVAIL;
	return log_error(code, "%s: %s", call, cudaGetErrorString(e));
}

/* Returns from the function that it stands in, if the call fails. */
#define GPU_TRY(call, ...)                          \
	do {                                        \
		cudaError_t e_ = call(__VA_ARGS__); \
		if (e_ != cudaSuccess)              \
			return failed(e_, #call);   \
	} while (0)

/* Whatever it returns but success means that there is none; the number is
 * left as it was then. */
static int find(int device)
{
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e != cudaSuccess)
		return log_error(E_UNAVAIL, "no CUDA device: %s",
				 cudaGetErrorString(e));
	if (device >= n)
		return log_error(E_UNAVAIL,
				 "there is no CUDA device %d: %d can be seen",
				 device, n);
	return 0;
}

int gpu_open(int device, struct gpu_device *out)
{
	struct cudaDeviceProp p;
	int rc = find(device);

	if (rc < 0)
		return rc;
	GPU_TRY(cudaSetDevice, device);
	GPU_TRY(cudaGetDeviceProperties, &p, device);
	GPU_TRY(cudaRuntimeGetVersion, &out->runtime);
	GPU_TRY(cudaDriverGetVersion, &out->driver);
	memcpy(out->uuid, p.uuid.bytes, GPU_UUID_LEN);
	snprintf(out->name, sizeof(out->name), "%.*s", GPU_NAME_MAX - 1,
		 p.name);
	return 0;
}

static int no_device(const unsigned char uuid[GPU_UUID_LEN])
{
	char text[GPU_UUID_TEXT];

	gpu_uuid_text(uuid, text);
	return log_error(E_UNAVAIL,
			 "there is no %s among the CUDA devices that this "
			 "process sees",
			 text);
}

int gpu_open_uuid(const unsigned char uuid[GPU_UUID_LEN],
		  struct gpu_device *out)
{
	int n = 0, rc = find(0);

	if (rc < 0)
		return rc;
	GPU_TRY(cudaGetDeviceCount, &n);
	for (int i = 0; i < n; i++) {
		struct cudaDeviceProp p;

		GPU_TRY(cudaGetDeviceProperties, &p, i);
		if (memcmp(p.uuid.bytes, uuid, GPU_UUID_LEN) == 0)
			return gpu_open(i, out);
	}
	return no_device(uuid);
}

int gpu_peers(unsigned char uuid[GPU_PEERS_MAX][GPU_UUID_LEN])
{
	int n = 0, found = 0, ours;

	GPU_TRY(cudaGetDevice, &ours);
	GPU_TRY(cudaGetDeviceCount, &n);
	for (int i = 0; i < n && found < GPU_PEERS_MAX; i++) {
		struct cudaDeviceProp p;
		int can = 0;

		if (i != ours)
			GPU_TRY(cudaDeviceCanAccessPeer, &can, ours, i);
		if (!can)
			continue;
		GPU_TRY(cudaGetDeviceProperties, &p, i);
		memcpy(uuid[found++], p.uuid.bytes, GPU_UUID_LEN);
	}
	return found;
}

int gpu_alloc(void **p, size_t n)
{
	size_t have = 0, all = 0;
	cudaError_t e = cudaMalloc(p, n);

	if (e != cudaErrorMemoryAllocation)
		return e == cudaSuccess ? 0 : failed(e, "cudaMalloc");
	cudaGetLastError();
	cudaMemGetInfo(&have, &all);
	return log_error(E_NOMEM,
			 "cudaMalloc: need %zu bytes on the device, have %zu "
			 "of %zu",
			 n, have, all);
}

void gpu_free(void *p)
{
	cudaFree(p);
}

static_assert(sizeof(cudaIpcMemHandle_t) == GPU_HANDLE_LEN,
	      "a handle is as long");

static int not_shared(cudaError_t e, const char *call)
{
	return log_error(E_UNAVAIL,
			 "%s: %s: device memory cannot "
			 "be shared here (WSL2, MIG, a container "
			 "without the host's IPC and PID namespaces, or "
			 "ptrace_scope may be why)",
			 call, cudaGetErrorString(e));
}

int gpu_share(void *p, unsigned char handle[GPU_HANDLE_LEN])
{
	cudaIpcMemHandle_t h;
	cudaError_t e = cudaIpcGetMemHandle(&h, p);

	if (e != cudaSuccess)
		return not_shared(e, "cudaIpcGetMemHandle");
	memcpy(handle, &h, sizeof(h));
	return 0;
}

/* The flag is cudaDeviceEnablePeerAccess() for that device, and for no other:
 * each takes memory. */
int gpu_map(void **p, const unsigned char handle[GPU_HANDLE_LEN])
{
	cudaIpcMemHandle_t h;
	cudaError_t e;

	memcpy(&h, handle, sizeof(h));
	e = cudaIpcOpenMemHandle(p, h, cudaIpcMemLazyEnablePeerAccess);
	return e == cudaSuccess ? 0 : not_shared(e, "cudaIpcOpenMemHandle");
}

int gpu_unmap(void *p)
{
	GPU_TRY(cudaIpcCloseMemHandle, p);
	return 0;
}

int gpu_device_of(const void *p, unsigned char uuid[GPU_UUID_LEN])
{
	struct cudaPointerAttributes at;
	struct cudaDeviceProp d;

	GPU_TRY(cudaPointerGetAttributes, &at, p);
	GPU_TRY(cudaGetDeviceProperties, &d, at.device);
	memcpy(uuid, d.uuid.bytes, GPU_UUID_LEN);
	return 0;
}

/* The runtime does not know it, and leads to the driver, which does; declared
 * here, for there may be no driver to be linked with. */
typedef int address_range_fn(unsigned long long *base, size_t *n,
			     unsigned long long p);

#define DRIVER_API 12000 /* the version whose functions are meant */

int gpu_room_at(const void *p, size_t *n)
{
	unsigned long long at = (uintptr_t)p, base;
	enum cudaDriverEntryPointQueryResult found;
	address_range_fn *range;
	void *fn = NULL;
	size_t size;
	int e;

	GPU_TRY(cudaGetDriverEntryPointByVersion, "cuMemGetAddressRange", &fn,
		DRIVER_API, cudaEnableDefault, &found);
	if (!fn)
		return log_error(E_UNAVAIL, "the driver has no "
					    "cuMemGetAddressRange");
	memcpy(&range, &fn, sizeof(range));
	e = range(&base, &size, at);
	if (e != 0)
		return log_error(E_IO, "cuMemGetAddressRange: error %d", e);
	*n = size - (size_t)(at - base);
	return 0;
}

int gpu_host_alloc(void **p, size_t n, bool *is_pinned)
{
	*is_pinned = cudaHostAlloc(p, n, cudaHostAllocDefault) == cudaSuccess;
	if (*is_pinned)
		return 0;
	/* It is kept for the next call otherwise. */
	cudaGetLastError();
	*p = xcalloc(n, 1);
	return 0;
}

void gpu_host_free(void *p, bool is_pinned)
{
	if (is_pinned)
		cudaFreeHost(p);
	else
		free(p);
}

int gpu_stream_new(void **stream)
{
	cudaStream_t s;

	GPU_TRY(cudaStreamCreateWithFlags, &s, cudaStreamNonBlocking);
	*stream = s;
	return 0;
}

void gpu_stream_free(void *stream)
{
	if (!stream)
		return;
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
}

int gpu_stream_wait(void *stream)
{
	GPU_TRY(cudaStreamSynchronize, stream);
	return 0;
}

/* An event that is destroyed early lives until it has been reached. */
int gpu_stream_after(void *stream, void *other)
{
	cudaEvent_t e;
	cudaError_t rc;

	GPU_TRY(cudaEventCreateWithFlags, &e, cudaEventDisableTiming);
	rc = cudaEventRecord(e, other);
	if (rc == cudaSuccess)
		rc = cudaStreamWaitEvent(stream, e, 0);
	cudaEventDestroy(e);
	return rc == cudaSuccess ? 0 : failed(rc, "cudaStreamWaitEvent");
}

int gpu_copy(void *stream, void *to, const void *from, size_t n)
{
	GPU_TRY(cudaMemcpyAsync, to, from, n, cudaMemcpyDefault, stream);
	return 0;
}

static int no_code(cudaError_t e, const char *call)
{
	cudaGetLastError();
	return log_error(E_UNAVAIL, "%s: %s", call, cudaGetErrorString(e));
}

int gpu_code_load(void **code, const char *text)
{
	cudaLibrary_t lib;
	cudaError_t e =
		cudaLibraryLoadData(&lib, text, NULL, NULL, 0, NULL, NULL, 0);

	if (e != cudaSuccess)
		return no_code(e, "cudaLibraryLoadData");
	*code = lib;
	return 0;
}

void gpu_code_free(void *code)
{
	if (code)
		cudaLibraryUnload(code);
}

int gpu_function(void **fn, void *code, const char *name)
{
	cudaKernel_t k;
	cudaError_t e = cudaLibraryGetKernel(&k, code, name);

	if (e != cudaSuccess)
		return no_code(e, "cudaLibraryGetKernel");
	*fn = k;
	return 0;
}

int gpu_run(void *stream, void *fn, unsigned width, unsigned rows, void *arg)
{
	dim3 grid = { width, rows, 1 }, block = { GPU_THREADS, 1, 1 };

	GPU_TRY(cudaLaunchKernel, fn, grid, block, &arg, 0, stream);
	return 0;
}

int gpu_call(void *stream, void (*fn)(void *arg), void *arg)
{
	GPU_TRY(cudaLaunchHostFunc, stream, fn, arg);
	return 0;
}

int gpu_check(void *stream)
{
	cudaError_t e = cudaStreamQuery(stream);

	if (e == cudaSuccess || e == cudaErrorNotReady)
		return 0;
	return failed(e, "cudaStreamQuery");
}
