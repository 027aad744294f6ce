/*
 * server.h - the inference servers of a world's in-place engines: each has one
 * set of weights, which it loads from a directory, and can be paused.  They
 * speak SGLang's calls, as far as weir makes them.
 *
 * Invariants, looked at whenever one loads or goes on: it serves no blend and
 * nothing undecided (I2), and before the decision no more of them load for
 * one process than the limit says (I6): what a dead one has asked for goes on,
 * and nobody can call it back.
 */
#ifndef WEIR_SIM_SERVER_H
#define WEIR_SIM_SERVER_H

#include "world.h"

#define SERVER_TEXT 256

struct server_ask {
	uint32_t server;
	int pid;	   /* who asks */
	bool posts, loses; /* done, but nobody hears of it */
	bool fails;	   /* not done */
	char path[SERVER_TEXT], body[SERVER_TEXT];
};

struct server_answer {
	int rc;
	bool sent, refused;
	long status;
	char body[SERVER_TEXT];
};

void servers_begin(void);
/* "http://sim/2" -> 2. */
uint32_t server_number(const char *url);
/* A request has arrived: how long it takes, ns. */
int64_t server_begin(struct server_ask *ask);
/* That time is over: what became of it. */
void server_end(const struct server_ask *ask, struct server_answer *a);
/* It answers nothing for ns. */
void server_busy(uint32_t server, int64_t ns);
/* It starts again with what it had at first, not paused. */
void server_restart(uint32_t server);
/* The last push met no fault: each serves the highest version. */
void servers_check_end(void);

#endif
