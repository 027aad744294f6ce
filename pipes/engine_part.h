/*
 * engine_part.h - what the two files of the machine share: engine.c has the
 * tables, engine_base.c the names, the fence and what is handed out.  Nobody
 * else includes this.
 */
#ifndef WEIR_ENGINE_PART_H
#define WEIR_ENGINE_PART_H

#include "pipes/engine.h"

extern const char *const engine_event_names[EN_NEV];
extern const char *const engine_slot_names[EN_NSLOT];
extern const char *const engine_gate_names[EN_NGATE];

struct en_action *engine_push(struct engine *e, enum en_do what);
/* Ends a pending request; NULL if it got its end already. */
struct en_action *engine_end(struct engine *e, enum en_ev req,
			     enum en_do what);
void engine_reply(struct engine *e, enum en_ev req);
void engine_refuse(struct engine *e, enum en_ev req, int code,
		   const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Is a request about what the slot is for? */
bool engine_is_of_slot(const struct engine *e, const struct en_event *ev);
/* A request that is in no table now, with what is the matter. */
void engine_refuse_unknown(struct engine *e, const struct en_event *ev);
/* A swap that may not be, with what is the matter. */
void engine_refuse_swap(struct engine *e, const struct en_event *ev);
/* With the code and cause that the shell reported. */
void engine_fail(struct engine *e, enum en_ev req, const struct en_event *ev);

#endif
