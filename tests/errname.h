/*
 * errname.h - the errors of err.h by their names, as scripts of tests have
 * them: "E_DATA" for -E_DATA.
 */
#ifndef WEIR_TESTS_ERRNAME_H
#define WEIR_TESTS_ERRNAME_H

#include "common/err.h"

static inline const char *err_name(int rc)
{
	static const char *const name[E_NERR] = {
		[E_OK] = "E_OK",
#define X(n, exit, text) [n] = #n,
		ERR_LIST(X)
#undef X
	};

	if (rc >= 0)
		return name[E_OK];
	return rc > -E_NERR ? name[-rc] : "unknown";
}

#endif
