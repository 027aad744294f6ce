#include "err.h"

#include <errno.h>

/* clang-format off */
static const struct {
	const char *text;
	int exit;
} errs[E_NERR] = {
	[E_OK] = { "ok", 0 },
#define X(n, e, t) [n] = { t, e },
	ERR_LIST(X)
#undef X
};
/* clang-format on */

static int known(int rc)
{
	return rc > -E_NERR;
}

const char *err_text(int rc)
{
	if (rc >= 0)
		return "ok";
	return known(rc) ? errs[-rc].text : "unknown";
}

int err_exit_code(int rc)
{
	if (rc >= 0)
		return 0;
	return known(rc) ? errs[-rc].exit : errs[E_BUG].exit;
}

int err_of_exit_code(int code)
{
	for (int e = E_OK + 1; e < E_NERR; e++)
		if (errs[e].exit == code)
			return e;
	return E_IO;
}

int err_of_errno(int e)
{
	switch (e) {
	case ENOENT:
	case ENOTDIR:
		return E_NOINPUT;
	case EACCES:
	case EPERM:
	case EROFS:
		return E_PERM;
	case ENOMEM:
		return E_NOMEM;
	case EAGAIN:
	case EINTR:
		return E_AGAIN;
	default:
		return E_IO;
	}
}
