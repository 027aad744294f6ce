/*
 * names.so - names of hosts that no name server has.
 *
 *	LD_PRELOAD=.../names.so COMMAND
 *
 *	two.test	127.0.0.2, then 127.0.0.1
 *	never.test	no answer, for as long as FOREVER_S
 */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#define FOREVER_S 300

typedef int resolve(const char *, const char *, const struct addrinfo *,
		    struct addrinfo **);

static resolve *real(void)
{
	void *call = dlsym(RTLD_NEXT, "getaddrinfo");
	resolve *fn;

	memcpy(&fn, &call, sizeof fn);
	return fn;
}

static int resolve_two(const char *service, const struct addrinfo *hints,
		       struct addrinfo **out)
{
	struct addrinfo *second = NULL;
	int rc = real()("127.0.0.2", service, hints, out);

	if (rc == 0)
		rc = real()("127.0.0.1", service, hints, &second);
	if (rc == 0)
		(*out)->ai_next = second;
	return rc;
}

int getaddrinfo(const char *node, const char *service,
		const struct addrinfo *hints, struct addrinfo **out)
{
	if (node && strcmp(node, "never.test") == 0) {
		sleep(FOREVER_S);
		return EAI_AGAIN;
	}
	if (node && strcmp(node, "two.test") == 0)
		return resolve_two(service, hints, out);
	return real()(node, service, hints, out);
}
