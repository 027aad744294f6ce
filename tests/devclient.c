/*
 * devclient.c - a consumer of device slots that does as it is told.
 *
 *	devclient STORE [DEVICE], then lines on stdin:
 *	map	wait MS		change MS	dump FILE	copy
 *	release	live		fork
 *
 * Each line is answered by one: "ok ...", or "no ..." with the reason.  dump
 * writes "NAME DTYPE DIMS BYTES" and the bytes of each tensor, in name order;
 * copy copies the first one on the device and says how fast, in GB/s; fork
 * leaves a child that has all descriptors and does nothing.
 */
#include "share/client/weir-client.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static struct weir_client *c;
static struct weir_view *v;
static uint32_t word;

static void answer(int rc, unsigned long long n)
{
	if (rc < 0)
		printf("no %s\n", weir_error(c));
	else
		printf("ok %llu\n", n);
	fflush(stdout);
}

static int dump_tensor(FILE *f, const struct weir_tensor *t)
{
	char *p = malloc(t->bytes + 1);
	cudaError_t e = cudaMemcpy(p, t->data, t->bytes, cudaMemcpyDefault);

	fprintf(f, "%s %s", t->name, t->dtype);
	for (uint32_t i = 0; i < t->dims; i++)
		fprintf(f, " %llu", (unsigned long long)t->shape[i]);
	fprintf(f, " %llu\n", (unsigned long long)t->bytes);
	fwrite(p, 1, t->bytes, f);
	free(p);
	return e == cudaSuccess && weir_find(v, t->name) == t ? 0 : -1;
}

static int dump(const char *path)
{
	FILE *f = fopen(path, "w");
	int rc = f ? 0 : -1;

	for (size_t i = 0; i < v->ntensors && rc == 0; i++)
		rc = dump_tensor(f, &v->tensor[i]);
	return f && fclose(f) == 0 ? rc : -1;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void copy(void)
{
	const struct weir_tensor *t = v->tensor;
	double best = 0;
	void *to = NULL;
	cudaError_t e = cudaMalloc(&to, t->bytes);

	for (int i = 0; i < 5 && e == cudaSuccess; i++) {
		double start = seconds(), rate;

		e = cudaMemcpy(to, t->data, t->bytes, cudaMemcpyDefault);
		if (e == cudaSuccess)
			e = cudaDeviceSynchronize();
		rate = (double)t->bytes / (seconds() - start) / 1e9;
		best = rate > best ? rate : best;
	}
	cudaFree(to);
	if (e == cudaSuccess)
		printf("ok copied %.2f\n", best);
	else
		printf("no %s\n", cudaGetErrorString(e));
	fflush(stdout);
}

static int map(void)
{
	int rc = weir_map(c, &v);

	if (rc == 0)
		word = v->word;
	return rc;
}

static int fork_child(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid < 0 ? -1 : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static void obey(char *line)
{
	if (strcmp(line, "map") == 0) {
		int rc = map();

		answer(rc, rc < 0 ? 0 : v->version);
	} else if (strncmp(line, "wait ", 5) == 0) {
		int rc = weir_wait(c, word, atoi(line + 5));

		answer(rc, rc < 0 ? 0 : weir_version(c));
	} else if (strncmp(line, "change ", 7) == 0) {
		answer(weir_wait_change(c, word, atoi(line + 7)), 0);
	} else if (strncmp(line, "dump ", 5) == 0) {
		answer(dump(line + 5), v->ntensors);
	} else if (strcmp(line, "copy") == 0) {
		copy();
	} else if (strcmp(line, "release") == 0) {
		weir_release(v);
		v = NULL;
		answer(0, 0);
	} else if (strcmp(line, "live") == 0) {
		answer(0, (unsigned)weir_is_live(c));
	} else if (strcmp(line, "fork") == 0) {
		answer(fork_child(), 0);
	}
}

int main(int argc, char **argv)
{
	char line[4096];
	int rc = argc < 2 ? -1
			  : weir_open(&c, argv[1],
				      argc > 2 ? atoi(argv[2]) : -1);

	answer(rc, 0);
	while (rc == 0 && fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		obey(line);
	}
	weir_release(v);
	weir_close(c);
	return rc < 0;
}
