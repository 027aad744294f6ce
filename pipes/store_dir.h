/*
 * store_dir.h - what the files of the store module share.  Nobody else
 * includes this; see store.h.
 */
#ifndef WEIR_STORE_DIR_H
#define WEIR_STORE_DIR_H

#include "pipes/store.h"

/* dir/000042; returns out. */
char *store_name(char out[STORE_NAME_SIZE], const char *dir, uint64_t version);

int store_point(const struct store *s, uint64_t version);	/* 0: none */
uint64_t store_pointed(const struct store *s);
int store_sync_dir(const struct store *s, const char *name);
void store_add_version(struct store *s, uint64_t version);
void store_forget_version(struct store *s, uint64_t version);
/* A version of versions/ goes back to staging/. */
int store_stage_again(struct store *s, uint64_t version);
/* All beyond keep. */
int store_retire_old(struct store *s);
/* Makes directory and records agree after a crash; fills in what is served,
 * staged and kept. */
int store_recover(struct store *s);

#endif
