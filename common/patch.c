#include "patch.h"
#include "err.h"
#include "lane.h"

#include <string.h>

#define VARINT_MAX 10u

static const char *const names[] = {
	[PATCH_XOR] = "xor",
	[PATCH_OVERWRITE] = "overwrite",
	[PATCH_SPARSE] = "sparse",
};
_Static_assert(COUNT(names) == PATCH_NKINDS, "name every kind");

const char *patch_name(enum patch_kind k)
{
	return names[k];
}

enum patch_kind patch_of(struct slice name)
{
	enum patch_kind k = 0;

	while (k < PATCH_NKINDS && !slice_eq(name, slice_of(names[k])))
		k++;
	return k;
}

static void store32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* The first line from i on that differs; n if less than a line is left. */
static size_t skip_same(const uint8_t *a, const uint8_t *b, size_t i, size_t n)
{
	while (n - i >= LINE && line_is_same(a + i, b + i))
		i += LINE;
	return i;
}

bool patch_is_same(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n) == 0;
}

void patch_xor(void *dst, const void *a, const void *b, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *x = a, *y = b;
	size_t i = 0;

	for (; n - i >= LANE; i += LANE)
		lane_put(d + i, lane_at(x + i) ^ lane_at(y + i));
	for (; i < n; i++)
		d[i] = x[i] ^ y[i];
}

bool patch_xor_into(void *dst, const void *diff, size_t n)
{
	uint8_t *d = dst, rest = 0;
	const uint8_t *x = diff;
	lane some = { 0 };
	size_t i = 0;

	/* Zeros as well: what a wrong guess costs is more. */
	for (; n - i >= LANE; i += LANE) {
		lane v = lane_at(x + i);

		lane_put(d + i, lane_at(d + i) ^ v);
		some |= v;
	}
	for (; i < n; i++) {
		d[i] ^= x[i];
		rest |= x[i];
	}
	return rest != 0 || !lane_is_zero(some);
}

/* ---- overwrite ---- */

size_t patch_points(const void *a, const void *b, size_t n, uint32_t base,
		    uint8_t *pos, uint8_t *value)
{
	const uint8_t *x = a, *y = b;
	size_t i = skip_same(x, y, 0, n), count = 0;

	for (; n - i >= LINE; i = skip_same(x, y, i + LINE, n))
		for (uint64_t m = line_differs(x + i, y + i); m; m &= m - 1) {
			size_t k = i + (size_t)__builtin_ctzll(m);

			store32(pos + 4 * count, base + (uint32_t)k);
			value[count++] = y[k];
		}
	for (; i < n; i++) {
		if (x[i] == y[i])
			continue;
		store32(pos + 4 * count, base + (uint32_t)i);
		value[count++] = y[i];
	}
	return count;
}

/* ---- sparse ---- */

unsigned sparse_element(unsigned dtype_bits)
{
	return dtype_bits < 16 ? 1 : dtype_bits / 8;
}

void sparse_begin(struct sparse_out *s, unsigned element, struct buf *out)
{
	uint8_t head[SPARSE_HEAD] = { 'W', 'S', 'P', '1', (uint8_t)element };

	*s = (struct sparse_out){ .out = out, .head = out->n, .size = element };
	buf_add(out, head, sizeof head);
}

void sparse_skip(struct sparse_out *s, uint64_t n)
{
	s->at += n / s->size;
}

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

/* A bit for the first byte of each element of which some bit of m is set. */
static inline uint64_t first_bytes(uint64_t m, unsigned size)
{
	uint64_t one = UINT64_MAX / ((UINT64_C(1) << size) - 1);

	for (unsigned k = 1; k < size; k *= 2)
		m |= m >> k;
	return m & one;
}

/* The changed elements of one line.  size is a constant where this is
 * inlined. */
static inline uint8_t *put_line(struct sparse_out *s, uint8_t *o,
				const uint8_t *a, const uint8_t *b,
				unsigned size)
{
	uint64_t m = first_bytes(line_differs(a, b), size);
	uint64_t last = s->last, n = 0;

	for (; m; m &= m - 1) {
		unsigned k = (unsigned)__builtin_ctzll(m);
		uint64_t at = s->at + k / size;

		o = put_varint(o, at - last);
		memcpy(o, b + k, size);
		o += size;
		last = at + 1;
		n++;
	}
	s->last = last;
	s->n += n;
	s->at += LINE / size;
	return o;
}

static inline uint8_t *put_piece(struct sparse_out *s, uint8_t *o,
				 const uint8_t *a, const uint8_t *b, size_t n,
				 unsigned size)
{
	uint8_t x[LINE] = { 0 }, y[LINE] = { 0 };
	size_t i = 0;

	for (;;) {
		size_t same = skip_same(a, b, i, n);

		s->at += (same - i) / size;
		i = same;
		if (n - i < LINE)
			break;
		o = put_line(s, o, a + i, b + i, size);
		i += LINE;
	}
	memcpy(x, a + i, n - i);
	memcpy(y, b + i, n - i);
	o = put_line(s, o, x, y, size);
	s->at -= (LINE - (n - i)) / size;
	return o;
}

void sparse_add(struct sparse_out *s, const void *a, const void *b, size_t n)
{
	/* A gap of several bytes stands for elements that take none. */
	size_t room = n / s->size * (s->size + 1) + VARINT_MAX;
	uint8_t *start = (uint8_t *)buf_reserve(s->out, room), *o;

	switch (s->size) {
	case 1:
		o = put_piece(s, start, a, b, n, 1);
		break;
	case 2:
		o = put_piece(s, start, a, b, n, 2);
		break;
	case 4:
		o = put_piece(s, start, a, b, n, 4);
		break;
	default:
		o = put_piece(s, start, a, b, n, 8);
		break;
	}
	s->out->n += (size_t)(o - start);
}

void sparse_finish(struct sparse_out *s)
{
	uint8_t *n = (uint8_t *)s->out->p + s->head + 8;

	store32(n, (uint32_t)s->n);
	store32(n + 4, (uint32_t)(s->n >> 32));
}

uint64_t sparse_bound(unsigned element, uint64_t bytes)
{
	uint64_t n = bytes / element;

	return SPARSE_HEAD + bytes + n + VARINT_MAX;
}

static int get_long_varint(struct sparse_in *s, uint64_t *out)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64 && s->p < s->end; shift += 7) {
		uint8_t c = *s->p++;

		v |= (uint64_t)(c & 0x7f) << shift;
		if (c & 0x80)
			continue;
		if ((c == 0 && shift > 0) || (shift == 63 && c > 1))
			return -E_DATA;
		*out = v;
		return 0;
	}
	return -E_DATA;
}

static inline int get_varint(struct sparse_in *s, uint64_t *out)
{
	if (s->p == s->end || *s->p & 0x80)
		return get_long_varint(s, out);
	*out = *s->p++;
	return 0;
}

/* To the change that comes next, from element at on. */
static inline int advance(struct sparse_in *s, uint64_t at, unsigned size)
{
	uint64_t gap;

	if (s->left == 0) {
		s->next = s->elements;
		return 0;
	}
	if (get_varint(s, &gap) < 0 || gap >= s->elements - at ||
	    (size_t)(s->end - s->p) < size)
		return -E_DATA;
	s->next = at + gap;
	return 0;
}

int sparse_open(struct sparse_in *s, struct slice payload, unsigned element,
		uint64_t bytes)
{
	const uint8_t *p = (const uint8_t *)payload.p;
	uint8_t want[8] = { 'W', 'S', 'P', '1', (uint8_t)element };

	if (payload.n < SPARSE_HEAD || memcmp(p, want, sizeof want) != 0)
		return -E_DATA;
	*s = (struct sparse_in){
		.p = p + SPARSE_HEAD,
		.end = p + payload.n,
		.size = element,
		.elements = bytes / element,
	};
	for (int i = 7; i >= 0; i--)
		s->left = s->left << 8 | p[8 + i];
	if (s->left > s->elements || bytes % element)
		return -E_DATA;
	return advance(s, 0, element);
}

/* As put_line(): size is a constant where this is inlined. */
static inline int apply(struct sparse_in *s, uint8_t *b, uint64_t off, size_t n,
			unsigned size)
{
	uint64_t first = off / size, end = first + n / size;
	struct sparse_in in = *s; /* which b cannot point into */
	int rc = 0;

	while (rc == 0 && in.next < end) {
		memcpy(b + (in.next - first) * size, in.p, size);
		in.p += size;
		in.left--;
		rc = advance(&in, in.next + 1, size);
	}
	rc = rc < 0 ? rc : in.left < s->left;
	*s = in;
	return rc;
}

int sparse_apply(struct sparse_in *s, void *piece, uint64_t off, size_t n)
{
	switch (s->size) {
	case 1:
		return apply(s, piece, off, n, 1);
	case 2:
		return apply(s, piece, off, n, 2);
	case 4:
		return apply(s, piece, off, n, 4);
	default:
		return apply(s, piece, off, n, 8);
	}
}

int sparse_close(const struct sparse_in *s)
{
	return s->left == 0 && s->p == s->end ? 0 : -E_DATA;
}
