#include "nccl.h"

#include "err.h"
#include "log.h"

#include <nccl.h>
#include <string.h>

_Static_assert(NCCL_ID_LEN == NCCL_UNIQUE_ID_BYTES, "an id is an id");

static int failed(ncclResult_t e, const char *call)
{
	return log_error(E_UNAVAIL, "%s: %s", call, ncclGetErrorString(e));
}

/* A group that does not block says "in progress" for what it has taken. */
static bool is_taken(ncclResult_t e)
{
	return e == ncclSuccess || e == ncclInProgress;
}

int nccl_version(uint32_t *code)
{
	int v = 0;
	ncclResult_t e = ncclGetVersion(&v);

	if (e != ncclSuccess)
		return failed(e, "ncclGetVersion");
	*code = (uint32_t)v;
	return 0;
}

int nccl_new_id(struct nccl_id *out)
{
	ncclUniqueId id;
	ncclResult_t e = ncclGetUniqueId(&id);

	if (e != ncclSuccess)
		return failed(e, "ncclGetUniqueId");
	memcpy(out->b, id.internal, NCCL_ID_LEN);
	return 0;
}

int nccl_begin(void **comm, const struct nccl_id *id, uint32_t rank,
	       uint32_t world)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	ncclUniqueId raw;
	ncclComm_t c = NULL;
	ncclResult_t e;

	config.blocking = 0;
	memcpy(raw.internal, id->b, NCCL_ID_LEN);
	e = ncclCommInitRankConfig(&c, (int)world, raw, (int)rank, &config);
	if (!is_taken(e))
		return failed(e, "ncclCommInitRankConfig");
	*comm = c;
	return 0;
}

int nccl_state(void *comm)
{
	ncclResult_t state = ncclSuccess;
	ncclResult_t e = ncclCommGetAsyncError(comm, &state);

	if (e != ncclSuccess)
		return failed(e, "ncclCommGetAsyncError");
	if (!is_taken(state))
		return failed(state, "NCCL");
	return state == ncclSuccess;
}

int nccl_broadcast(void *comm, void *memory, size_t n, void *stream)
{
	ncclResult_t e =
		ncclBroadcast(memory, memory, n, ncclUint8, 0, comm, stream);

	return is_taken(e) ? 0 : failed(e, "ncclBroadcast");
}

int nccl_sum_float(void *comm, void *memory, void *stream)
{
	ncclResult_t e = ncclAllReduce(memory, memory, 1, ncclFloat32, ncclSum,
				       comm, stream);

	return is_taken(e) ? 0 : failed(e, "ncclAllReduce");
}

void nccl_end(void *comm)
{
	ncclCommAbort(comm);
}
