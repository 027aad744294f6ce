/*
 * fuzz.h - what the fuzz targets share.
 *
 * One libFuzzer program holds all targets; FUZZ=NAME chooses one (see run).
 * A target reads its input through the module's own interface and aborts
 * (BUG_ON) where a promise of the module's header does not hold.  Inputs that
 * once broke something are in corpus/NAME, named after the fault.
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include "common/buf.h"
#include "common/log.h"

#define FUZZ_LIST(X)	\
	X(delta)	\
	X(deltapayload)	\
	X(devsource)	\
	X(engine)	\
	X(event)	\
	X(fdpass)	\
	X(fleet)	\
	X(handoff)	\
	X(index)	\
	X(json)		\
	X(mark)		\
	X(msg)		\
	X(offer)	\
	X(options)	\
	X(planfile)	\
	X(recfile)	\
	X(rundir)	\
	X(safetensors)	\
	X(tcpstore)	\
	X(values)

#define X(name) void fuzz_##name(struct slice in);
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
void fuzz_file(const char *name, struct slice bytes);

#endif
