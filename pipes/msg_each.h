/*
 * msg_each.h - one reading of msg.def.  Define the macros that matter to you,
 * include this; the others expand to nothing, and all are taken back.  Has
 * no include guard, on purpose.
 */
#ifndef SUB
#define SUB(name, text)
#endif
#ifndef MSG
#define MSG(no, name, text)
#endif
#ifndef END
#define END(name)
#endif
#ifndef U8
#define U8(f, text)
#endif
#ifndef U32
#define U32(f, text)
#endif
#ifndef U64
#define U64(f, text)
#endif
#ifndef I64
#define I64(f, text)
#endif
#ifndef FLAG
#define FLAG(f, text)
#endif
#ifndef STR
#define STR(f, max, text)
#endif
#ifndef LINE
#define LINE(f, max, text)
#endif
#ifndef BIN
#define BIN(f, max, text)
#endif
#ifndef DIG
#define DIG(f, text)
#endif
#ifndef REC
#define REC(f, sub, text)
#endif
#ifndef LIST
#define LIST(f, sub, max, text)
#endif
#ifndef NUMS
#define NUMS(f, max, text)
#endif
#ifndef STRS
#define STRS(f, max, len, text)
#endif

#include "msg.def"

#undef SUB
#undef MSG
#undef END
#undef U8
#undef U32
#undef U64
#undef I64
#undef FLAG
#undef STR
#undef LINE
#undef BIN
#undef DIG
#undef REC
#undef LIST
#undef NUMS
#undef STRS
