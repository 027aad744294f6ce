/*
 * cached.h - whether a file's bytes are in memory: on tmpfs, or, by sampling,
 * in the page cache.
 *
 * Cold files are read in large pieces before engines are offered them, so
 * that many engines find them in the cache; touching a cold file through a
 * mapping costs a disk read per fault.
 */
#ifndef WEIR_CACHED_H
#define WEIR_CACHED_H

#include <stdbool.h>
#include <stdint.h>

#define CACHED_SAMPLES 16	/* bytes looked at, spread over the range */

/* False if a sample is not in memory.  True where the kernel cannot tell, and
 * beyond the end of the file: a read will find that. */
bool cached_is_warm(int fd, uint64_t off, uint64_t n);
/* A file or directory on tmpfs: nowhere but in memory. */
bool cached_is_tmpfs(int fd);

#endif
