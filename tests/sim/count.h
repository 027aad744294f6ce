/*
 * count.h - what the seeds have crossed: every row of every machine's table,
 * and every durable move (a name that appears, changes or goes, a sync), with
 * the deaths just before and just after.
 */
#ifndef WEIR_SIM_COUNT_H
#define WEIR_SIM_COUNT_H

#include <stddef.h>
#include <stdint.h>

#define COUNT_TABLES 8
#define COUNT_ROWS 160		/* of one table */
#define COUNT_MOVES 512
#define COUNT_NAME 80
#define COUNT_OFTEN 100		/* each row and move, in the seeds of a check */
				/* ... or rows.h has a reason */
#define COUNT_STRAY 50		/* in them, rows that never should be: any
				 * change of weir changes all that is drawn */

struct node;
struct proc;

struct counts {
	struct {
		const void *table;
		uint32_t row[COUNT_ROWS];
	} edges[COUNT_TABLES];
	struct count_move {
		char name[COUNT_NAME];	/* "commit link /reg/versions/#/plan" */
		uint32_t crossed, before, after;
	} moves[COUNT_MOVES];
};
extern struct counts counts;

/* The running process is about to: before its sim_point(). */
uint32_t count_coming(const char *does, const struct node *dir,
		      const char *name);
/* It has; move is what count_coming() said. */
void count_crossed(uint32_t move);
/* p dies in the step that has begun. */
void count_death(const struct proc *p);
void counts_add(struct counts *to, const struct counts *c);
struct count_wrong {
	size_t seldom;	/* rows, moves: fewer than COUNT_OFTEN, no reason */
	size_t never;	/* rows: crossed, and rows.h says that none is */
};
/* `may`: how often a row that never is may be. */
struct count_wrong counts_print(const struct counts *c, uint32_t may);

#endif
