/* What leafsum.cu computes on a device, computed here from the same source. */
#include "tests/tap.h"

#include "common/buf.h"
#include "common/leafsum.h"

#include <stdlib.h>

#define BYTES ((size_t)DIGEST_LEAF)

static _Alignas(8) unsigned char secret[DIGEST_SECRET];

static void sums_agree(const unsigned char *p, const size_t *size, uint32_t n)
{
	struct leafsum_run *run = xcalloc(n, sizeof(*run));
	uint64_t *lane = xcalloc(n, LEAFSUM_LANES * sizeof(*lane));
	struct leafsum_work w = {
		.run = run, .secret = secret, .lane = lane, .n = n
	};
	uint64_t first = 0;

	for (uint32_t i = 0; i < n; i++) {
		run[i] = (struct leafsum_run){ p, size[i], first };
		first += leafsum_blocks(size[i]);
	}
	w.sum = xcalloc(first + 1, LEAFSUM_LANES * sizeof(*w.sum));
	for (uint32_t i = 0; i < n; i++)
		for (uint64_t t = LEAFSUM_LANES * leafsum_blocks(size[i]);
		     t-- > 0;)
			leafsum_sum(&w, i, t);
	for (uint64_t t = (uint64_t)n * LEAFSUM_LANES; t-- > 0;)
		leafsum_chain(&w, t);
	for (uint32_t i = 0; i < n; i++) {
		struct digest got, want;

		leafsum_end(lane + i * LEAFSUM_LANES, size[i], secret, &got);
		digest_of(p, size[i], &want);
		ok(digest_eq(&got, &want), "%zu bytes", size[i]);
	}
	free(w.sum);
	free(lane);
	free(run);
}

int main(void)
{
	static const size_t size[] = {
		LEAFSUM_MIN + 1,
		256,
		257,
		1023,
		1024,
		1025,
		1087,
		1088,
		1089,
		2048,
		2049,
		5000,
		65536,
		65537,
		1000003,
		BYTES - 1,
		BYTES,
	};
	unsigned char *p = aligned_alloc(64, BYTES);

	for (size_t i = 0; i < BYTES; i++)
		p[i] = (unsigned char)(i * 2654435761u >> 13);
	digest_secret(secret);
	sums_agree(p, size, sizeof(size) / sizeof(*size));
	free(p);
	return tap_done();
}
