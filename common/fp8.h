/*
 * fp8.h - BF16, F16 or F32 numbers to F8_E4M3 with a scale for each block.
 *
 * F8_E4M3 is the OCP FP8 format: sign, 4 bits of exponent (bias 7), 3 of
 * mantissa; subnormals are multiples of 2^-9, the largest number is 448,
 * there is no infinity.  A block is FP8_BLOCK x FP8_BLOCK elements of a matrix,
 * cut off at its edges, and has one F32 scale:
 *
 *	scale = largest |x| of the block / 448		(F32 division)
 *	code  = x / scale as F8_E4M3			(F32 division; to the
 *		nearest, ties to even; never above 448; -0 stays -0)
 *
 * so that code * scale is x again, as nearly as it can be.  A block of zeros
 * has scale 1.  No scale is below the smallest normal F32: processors that
 * flush smaller ones to zero would lose the block.
 *
 * Rounding is done with integers and one addition, in the default rounding
 * mode: all kernels give the same bits.  NaN and infinity are refused: their
 * scale would spoil 16384 weights.  Pure; any alignment.
 */
#ifndef WEIR_FP8_H
#define WEIR_FP8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP8_BLOCK 128u
#define FP8_MAX 448.0f

enum fp8_from { FP8_FROM_BF16, FP8_FROM_F16, FP8_FROM_F32, FP8_NFROM };

/* Elements of a matrix and the place of their codes, row by row. */
struct fp8_part {
	enum fp8_from from;
	const void *src;
	uint8_t *dst;
	size_t src_step, dst_step;	/* bytes from row to row */
	size_t rows, cols;
};

size_t fp8_size(enum fp8_from from);	/* bytes of one element */
/* Blocks in n elements of one direction. */
uint64_t fp8_blocks(uint64_t n);

/* A part of at most FP8_BLOCK rows, any columns, that begins on a block's
 * edge: its codes, and fp8_blocks(cols) scales.  -E_DATA, unlogged, if one of
 * them is no finite number; what was written is worthless then. */
int fp8_convert(const struct fp8_part *p, float *scale);
/* The first element of the part that is not finite, by rows; false: none. */
bool fp8_find_bad(const struct fp8_part *p, size_t *row, size_t *col);

#endif
