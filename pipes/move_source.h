/*
 * move_source.h - weir-move-source: what is in a trainer's device memory, as
 * a file.
 *
 * Started by weir-plan for `--source gpu:FILE` (plan_take.h), with the number
 * of a descriptor, of an empty file that is open for writing, and FILE
 * (common/devsource.h).  It maps each allocation once, by its CUDA IPC handle,
 * copies the tensors into the file, one after the other behind a safetensors
 * header, lets go of the allocations, and ends.  The file is whole, and the
 * device has finished with the trainer's memory, if and only if it ends with
 * 0.
 *
 * The way of the bytes: two chunks of pinned memory and a stream of its own
 * for each; while one is copied to, the other, once its stream has finished,
 * is written.  No call of the runtime outlives MOVE_SOURCE_CALL_MS: the
 * watchdog ends the process then, and whoever started it is told.
 */
#ifndef WEIR_MOVE_SOURCE_H
#define WEIR_MOVE_SOURCE_H

#define MOVE_SOURCE_CHUNK ((size_t)8 << 20) /* bytes; two in pinned memory */
#define MOVE_SOURCE_CALL_MS 60000	    /* for one call of the runtime */

/* 0, or -E_* (logged): E_DATA, E_NOINPUT: FILE; E_UNAVAIL: no such device, or
 * memory that cannot be mapped; E_IO: the file has no room, or a copy. */
int move_source_run(int fd, const char *file);

#endif
