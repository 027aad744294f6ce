/*
 * fds.h - are there descriptors enough?
 *
 * libzmq aborts when it runs out of them (ZQ-11), so what will be needed is
 * asked for before it is begun.
 */
#ifndef WEIR_FDS_H
#define WEIR_FDS_H

#include <stddef.h>

/* How many are open now; 0 if that cannot be known. */
size_t fds_open(void);

/* Raises the limit of descriptors to the hard one; -E_CONFIG, naming limit and
 * need, if `need` more than are open now do not fit.  what: "64 receivers". */
int fds_need(size_t need, const char *what);

#endif
