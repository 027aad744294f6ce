/*
 * consumer.c - an engine process that uses weir-engine's weights in place.
 *
 *	cc consumer.c -lweir-client -lcudart -o consumer
 *	consumer STORE [VERSIONS]
 *
 * Shows the first bytes of each version, of so many of them (for ever).
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
	unsigned first = 0;

	printf("version %llu: %zu tensors on device %d\n",
	       (unsigned long long)v->version, v->ntensors, v->device);
	if (v->ntensors > 0 && t->bytes >= sizeof(first) &&
	    !cudaMemcpy(&first, t->data, sizeof(first), cudaMemcpyDefault))
		printf("%s, %s: %08x...\n", t->name, t->dtype, first);
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
	while (left-- != 0) {
		do
			weir_wait(c, word, -1);
		while ((rc = weir_map(c, &v)) == -EAGAIN);
		if (rc < 0)
			return fail(c);
		use(v);
		word = v->word;
		if (left != 0)
			weir_wait_change(c, word, -1);
		weir_release(v);
	}
	weir_close(c);
	return 0;
}
