#include "tcp.h"
#include "err.h"
#include "log.h"

#include <errno.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static socklen_t size_of(const union address *a)
{
	return a->any.sa_family == AF_INET ? sizeof a->v4 : sizeof a->v6;
}

static uint16_t port_of(const union address *a)
{
	return ntohs(a->any.sa_family == AF_INET ? a->v4.sin_port
						 : a->v6.sin6_port);
}

static int read_address(union address *a, const char *host, uint16_t port)
{
	*a = (union address){ .v4 = { .sin_family = AF_INET,
				      .sin_port = htons(port) } };
	if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
		if (a->v4.sin_addr.s_addr != htonl(INADDR_ANY))
			return 0;
		return log_error(E_CONFIG, "listen on %s: give one address",
				 host);
	}
	*a = (union address){ .v6 = { .sin6_family = AF_INET6,
				      .sin6_port = htons(port) } };
	if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) != 1)
		return log_error(E_CONFIG, "listen on \"%s\": no IP address",
				 host);
	if (IN6_IS_ADDR_UNSPECIFIED(&a->v6.sin6_addr))
		return log_error(E_CONFIG, "listen on %s: give one address",
				 host);
	return 0;
}

static int fail(int fd, const char *host, uint16_t port)
{
	int rc = log_errno(errno == EADDRINUSE	    ? E_AGAIN
			   : errno == EADDRNOTAVAIL ? E_CONFIG
						    : E_IO,
			   "listen on %s, port %u", host, port);

	if (fd >= 0)
		close(fd);
	return rc;
}

int tcp_listen(const char *host, uint16_t *port)
{
	union address a;
	socklen_t len = sizeof a;
	int fd, on = 1, rc = read_address(&a, host, *port);

	if (rc < 0)
		return rc;
	fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
		    0);
	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
	    bind(fd, &a.any, size_of(&a)) < 0 || listen(fd, TCP_BACKLOG) < 0 ||
	    getsockname(fd, &a.any, &len) < 0)
		return fail(fd, host, *port);
	*port = port_of(&a);
	return fd;
}

static void write_name(const union address *a, char name[TCP_NAME_MAX])
{
	bool v4 = a->any.sa_family == AF_INET;
	char host[INET6_ADDRSTRLEN] = "?";

	if (v4)
		inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof host);
	else
		inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof host);
	snprintf(name, TCP_NAME_MAX, v4 ? "%s:%u" : "[%s]:%u", host,
		 port_of(a));
}

int tcp_accept(int listener, char name[TCP_NAME_MAX])
{
	union address a;
	socklen_t len = sizeof a;
	int fd, on = 1;

	do
		fd = accept4(listener, &a.any, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (fd < 0)
		return errno == EAGAIN ? -E_AGAIN : log_errno(E_IO, "accept");
	/* Answers are small and wanted at once. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	write_name(&a, name);
	return fd;
}
