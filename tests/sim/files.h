/* files.h - what files.c and data.c know of an open file together. */
#ifndef WEIR_SIM_FILES_H
#define WEIR_SIM_FILES_H

#include "sim.h"

#define PIPE_CAP 8192 /* a hand-off line fits */

struct pipe {
	char data[PIPE_CAP];
	size_t n;
	int ends[2]; /* that are open: 0 reads, 1 writes */
	struct file *end[2];
};

void file_poke_owner(struct file *f);	/* f may be NULL */

#endif
