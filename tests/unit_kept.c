/* kept.h: a group is used again by exactly those who have been in it. */
#include "pipes/kept.h"

#include "tests/tap.h"

#include <string.h>

#define MOVERS 4

static struct kept mover[MOVERS];

/* Mover who is that rank of the group with the token. */
static void has(uint32_t who, unsigned char token, uint32_t rank,
		uint32_t world)
{
	struct m_kept all[8];
	uint32_t n = mover[who].n;

	if (n > 0)
		memcpy(all, mover[who].v, n * sizeof(*all));
	all[n] = (struct m_kept){ .rank = rank, .world = world };
	all[n].token.b[0] = token;
	kept_set(&mover[who], all, n + 1);
}

static void nobody_has_any(void)
{
	for (uint32_t i = 0; i < MOVERS; i++)
		kept_release(&mover[i]);
}

/* The token of the group of mover 0 and the two others; 0: there is none. */
static int token_of(uint32_t one, uint32_t two)
{
	const struct kept *other[] = { &mover[one], &mover[two] };
	struct digest token;

	return kept_take(&mover[0], other, 2, &token) ? token.b[0] : 0;
}

/* Group 7: mover 0, and as ranks 1 and 2 movers 1 and 2. */
static void one_group(void)
{
	nobody_has_any();
	has(0, 7, 0, 3);
	has(1, 7, 1, 3);
	has(2, 7, 2, 3);
}

static void of_the_same(void)
{
	one_group();
	eq_u64((uint64_t)token_of(1, 2), 7, "the same members: their group");
	eq_u64((uint64_t)token_of(1, 2), 0, "once");
	has(0, 8, 0, 3);
	has(1, 8, 1, 3);
	has(2, 8, 2, 3);
	eq_u64((uint64_t)token_of(1, 2), 8, "of several the one that all have");
	has(0, 9, 0, 3);
	has(1, 9, 1, 3);
	eq_u64((uint64_t)token_of(1, 2), 0, "none that a member has lost");
}

static void of_others(void)
{
	const struct kept *one[] = { &mover[1] };
	struct digest token;

	one_group();
	eq_u64((uint64_t)token_of(2, 1), 0, "not in another order");
	eq_u64((uint64_t)token_of(1, 3), 0, "not with another member");
	ok(!kept_take(&mover[0], one, 1, &token), "not with a member less");
	ok(!kept_take(&mover[3], one, 1, &token), "not without rank 0");
	eq_u64((uint64_t)token_of(1, 2), 7, "and it is there still");
}

static void of_liars(void)
{
	one_group();
	kept_release(&mover[2]);
	has(2, 8, 2, 3);
	eq_u64((uint64_t)token_of(1, 2), 0, "another token");
	kept_release(&mover[2]);
	has(2, 7, 1, 3);
	eq_u64((uint64_t)token_of(1, 2), 0, "another's rank");
	kept_release(&mover[2]);
	has(2, 7, 2, 4);
	eq_u64((uint64_t)token_of(1, 2), 0, "another size");
	kept_release(&mover[0]);
	has(0, 7, 1, 3);
	kept_release(&mover[2]);
	has(2, 7, 2, 3);
	eq_u64((uint64_t)token_of(1, 2), 0, "a source that was no rank 0");
}

int main(void)
{
	of_the_same();
	of_others();
	of_liars();
	nobody_has_any();
	return tap_done();
}
