/*
 * srcdump DIR: what source_open() reads, one line an item, for input.bats.
 * srcdump --fleet FILE: what fleet_read() reads.
 * srcdump --wait DIR: waits for a line on stdin, then opens each file again.
 */
#include "common/err.h"
#include "common/fleet.h"
#include "common/log.h"
#include "common/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const head_name[] = {
	[SOURCE_HEAD_UNKNOWN] = "unknown",
	[SOURCE_HEAD_SENT] = "sent",
	[SOURCE_HEAD_TIED] = "tied",
};

static void dump_tensors(const struct source *s)
{
	struct source_iter it = { .s = s };
	struct source_tensor t;

	while (source_next(&it, &t)) {
		printf("tensor %.*s %s [", SLICE_ARG(t.name),
		       st_dtype_name(t.dtype));
		for (unsigned i = 0; i < t.ndims; i++)
			printf("%s%llu", i ? "," : "",
			       (unsigned long long)t.shape[i]);
		printf("] %s %llu %llu\n", s->file[t.file].path,
		       (unsigned long long)t.offset,
		       (unsigned long long)t.bytes);
	}
}

static void dump(const struct source *s)
{
	char hex[DIGEST_HEX];

	for (uint32_t i = 0; i < s->nfiles; i++)
		printf("file %s %s %llu\n", s->file[i].path,
		       s->file[i].kind == SOURCE_SHARD ? "shard" : "carried",
		       (unsigned long long)s->file[i].id.size);
	dump_tensors(s);
	printf("ignored %u\nhead %s\nbytes %llu\nstructure %s\n", s->nignored,
	       head_name[s->head], (unsigned long long)s->bytes,
	       digest_hex(&s->structure, hex));
}

/* Anonymous memory of this process at its peak, in bytes a tensor. */
static void dump_memory(const struct source *s)
{
	char line[128];
	long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	if (f)
		fclose(f);
	printf("memory %llu\n", (unsigned long long)kib * 1024 / s->ntensors);
}

static int reopen(const struct source *s)
{
	puts("open");
	fflush(stdout);
	getchar();
	for (uint32_t i = 0; i < s->nfiles; i++) {
		int fd = source_open_file(s, i);

		if (fd < 0)
			return fd;
		close(fd);
	}
	return 0;
}

static int dump_fleet(const char *path)
{
	struct fleet f;
	int rc = fleet_read(&f, path);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < f.n; i++)
		printf("engine %s %s %u\n", f.engine[i].name,
		       fleet_kind_name(f.engine[i].kind), f.engine[i].nworkers);
	fleet_release(&f);
	return 0;
}

static int dump_source(const char *what, const char *path)
{
	struct source s;
	int rc = source_open(&s, path);

	if (rc < 0)
		return rc;
	if (strcmp(what, "--wait") == 0)
		rc = reopen(&s);
	else if (strcmp(what, "--memory") == 0)
		dump_memory(&s);
	else
		dump(&s);
	source_release(&s);
	return rc;
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	log_init("srcdump", LOG_INFO);
	if (argc < 2)
		return 64;
	if (strcmp(what, "--fleet") == 0)
		return err_exit_code(dump_fleet(argv[2]));
	return err_exit_code(dump_source(what, argv[argc - 1]));
}
