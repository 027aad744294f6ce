/*
 * point.h - named points at which a process dies, see point.c.
 *
 * Each begins with the program's name; what comes then is given.
 */
#ifndef WEIR_KILL_POINT_H
#define WEIR_KILL_POINT_H

#define POINT_MAX 256	/* bytes of a name */

/* A step is taken; it has been done when its process waits next. */
void point_step(const char *text);
/* One call: name is filled in, for what comes behind it. */
void point_before(char name[POINT_MAX], const char *does, const char *what);
void point_after(const char *name);

#endif
