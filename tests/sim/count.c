#include "count.h"

#include "common/fsm.h"
#include "rows.h"
#include "world.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct counts counts;

int __real_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event);
int __wrap_fsm_step(const struct fsm_table *t, uint8_t *state, void *machine,
		    uint8_t on, const void *event)
{
	uint8_t from = *state;
	int row = __real_fsm_step(t, state, machine, on, event);

	if (row >= 0 && t->edges[row].to != from)
		world_entered(t, t->edges[row].to);

	for (int i = 0; row >= 0 && i < COUNT_TABLES; i++) {
		if (counts.edges[i].table && counts.edges[i].table != t)
			continue;
		counts.edges[i].table = t;
		counts.edges[i].row[row % COUNT_ROWS]++;
		break;
	}
	return row;
}

/* Numbers are all the same: "engine-# links #". */
static void plain(char *out, size_t size, const char *s)
{
	size_t n = 0;

	while (*s && n + 1 < size) {
		if (isdigit((unsigned char)*s)) {
			out[n++] = '#';
			while (isdigit((unsigned char)*s))
				s++;
		} else {
			out[n++] = *s++;
		}
	}
	out[n] = '\0';
}

static uint32_t move_at(const char *name)
{
	for (uint32_t i = 0; i < counts.nmoves; i++)
		if (strcmp(counts.moves[i].name, name) == 0)
			return i;
	if (counts.nmoves == COUNT_MOVES)
		return COUNT_MOVES - 1;
	snprintf(counts.moves[counts.nmoves].name, COUNT_NAME, "%s", name);
	return counts.nmoves++;
}

void count_move(const char *who, const char *does, const char *what)
{
	char text[128], name[COUNT_NAME];

	snprintf(text, sizeof text, "%s %s %s", who, does, what);
	plain(name, sizeof name, text);
	counts.moves[move_at(name)].crossed++;
}

void count_death(const char *next, const char *last)
{
	char name[COUNT_NAME];

	if (*next) {
		plain(name, sizeof name, next);
		counts.moves[move_at(name)].before++;
	}
	if (*last) {
		plain(name, sizeof name, last);
		counts.moves[move_at(name)].after++;
	}
}

void counts_add(struct counts *to, const struct counts *c)
{
	struct counts mine = counts;

	for (int i = 0; i < COUNT_TABLES; i++) {
		const void *t = c->edges[i].table;

		for (int k = 0; t && k < COUNT_TABLES; k++) {
			if (to->edges[k].table && to->edges[k].table != t)
				continue;
			to->edges[k].table = t;
			for (int r = 0; r < COUNT_ROWS; r++)
				to->edges[k].row[r] += c->edges[i].row[r];
			break;
		}
	}
	counts = *to;
	for (uint32_t i = 0; i < c->nmoves; i++) {
		uint32_t at = move_at(c->moves[i].name);

		counts.moves[at].crossed += c->moves[i].crossed;
		counts.moves[at].before += c->moves[i].before;
		counts.moves[at].after += c->moves[i].after;
	}
	*to = counts;
	counts = mine;
}

#define OFTEN 100

static void print_row(const struct fsm_table *t, size_t row, uint32_t crossed,
		      const char *why)
{
	struct buf text = { 0 };

	row_text(&text, t, row);
	printf("  %5u  %s", crossed, buf_cstr(&text));
	if (why)
		printf("  [%s%s]", crossed ? "AND YET: " : "", why);
	printf("\n");
	buf_release(&text);
}

/* Those that are crossed less often, and why; how many are, that never should
 * be. */
static size_t print_table(const struct fsm_table *t, const uint32_t *row)
{
	size_t often = 0, seldom = 0, never = 0, wrong = 0;

	for (size_t i = 0; i < t->nedges; i++) {
		const char *why = row_never(t, i);

		never += why != NULL;
		wrong += why && row[i];
		often += !why && row[i] >= OFTEN;
		seldom += !why && row[i] < OFTEN;
	}
	printf("machine %-11s %3zu rows: %3zu crossed at least %d times, "
	       "%2zu seldom, %2zu never\n",
	       t->name, t->nedges, often, OFTEN, seldom, never);
	for (size_t i = 0; i < t->nedges; i++)
		if (row_never(t, i) || row[i] < OFTEN)
			print_row(t, i, row[i], row_never(t, i));
	return wrong;
}

size_t counts_print(const struct counts *c)
{
	size_t wrong = 0;

	for (int i = 0; i < COUNT_TABLES && c->edges[i].table; i++)
		wrong += print_table(c->edges[i].table, c->edges[i].row);
	printf("durable moves: crossed, died before, died after\n");
	for (uint32_t i = 0; i < c->nmoves; i++)
		printf("  %8u %6u %6u  %s\n", c->moves[i].crossed,
		       c->moves[i].before, c->moves[i].after, c->moves[i].name);
	return wrong;
}
