/*
 * ledger.h - a line of the registry's ledger, read back for people.  Pure.
 *
 * Members that a line has not are empty or 0.  What is longer than its place
 * is cut; what is no such line is refused, quietly.
 */
#ifndef WEIR_LEDGER_H
#define WEIR_LEDGER_H

#include "common/buf.h"
#include "common/jsonw.h"

#define LEDGER_TEXT 65		/* names, ids: 64 bytes and NUL */
#define LEDGER_CAUSE 513

struct ledger_line {
	uint64_t wall_ms, version, epoch;
	char event[LEDGER_TEXT], engine[LEDGER_TEXT], run[LEDGER_TEXT];
	char content[LEDGER_TEXT], cause[LEDGER_CAUSE];
};

bool ledger_parse(struct ledger_line *l, struct slice line);
/* "published, version 3, run 20261129-..." without the time.  Appends. */
void ledger_text(const struct ledger_line *l, struct buf *out);
void ledger_json(const struct ledger_line *l, struct jsonw *j);

#endif
