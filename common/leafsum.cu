/* leafsum.cu - leafsum.h on a device: first all sums, then all chains. */
#include "leafsum.h"

/* A row of the grid for each run. */
extern "C" __global__ void leafsum_sums(struct leafsum_work w)
{
	uint64_t n = LEAFSUM_LANES * leafsum_blocks(w.run[blockIdx.y].n);
	uint64_t t = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (; t < n; t += (uint64_t)gridDim.x * blockDim.x)
		leafsum_sum(&w, blockIdx.y, t);
}

extern "C" __global__ void leafsum_chains(struct leafsum_work w)
{
	uint64_t t = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (t < (uint64_t)w.n * LEAFSUM_LANES)
		leafsum_chain(&w, t);
}
