#include "count.h"

#include "common/fsm.h"
#include "rows.h"
#include "world.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The name of a move in the making. */
struct name {
	char text[COUNT_NAME];
	size_t n;
};

/* Numbers are all the same: "engine-# links #". */
static void add(struct name *to, const char *s)
{
	while (*s && to->n + 1 < sizeof to->text) {
		bool digit = isdigit((unsigned char)*s);

		to->text[to->n++] = digit ? '#' : *s;
		s += digit ? strspn(s, "0123456789") : 1;
	}
	to->text[to->n] = '\0';
}

static void add_path(struct name *to, const struct node *dir)
{
	if (!dir || dir == disk_root())
		return;
	add_path(to, dir->parent);
	add(to, "/");
	add(to, dir->name);
}

/* Open addressing; full is a bug, COUNT_MOVES is to grow then. */
static uint32_t move_at(struct counts *c, const char *name)
{
	uint32_t at = 5381;

	for (const char *s = name; *s; s++)
		at = at * 33 + (unsigned char)*s;
	for (uint32_t i = 0; i < COUNT_MOVES; i++, at++) {
		struct count_move *m = &c->moves[at % COUNT_MOVES];

		if (!m->name[0])
			snprintf(m->name, sizeof m->name, "%s", name);
		if (strcmp(m->name, name) == 0)
			return at % COUNT_MOVES;
	}
	abort();
}

uint32_t count_coming(const char *does, const struct node *dir,
		      const char *name)
{
	struct name move = { .n = 0 };

	if (!sim.p || !dir)
		return 0;
	add(&move, sim.p->name);
	add(&move, " ");
	add(&move, does);
	add(&move, " ");
	add_path(&move, dir);
	add(&move, "/");
	add(&move, name);
	return sim.p->coming = move_at(&counts, move.text) + 1;
}

void count_crossed(uint32_t move)
{
	struct proc *p = sim.p;

	if (!move)
		return;
	counts.moves[move - 1].crossed++;
	p->moves++;
	p->crossed = move;
	p->crossed_at = p->steps;
}

void count_death(const struct proc *p)
{
	if (p->coming)
		counts.moves[p->coming - 1].before++;
	if (p->crossed && p->crossed_at + 1 == p->steps)
		counts.moves[p->crossed - 1].after++;
}

static void add_edges(struct counts *to, const struct counts *c)
{
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
}

void counts_add(struct counts *to, const struct counts *c)
{
	add_edges(to, c);
	for (uint32_t i = 0; i < COUNT_MOVES; i++) {
		const struct count_move *m = &c->moves[i];
		struct count_move *mine;

		if (!m->name[0])
			continue;
		mine = &to->moves[move_at(to, m->name)];
		mine->crossed += m->crossed;
		mine->before += m->before;
		mine->after += m->after;
	}
}

static void print_row(const struct fsm_table *t, size_t row, uint32_t crossed)
{
	const char *never = row_never(t, row), *seldom = row_seldom(t, row);
	struct buf text = { 0 };

	row_text(&text, t, row);
	printf("  %5u  %s", crossed, buf_cstr(&text));
	if (never)
		printf("  [%s%s]", crossed ? "AND YET: " : "", never);
	else if (seldom)
		printf("  (%s)", seldom);
	printf("\n");
	buf_release(&text);
}

/* Those that are crossed less often, and why. */
static void print_table(const struct fsm_table *t, const uint32_t *row,
			uint32_t may, struct count_wrong *wrong)
{
	size_t often = 0, seldom = 0, never = 0;

	for (size_t i = 0; i < t->nedges; i++) {
		if (row_never(t, i)) {
			never++;
			wrong->never += row[i] > may;
		} else if (row[i] >= COUNT_OFTEN) {
			often++;
		} else {
			seldom++;
			wrong->seldom += !row_seldom(t, i);
		}
	}
	printf("machine %-11s %3zu rows: %3zu crossed at least %d times, "
	       "%2zu seldom, %2zu never; all of them in %s\n",
	       t->name, t->nedges, often, COUNT_OFTEN, seldom, never,
	       row_unit(t));
	for (size_t i = 0; i < t->nedges; i++)
		if (row_never(t, i) || row[i] < COUNT_OFTEN)
			print_row(t, i, row[i]);
}

static int by_name(const void *a, const void *b)
{
	const struct count_move *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static void print_moves(const struct counts *c, struct count_wrong *wrong)
{
	static struct count_move sorted[COUNT_MOVES];
	size_t n = 0;

	for (size_t i = 0; i < COUNT_MOVES; i++)
		if (c->moves[i].crossed)
			sorted[n++] = c->moves[i];
	qsort(sorted, n, sizeof *sorted, by_name);
	printf("%zu durable moves: crossed, died just before, just after\n", n);
	for (size_t i = 0; i < n; i++) {
		const char *why = move_seldom(sorted[i].name);
		bool is_seldom = sorted[i].crossed < COUNT_OFTEN;

		wrong->seldom += is_seldom && !why;
		printf("  %8u %6u %6u  %s", sorted[i].crossed, sorted[i].before,
		       sorted[i].after, sorted[i].name);
		if (is_seldom && why)
			printf("  (%s)", why);
		printf("\n");
	}
}

struct count_wrong counts_print(const struct counts *c, uint32_t may)
{
	struct count_wrong wrong = { 0 };

	for (int i = 0; i < COUNT_TABLES && c->edges[i].table; i++)
		print_table(c->edges[i].table, c->edges[i].row, may, &wrong);
	print_moves(c, &wrong);
	return wrong;
}
