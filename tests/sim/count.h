/*
 * count.h - what the seeds have crossed: every row of every machine's table,
 * and every durable name that appears, moves or goes, with the deaths just
 * before and just after.
 */
#ifndef WEIR_SIM_COUNT_H
#define WEIR_SIM_COUNT_H

#include <stddef.h>
#include <stdint.h>

#define COUNT_TABLES 8
#define COUNT_ROWS 160		/* of one table */
#define COUNT_MOVES 256
#define COUNT_NAME 56

struct counts {
	struct {
		const void *table;
		uint32_t row[COUNT_ROWS];
	} edges[COUNT_TABLES];
	struct {
		char name[COUNT_NAME];	/* "commit links decision" */
		uint32_t crossed, before, after;
	} moves[COUNT_MOVES];
	uint32_t nmoves;
};
extern struct counts counts;

/* "commit", "links", "versions/000001/decision" -> that it is about to. */
void count_move(const char *who, const char *does, const char *what);
/* The process died: what it was about to do, what it did last. */
void count_death(const char *next, const char *last);
void counts_add(struct counts *to, const struct counts *c);
/* How many rows are crossed that rows.h says never are. */
size_t counts_print(const struct counts *c);

#endif
