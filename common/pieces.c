#include "pieces.h"
#include "copy.h"
#include "err.h"

#include <errno.h>
#include <unistd.h>

enum { SRC = 1, DST = 2 }; /* what guard_run() says about our two ranges */

struct step {
	const char *from;
	char *to; /* NULL: only hash */
	size_t n;
	struct digest_state *state;
};

static void step_run(void *arg)
{
	const struct step *s = arg;

	if (s->to)
		copy_hash(s->to, s->from, s->n, s->state);
	else
		digest_add(s->state, s->from, s->n);
}

static int step_guarded(const struct window *src, const struct slotfile *dst,
			struct step *s)
{
	struct guard_range range[] = {
		window_range(src),
		dst ? slotfile_range(dst) : (struct guard_range){ NULL, 0 },
	};

	switch (guard_run(range, 2, step_run, s)) {
	case SRC:
		return -E_DATA;
	case DST:
		return -E_IO;
	default:
		return 0;
	}
}

/* The kernel reads a mapped source here and answers EFAULT where we would
 * get SIGBUS. */
static int write_out(int fd, const char *p, size_t n, uint64_t off)
{
	while (n > 0) {
		ssize_t put = pwrite(fd, p, n, (off_t)off);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return errno == EFAULT ? -E_DATA : -E_IO;
		p += put;
		off += (uint64_t)put;
		n -= (size_t)put;
	}
	return 0;
}

/* Does at most n bytes at off; returns how many. */
static int64_t step(struct window *src, struct slotfile *dst, uint64_t off,
		    size_t n, struct digest_state *state)
{
	struct step s = { .state = state };
	int rc = window_get(src, off, n, &s.from, &s.n);

	if (rc < 0)
		return rc;
	if (dst && dst->map)
		s.to = dst->map + off;
	rc = step_guarded(src, dst, &s);
	if (rc == 0 && dst && !dst->map)
		rc = write_out(dst->fd, s.from, s.n, off);
	return rc < 0 ? rc : (int64_t)s.n;
}

static bool is_set(const atomic_bool *cancel)
{
	return cancel && atomic_load_explicit(cancel, memory_order_relaxed);
}

static int one_leaf(struct window *src, struct slotfile *dst,
		    const struct piece *p, struct digest *leaf,
		    const atomic_bool *cancel)
{
	struct digest_state state;
	uint64_t done = 0;

	digest_begin(&state);
	while (done < p->bytes) {
		uint64_t left = p->bytes - done;
		int64_t n;

		if (is_set(cancel))
			return -E_AGAIN;
		n = step(src, dst, p->offset + done,
			 left < PIECE_STEP ? (size_t)left : PIECE_STEP, &state);
		if (n < 0)
			return (int)n;
		done += (uint64_t)n;
	}
	digest_end(&state, leaf);
	return 0;
}

uint64_t piece_leaves(const struct piece *p)
{
	return p->bytes / DIGEST_LEAF + (p->bytes % DIGEST_LEAF != 0);
}

struct piece piece_cut(struct piece *rest, uint64_t room)
{
	uint64_t leaves = room / DIGEST_LEAF + (room % DIGEST_LEAF != 0);
	struct piece head = *rest;

	if (head.bytes > leaves * DIGEST_LEAF)
		head.bytes = leaves * DIGEST_LEAF;
	rest->offset += head.bytes;
	rest->bytes -= head.bytes;
	return head;
}

static int run(struct window *src, struct slotfile *dst, const struct piece *p,
	       struct digest *leaf, const atomic_bool *cancel)
{
	for (uint64_t done = 0; done < p->bytes; done += DIGEST_LEAF, leaf++) {
		struct piece part = *p;
		int rc;

		part.offset += done;
		part.bytes -= done;
		if (part.bytes > DIGEST_LEAF)
			part.bytes = DIGEST_LEAF;
		rc = one_leaf(src, dst, &part, leaf, cancel);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int piece_copy(struct window *src, struct slotfile *dst, const struct piece *p,
	       struct digest *leaf, const atomic_bool *cancel)
{
	if (p->offset > dst->size || p->bytes > dst->size - p->offset)
		return -E_IO;
	return run(src, dst, p, leaf, cancel);
}

int piece_hash(struct window *src, const struct piece *p, struct digest *leaf,
	       const atomic_bool *cancel)
{
	return run(src, NULL, p, leaf, cancel);
}

void leaves_digest(const struct digest *leaf, size_t n, struct digest *out)
{
	digest_of(leaf, n * sizeof *leaf, out);
}
