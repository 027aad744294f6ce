/*
 * fleet_fill.h - what the ways of filling a fleet share: fleet_yaml.c and
 * --engine in fleet.c.  Nobody else needs it.
 */
#ifndef WEIR_FLEET_FILL_H
#define WEIR_FLEET_FILL_H

#include "fleet.h"

/* A new one at the end, native and empty; lent until the next. */
struct fleet_engine *fleet_add_engine(struct fleet *f);
void fleet_add_worker(struct fleet_engine *e, struct slice endpoint);

enum fleet_kind fleet_kind_of(struct slice name);	/* or FLEET_NKINDS */
/* Why that is no endpoint of a receiver, no URL of an engine, no directory
 * for what it pulls; or NULL. */
const char *fleet_bad_endpoint(struct slice s);
const char *fleet_bad_url(struct slice s);
const char *fleet_bad_pull(struct slice s);
/* What is in it that nobody sees or can say, or NULL. */
const char *fleet_bad_text(struct slice s);

#endif
