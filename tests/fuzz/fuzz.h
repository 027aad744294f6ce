/*
 * fuzz.h - what the fuzz targets share.
 *
 * One libFuzzer program holds all targets; FUZZ=NAME chooses one (see run).
 * A target reads its input through the module's own interface and aborts
 * (BUG_ON) where a promise of the module's header does not hold.  That memory
 * is bounded by the input is such a promise, and counted for all of them.
 * Inputs that once broke something are in corpus/NAME, named after the fault.
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include "common/buf.h"
#include "common/log.h"

/* Its name, and the KiB that its parser may hold of its own.  Beside that it
 * may hold FUZZ_PER_BYTE bytes for each of the input's. */
#define FUZZ_LIST(X)		\
	X(delta, 2048)		\
	X(deltapayload, 18432)	\
	X(devsource, 2048)	\
	X(engine, 64)		\
	X(event, 64)		\
	X(fdpass, 256)		\
	X(fleet, 256)		\
	X(handoff, 64)		\
	X(index, 2048)		\
	X(json, 64)		\
	X(mark, 2048)		\
	X(msg, 64)		\
	X(offer, 256)		\
	X(options, 64)		\
	X(planfile, 2048)	\
	X(quant, 8192)		\
	X(recfile, 256)		\
	X(rundir, 256)		\
	X(safetensors, 2048)	\
	X(source, 4096)		\
	X(tcpstore, 64)		\
	X(values, 64)
#define FUZZ_PER_BYTE 64

#define X(name, own) void fuzz_##name(struct slice in);
FUZZ_LIST(X)
#undef X

/* The next n bytes of in, or what is left. */
static inline struct slice fuzz_take(struct slice *in, size_t n)
{
	struct slice got = { in->p, n < in->n ? n : in->n };

	in->p += got.n;
	in->n -= got.n;
	return got;
}

/* n bytes as a number, little endian; 0 past the end. */
static inline uint64_t fuzz_number(struct slice *in, size_t n)
{
	struct slice s = fuzz_take(in, n);
	uint64_t v = 0;

	for (size_t i = 0; i < s.n; i++)
		v |= (uint64_t)(unsigned char)s.p[i] << 8 * i;
	return v;
}

/* A part of in with two bytes of length before it. */
static inline struct slice fuzz_part(struct slice *in)
{
	return fuzz_take(in, (size_t)fuzz_number(in, 2));
}

/* Files of these bytes, below a directory of ours. */
int fuzz_dir(void);
const char *fuzz_path(void);	/* its path */
void fuzz_drop(const char *name);
void fuzz_file(const char *name, struct slice bytes);

#endif
