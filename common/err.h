/*
 * err.h - the errors of weir: one list, their names and their exit codes.
 *
 * Every function that can fail returns 0 or a count, or the negative of one
 * of these.  Exit codes are API (sysexits.h from 64 on) and stand in every
 * man page.  Pure.
 */
#ifndef WEIR_ERR_H
#define WEIR_ERR_H

/*	 name		exit	what it means to the user */
#define ERR_LIST(X)							\
	X(E_USAGE,	64,	"usage")				\
	X(E_DATA,	65,	"bad input data")			\
	X(E_NOINPUT,	66,	"no such input")			\
	X(E_UNAVAIL,	69,	"engine unavailable")			\
	X(E_BUG,	70,	"internal error")			\
	X(E_NOMEM,	71,	"out of memory")			\
	X(E_IO,		74,	"input or output failed")		\
	X(E_AGAIN,	75,	"try again")				\
	X(E_TIMEOUT,	69,	"deadline passed")			\
	X(E_PROTO,	76,	"protocol error")			\
	X(E_FENCED,	76,	"fenced off")				\
	X(E_PERM,	77,	"not permitted")			\
	X(E_CONFIG,	78,	"bad configuration")

enum err {
	E_OK = 0,
#define X(name, exit, text) name,
	ERR_LIST(X)
#undef X
	E_NERR
};

/* rc is 0, positive, or -E_*; unknown values are "unknown". */
const char *err_text(int rc);		/* "bad input data" */
int err_exit_code(int rc);		/* 65; 0 for rc >= 0; 70 if unknown */
/* The first with that exit code; E_IO if none has it.  Positive. */
int err_of_exit_code(int code);
/* The error for errno value e: ENOSPC, EIO ... -> E_IO, EACCES -> E_PERM,
 * ENOENT -> E_NOINPUT, ENOMEM -> E_NOMEM, EAGAIN -> E_AGAIN.  Positive. */
int err_of_errno(int e);

#endif
