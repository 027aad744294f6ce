/*
 * story.h - what world.c, story.c, source.c and faults.c share: who is
 * started, and what is told of them.
 */
#ifndef WEIR_SIM_STORY_H
#define WEIR_SIM_STORY_H

#include "world.h"

#define SETTLE_MS 500 /* between pushes */

/* For sim_at(): (void *)(uintptr_t) of an engine's number. */
void story_start_engine(void *arg);
void story_start_push(struct push *p);
void story_end_push(struct push *p);	/* killed, its stages left alone */
/* By hand, beside one that may be stopped for a while. */
void story_start_beside(struct push *p, enum stage_id id);
void story_make_source(uint32_t push, uint32_t shards, uint32_t tensors,
		       struct rng *r);

/* For --fleet: where there are servers. */
void story_make_fleet(void);

void world_next_push(void *unused);	/* for sim_at() */
void world_write_boot_id(void);
bool world_is_of_engine(enum fault_kind k);
void world_make_fault(struct rng *r, struct fault *f);
/* Makes the world as drawn one in which something rare is likely. */
void world_aim(struct rng *r, uint64_t which);
void world_aim_close(struct rng *r, uint64_t which);
/* A death, and what befalls the stage when it has been started again. */
void world_make_couple(struct rng *r, struct fault first[2]);
void world_befall(void *fault);		/* for sim_at() */

#endif
