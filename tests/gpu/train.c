/*
 * train.c - a trainer, for tests/gpu/run: what is in a file, on device 0.
 *
 *	train FILE.safetensors BYTES LIST.json
 *
 * The file's tensors are t.0000, t.0001 ... of so many bytes each.  They are
 * copied into one allocation, with room between them, and LIST says where they
 * are (common/devsource.h).  Then it says "ready", and holds them until stdin
 * ends.
 */
#include "common/buf.h"
#include "common/err.h"
#include "common/gpu.h"
#include "common/io.h"
#include "common/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GAP 512 /* bytes before each tensor */
#define FILE_MAX ((size_t)1 << 30)

struct train {
	struct gpu_device device;
	struct buf file;
	size_t n, bytes; /* tensors, and of each */
	void *memory, *stream;
	unsigned char handle[GPU_HANDLE_LEN];
};

static size_t place_of(const struct train *t, size_t i)
{
	return GAP + i * (t->bytes + GAP);
}

static int fill(struct train *t)
{
	const char *from = t->file.p + t->file.n - t->n * t->bytes;
	int rc = gpu_alloc(&t->memory, place_of(t, t->n));

	if (rc == 0)
		rc = gpu_share(t->memory, t->handle);
	if (rc == 0)
		rc = gpu_stream_new(&t->stream);
	for (size_t i = 0; i < t->n && rc == 0; i++)
		rc = gpu_copy(t->stream, (char *)t->memory + place_of(t, i),
			      from + i * t->bytes, t->bytes);
	return rc < 0 ? rc : gpu_stream_wait(t->stream);
}

static int list(const struct train *t, const char *path)
{
	char uuid[GPU_UUID_TEXT];
	FILE *f = fopen(path, "w");

	if (!f)
		return log_errno(E_IO, "%s", path);
	gpu_uuid_text(t->device.uuid, uuid);
	fprintf(f, "{\"format\": 1, \"tensors\": [");
	for (size_t i = 0; i < t->n; i++) {
		fprintf(f,
			"%s{\"name\": \"t.%04zu\", \"dtype\": \"U8\", "
			"\"shape\": [%zu], \"strides\": [1], \"bytes\": %zu, "
			"\"device\": \"%s\", \"offset\": %zu, \"handle\": \"",
			i ? ",\n" : "\n", i, t->bytes, t->bytes, uuid,
			place_of(t, i));
		for (size_t k = 0; k < GPU_HANDLE_LEN; k++)
			fprintf(f, "%02x", t->handle[k]);
		fprintf(f, "\"}");
	}
	fprintf(f, "]}\n");
	return fclose(f) == 0 ? 0 : log_errno(E_IO, "%s", path);
}

int main(int argc, char **argv)
{
	struct train t = { 0 };
	int rc;

	log_init("train", LOG_INFO);
	if (argc != 4)
		return err_exit_code(-E_USAGE);
	t.bytes = strtoull(argv[2], NULL, 10);
	rc = io_read_file(AT_FDCWD, argv[1], FILE_MAX, &t.file);
	if (rc >= 0 && t.bytes)
		t.n = t.file.n / t.bytes;
	if (rc >= 0)
		rc = gpu_open(0, &t.device);
	if (rc == 0)
		rc = fill(&t);
	if (rc == 0)
		rc = list(&t, argv[3]);
	if (rc < 0)
		return err_exit_code(rc);
	printf("ready\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	gpu_stream_free(t.stream);
	gpu_free(t.memory);
	buf_release(&t.file);
	return 0;
}
