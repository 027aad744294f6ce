/*
 * tr_mem.h - what a test may look at in the transport `mem`.
 */
#ifndef WEIR_TR_MEM_H
#define WEIR_TR_MEM_H

#include "pipes/transport.h"

/* A receiver's copy of a file; NULL before attach and after abort. */
const char *tr_mem_file(const struct transport *t, uint32_t receiver,
			uint32_t file);

#endif
