/*
 * consumer.c - an engine process that uses weir-engine's weights in place.
 *
 *	cc consumer.c -lweir-client -lcudart -o consumer
 *	consumer STORE [VERSIONS]
 *
 * For each version, so many of them (for ever): maps it, says what is in it,
 * shows the first bytes of its first tensor, and lets it go when the next one
 * has been published or its weir-engine has ended.
 */
#include <weir-client.h>

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const struct weir_client *c)
{
	fprintf(stderr, "consumer: %s\n", weir_error(c));
	return 1;
}

/* Here a real engine would set its model's pointers and serve. */
static void use(const struct weir_view *v)
{
	const struct weir_tensor *t = v->tensor;
	unsigned char first[4] = { 0 };

	printf("version %llu: %zu tensors on device %d\n",
	       (unsigned long long)v->version, v->ntensors, v->device);
	if (v->ntensors > 0 && t->bytes >= sizeof(first) &&
	    cudaMemcpy(first, t->data, sizeof(first), cudaMemcpyDefault) ==
		    cudaSuccess)
		printf("%s, %s: %02x%02x%02x%02x...\n", t->name, t->dtype,
		       first[0], first[1], first[2], first[3]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	long left = argc > 2 ? atol(argv[2]) : -1;
	struct weir_client *c = NULL;
	struct weir_view *v;
	uint32_t word = 0;
	int rc;

	if (argc < 2 || weir_open(&c, argv[1], -1) < 0)
		return fail(c);
	while (left != 0) {
		while (weir_wait(c, word, 1000) < 0)
			;
		rc = weir_map(c, &v);
		if (rc == -EAGAIN)
			continue;
		if (rc < 0)
			return fail(c);
		use(v);
		word = v->word;
		if (--left != 0)
			weir_wait_change(c, word, -1);
		weir_release(v);
	}
	weir_close(c);
	return 0;
}
