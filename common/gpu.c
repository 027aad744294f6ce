#include "gpu.h"

#include "buf.h"
#include "err.h"
#include "log.h"

#include <assert.h>
#include <cuda_runtime_api.h>
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

int gpu_share(void *p, unsigned char handle[GPU_HANDLE_LEN])
{
	cudaIpcMemHandle_t h;
	cudaError_t e = cudaIpcGetMemHandle(&h, p);

	if (e != cudaSuccess)
		return log_error(
			E_UNAVAIL,
			"cudaIpcGetMemHandle: %s: device memory cannot "
			"be shared here (WSL2, MIG, a container "
			"without the host's IPC and PID namespaces, or "
			"ptrace_scope may be why)",
			cudaGetErrorString(e));
	static_assert(sizeof(h) == GPU_HANDLE_LEN, "a handle is as long");
	memcpy(handle, &h, sizeof(h));
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
