/*
 * srchead.h - is the language model's head missing, or tied?
 *
 * Writers drop lm_head.weight when it is the embedding under another name.
 * config.json says whether: "tie_word_embeddings", at top level or in
 * text_config.  Said false, with an embedding and a ...ForCausalLM or
 * ...ForConditionalGeneration, a missing head is refused: engines would
 * leave it at random values.  Said true or nothing (the usual default is
 * true): tied.  A config.json that is no JSON, as Python reads it, is worth a
 * warning only; it is the loader's.
 */
#ifndef WEIR_SRCHEAD_H
#define WEIR_SRCHEAD_H

#include "source.h"

/* Sets s->head.  0, or -E_DATA and one line that names lm_head.weight. */
int srchead_check(struct source *s);

#endif
