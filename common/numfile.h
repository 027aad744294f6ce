/*
 * numfile.h - a number that is to outlive its writer: a file of one line.
 *
 * Written durably by rename: it is the old one or the new one, and whole.
 */
#ifndef WEIR_NUMFILE_H
#define WEIR_NUMFILE_H

#include <stdint.h>

int numfile_write(int dirfd, const char *name, uint64_t n);
/* 0 and *n, which is 0 if there is no such file.  -E_DATA: it holds something
 * else; dir is for that line. */
int numfile_read(int dirfd, const char *dir, const char *name, uint64_t *n);

#endif
