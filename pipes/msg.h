/*
 * msg.h - messages and records: structs, strict codec, JSON, reference.
 *
 * Everything here is derived from msg.def; read that first.
 *
 * Decoding: a scan of the whole frame comes first; it bounds counts by the
 * bytes that are left, depth (MSG_DEPTH_MAX) and total elements, so that a
 * five-byte header cannot reserve gigabytes (MP-01, MP-02), and takes values
 * in their shortest form only: a message has one encoding.  Then msgpack-c
 * unpacks and the table checks number, field count, types, ranges, lengths,
 * UTF-8.  Trailing bytes are an error.  Every proper prefix of a message is
 * refused as truncated.
 */
#ifndef WEIR_MSG_H
#define WEIR_MSG_H

#include "common/buf.h"
#include "common/digest.h"

#define FRAME_MAX	(1u << 20)	/* bytes; weights never travel here */
#define MSG_DEPTH_MAX	4		/* nested arrays */
#define MSG_ELEMENTS_MAX (1u << 19)	/* values of one frame, arrays too */
#define MSG_PARTS_MAX	4096		/* parts of a bucket, pieces of an offer */
#define ID_NONE		0xffffffffu

enum stage_id {
	STAGE_NONE, STAGE_PLAN, STAGE_ADMIT, STAGE_TRANSFER, STAGE_COMMIT,
	STAGE_N
};
enum part_kind { PART_TENSOR, PART_HEADER, PART_CARRIED, PART_N };
enum file_kind { FILE_SHARD, FILE_CARRIED, FILE_N };
enum engine_kind { ENGINE_NATIVE, ENGINE_SGLANG, ENGINE_VLLM, ENGINE_N };
enum proof_level { PROOF_ACK, PROOF_SAMPLED, PROOF_COPIED, PROOF_REREAD,
		   PROOF_N };
/* Unread: every engine kept a slot with the content, or it is that of the last
 * version and was not touched since. */
enum source_proof { SOURCE_LEASE, SOURCE_REREAD, SOURCE_UNREAD, SOURCE_N };
enum run_kind { RUN_PUBLISH, RUN_JOIN, RUN_ROLLBACK, RUN_N };

/* "plan", "native", "copied" ...; NULL past the end. */
const char *stage_name(unsigned id);
const char *engine_kind_name(unsigned k);
const char *proof_name(unsigned p);

/* The nested records: struct m_fence, struct m_part ...; lists are
 * { struct m_part *v; uint32_t n; }. */
#define SUB(name, text)			struct m_##name {
#define MSG(no, name, text)		struct m_##name {
#define END(name)			};
#define U8(f, text)			uint8_t f;
#define U32(f, text)			uint32_t f;
#define U64(f, text)			uint64_t f;
#define I64(f, text)			int64_t f;
#define FLAG(f, text)			bool f;
#define STR(f, max, text)		struct slice f;
#define LINE(f, max, text)		struct slice f;
#define BIN(f, max, text)		struct slice f;
#define DIG(f, text)			struct digest f;
#define REC(f, sub, text)		struct m_##sub f;
#define LIST(f, sub, max, text)		struct { struct m_##sub *v; uint32_t n; } f;
#define NUMS(f, max, text)		struct { uint64_t *v; uint32_t n; } f;
#define STRS(f, max, len, text)		struct { struct slice *v; uint32_t n; } f;
#include "msg_each.h"

enum msg_type {
	MSG_NONE,
#define MSG(no, name, text)		M_##name = no,
#include "msg_each.h"
};

struct msg {
	enum msg_type type;
	union {
#define MSG(no, name, text)		struct m_##name name;
#include "msg_each.h"
	};
};

/*
 * Where decoded lists live.  {0} is an empty one; it keeps its memory from
 * message to message (bounded by MSG_ELEMENTS_MAX).
 */
struct msg_arena {
	char *p;
	size_t n, cap;
	void *zone;			/* what msgpack-c unpacks into */
};
void msg_arena_release(struct msg_arena *a);

/* Appends the frame to out.  -E_PROTO if it would exceed FRAME_MAX or a field
 * its limit (logged: message and field); nothing is appended then. */
int msg_pack(struct buf *out, const struct msg *m);
/* m borrows frame and arena: it dies with the frame and with the arena's next
 * use.  -E_PROTO, logged with message and field (see log_quiet_thread). */
int msg_unpack(struct msg *m, struct msg_arena *a, struct slice frame);

/* Of a frame that msg_unpack() has refused: is it a request to an engine, or a
 * reply, as another build may write it?  Number and seq keep their places, so
 * that it can be answered. */
bool msg_is_strange(struct msg_arena *a, struct slice frame, uint64_t *seq);
#define MSG_STRANGE "speaks another version of weir's messages"

/* May a STR hold it, but for its length? */
bool msg_is_text(struct slice s);

const char *msg_name(enum msg_type t);		/* "hello"; NULL if unknown */
uint64_t msg_table_hash(void);			/* of names, numbers, limits */
/* One JSON object, no newline; digests in hex, kinds and codes by number,
 * bitmaps as counts. */
void msg_json(struct buf *out, const struct msg *m);
/* The reference page (Markdown), and the JSON Schema of msg_json()'s lines. */
void msg_reference(struct buf *out);
void msg_schema(struct buf *out);

#endif
