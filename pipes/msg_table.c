#include "pipes/msg_table.h"

#include <assert.h>
#include <string.h>

#define NUMBERS 128 /* message numbers are below this */

/* clang-format off */
#define OPEN(no, rec, words)						\
	static const struct record *record_##rec(void)			\
	{								\
		typedef struct m_##rec self;				\
		enum { NUMBER = no };					\
		static const char name[] = #rec, text[] = words;	\
		static const struct field field[] = {
#define SUB(name, text)		OPEN(0, name, text)
#define MSG(no, name, text)	OPEN(no, name, text)
#define END(rec)							\
		};							\
		static const struct record r = {			\
			.name = name, .text = text, .number = NUMBER,	\
			.nfields = COUNT(field), .size = sizeof(self),	\
			.field = field,					\
		};							\
									\
		return &r;						\
	}
#define FIELD(f, words, kind, ...)					\
	{ .name = #f, .text = words, .type = kind,			\
	  .off = offsetof(self, f), __VA_ARGS__ },
#define U8(f, text)		FIELD(f, text, F_U8, .max = 0)
#define U32(f, text)		FIELD(f, text, F_U32, .max = 0)
#define U64(f, text)		FIELD(f, text, F_U64, .max = 0)
#define I64(f, text)		FIELD(f, text, F_I64, .max = 0)
#define FLAG(f, text)		FIELD(f, text, F_FLAG, .max = 0)
#define STR(f, m, text)		FIELD(f, text, F_STR, .max = m)
#define LINE(f, m, text)	FIELD(f, text, F_STR, .max = m, .mends = true)
#define BIN(f, m, text)		FIELD(f, text, F_BIN, .max = m)
#define DIG(f, text)		FIELD(f, text, F_DIG, .max = DIGEST_LEN)
#define REC(f, s, text)		FIELD(f, text, F_REC, .sub = record_##s)
#define LIST(f, s, m, text)	FIELD(f, text, F_LIST, .max = m,	\
				      .sub = record_##s)
#define NUMS(f, m, text)	FIELD(f, text, F_NUMS, .max = m)
#define STRS(f, m, l, text)	FIELD(f, text, F_STRS, .max = m, .len = l)
#include "pipes/msg_each.h"

static record_fn *const messages[NUMBERS] = {
#define MSG(no, name, text)	[no] = record_##name,
#include "pipes/msg_each.h"
};

static record_fn *const nested[] = {
#define SUB(name, text)		record_##name,
#include "pipes/msg_each.h"
};
/* clang-format on */

static const char *const type_name[] = {
	[F_U8] = "U8",	   [F_U32] = "U32",   [F_U64] = "U64",
	[F_I64] = "I64",   [F_FLAG] = "FLAG", [F_STR] = "STR",
	[F_BIN] = "BIN",   [F_DIG] = "DIG",   [F_REC] = "REC",
	[F_LIST] = "LIST", [F_NUMS] = "NUMS", [F_STRS] = "STRS",
};
static_assert(COUNT(type_name) == F_NTYPE, "name every type");

const struct record *record_of(unsigned number)
{
	if (number >= NUMBERS || !messages[number])
		return NULL;
	return messages[number]();
}

const struct record *record_nested(size_t i)
{
	return i < COUNT(nested) ? nested[i]() : NULL;
}

const char *field_type_name(enum field_type t)
{
	return type_name[t];
}

struct any_list field_list(const struct field *f, const char *body)
{
	struct any_list l;

	memcpy(&l, body + f->off, sizeof l);
	return l;
}
