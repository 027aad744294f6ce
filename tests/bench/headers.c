/*
 * headers.c - checks safetensors headers and keeps nothing: the reference of
 * `make bench` plan.
 *
 *	headers DIR
 *
 * Every header of DIR goes through the strict JSON reader that weir has too.
 * The listener checks that each tensor's dtype is known, that its bytes follow
 * those of the tensor before it and are as many as its shape says, and that
 * the last end where the file does.
 */
#include "common/buf.h"
#include "common/err.h"
#include "common/io.h"
#include "common/jsonsax.h"
#include "common/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK (1u << 16)
#define STRING_MAX 4096 /* bytes of a name */

/* The tensor being read. */
struct checked {
	unsigned depth;
	bool in_shape;
	enum st_dtype dtype;
	uint64_t elements, offset[2], end;
	unsigned noffsets;
};

static int end_tensor(struct checked *c)
{
	uint64_t bits = c->dtype < ST_NDTYPES ? st_dtype_bits(c->dtype) : 0;

	if (!bits || c->noffsets != 2 || c->offset[0] != c->end ||
	    c->offset[1] - c->offset[0] != c->elements * bits / 8)
		return -E_DATA;
	c->end = c->offset[1];
	return 0;
}

static int on_number(struct checked *c, struct slice text)
{
	uint64_t v;

	if (json_uint(text, ST_BYTES_MAX, &v) < 0 || c->noffsets == 2)
		return -E_DATA;
	if (c->in_shape)
		c->elements *= v;
	else
		c->offset[c->noffsets++] = v;
	return 0;
}

static int on_event(void *ctx, enum json_event ev, struct slice text)
{
	struct checked *c = ctx;

	switch (ev) {
	case JSON_OBJECT:
		c->elements = 1;
		c->noffsets = 0;
		c->dtype = ST_NDTYPES;
		c->depth++;
		return 0;
	case JSON_OBJECT_END:
		return --c->depth == 1 ? end_tensor(c) : 0;
	case JSON_KEY:
		c->in_shape = text.n && text.p[0] == 's';
		return 0;
	case JSON_STRING:
		c->dtype = st_dtype_of(text);
		return 0;
	case JSON_NUMBER:
		return on_number(c, text);
	default:
		return 0;
	}
}

static int read_header(int fd)
{
	static unsigned char chunk[CHUNK];
	unsigned char prefix[8];
	struct checked c = { 0 };
	uint64_t header = 0, left;
	struct json j;
	int rc = io_read_full(fd, prefix, sizeof prefix);

	for (int i = 7; i >= 0; i--)
		header = header << 8 | prefix[i];
	json_begin(&j, STRING_MAX, on_event, &c);
	for (left = header; rc >= 0 && left; left -= (uint64_t)rc) {
		rc = io_read_full(fd, chunk, left < CHUNK ? left : CHUNK);
		if (rc <= 0 || json_feed(&j, chunk, (size_t)rc) < 0)
			rc = -E_DATA;
	}
	if (rc >= 0)
		rc = json_end(&j);
	json_release(&j);
	if (rc == 0 &&
	    lseek(fd, 0, SEEK_END) != (off_t)(sizeof prefix + header + c.end))
		rc = -E_DATA;
	return rc;
}

static bool is_shard(const char *name)
{
	size_t n = strlen(name);

	return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

int main(int argc, char **argv)
{
	DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
	struct dirent *e;

	if (!dir) {
		fprintf(stderr, "usage: headers DIR\n");
		return 64;
	}
	while ((e = readdir(dir))) {
		int fd = is_shard(e->d_name) ? openat(dirfd(dir), e->d_name,
						      O_RDONLY | O_CLOEXEC)
					     : -1;

		if (fd < 0)
			continue;
		if (read_header(fd) < 0) {
			fprintf(stderr, "headers: %s\n", e->d_name);
			return 65;
		}
		close(fd);
	}
	closedir(dir);
	return 0;
}
