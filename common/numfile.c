#include "numfile.h"
#include "err.h"
#include "io.h"
#include "log.h"

#include <inttypes.h>
#include <stdio.h>

#define TEXT_MAX 32 /* bytes of such a file */

int numfile_write(int dirfd, const char *name, uint64_t n)
{
	char text[TEXT_MAX];
	int len = snprintf(text, sizeof text, "%" PRIu64 "\n", n);

	return io_replace(dirfd, name, text, (size_t)len);
}

int numfile_read(int dirfd, const char *dir, const char *name, uint64_t *n)
{
	struct buf b = { 0 };
	uint64_t is = 0;
	char tail = 0;
	int rc = io_read_file(dirfd, name, TEXT_MAX, &b);

	if (rc == -E_NOINPUT)
		rc = 0;
	else if (rc == 0 &&
		 (sscanf(buf_cstr(&b), "%20" SCNu64 "%c", &is, &tail) != 2 ||
		  tail != '\n'))
		rc = log_error(E_DATA, "%s/%s is no number", dir, name);
	if (rc == 0)
		*n = is;
	buf_release(&b);
	return rc;
}
