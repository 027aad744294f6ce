/*
 * msg_table.h - msg.def as data: what msg.c and msg_text.c walk over.
 *
 * Descriptors of nested records are reached through functions, so that one
 * reading of msg.def makes them all and every one is constant.
 */
#ifndef WEIR_MSG_TABLE_H
#define WEIR_MSG_TABLE_H

#include "pipes/msg.h"

enum field_type {
	F_U8, F_U32, F_U64, F_I64, F_FLAG, F_STR, F_BIN, F_DIG, F_REC, F_LIST,
	F_NUMS, F_STRS, F_NTYPE
};

struct record;
typedef const struct record *record_fn(void);

struct field {
	const char *name, *text;
	enum field_type type;
	uint32_t max;			/* bytes of STR and BIN, else elements */
	uint32_t len;			/* bytes of one of STRS */
	bool mends;			/* STR: LINE */
	size_t off;			/* in the record's struct */
	record_fn *sub;			/* of REC and LIST */
};

struct record {
	const char *name, *text;
	uint8_t number;			/* 0: nested */
	uint32_t nfields;
	size_t size;			/* of its struct */
	const struct field *field;
};

/* What struct m_* calls a list, whatever its elements are. */
struct any_list {
	void *v;
	uint32_t n;
};

/* NULL if no message has this number. */
const struct record *record_of(unsigned number);
/* Nested records in the order of msg.def; NULL past the end. */
const struct record *record_nested(size_t i);
/* Where struct m_* is in struct msg: members of a union share their place. */
#define MSG_BODY offsetof(struct msg, version)
/* msg.def's word for a type: "U8". */
const char *field_type_name(enum field_type t);
struct any_list field_list(const struct field *f, const char *body);

#endif
