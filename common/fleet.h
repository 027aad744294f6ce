/*
 * fleet.h - which engines there are, from fleet.yaml or the command line.
 *
 *	model: qwen3-0.6b			# optional
 *	engines:
 *	  - name: rollout-0			# [A-Za-z0-9._-]{1,64}
 *	    kind: native			# the default; sglang, vllm
 *	    workers: [{endpoint: "ipc:///run/weir/rollout-0"}]
 *	  - name: rollout-1
 *	    kind: sglang
 *	    url: http://10.0.0.7:30000		# of HTTP engines only
 *	    pull: /local/checkpoint		# of sglang with a url alone
 *
 * Engines keep the order of the file: fleet order.  Workers of one engine
 * may name one endpoint several times: that receiver holds several of them.
 * Two native engines may not share an endpoint.
 *
 * Strict: every unknown key, key given twice, wrong type, name given twice
 * is refused with line and column; so are anchors, aliases, tags and second
 * documents, so that a small file stays small in memory.  Only shape is
 * checked here: nothing is connected to.  (fleet_yaml.c is the only
 * includer of libfyaml.)
 */
#ifndef WEIR_FLEET_H
#define WEIR_FLEET_H

#include "buf.h"

#define FLEET_BYTES_MAX		(16u << 20)	/* of the file */
#define FLEET_ENGINES_MAX	65536u
#define FLEET_WORKERS_MAX	4096u		/* of one engine */
#define FLEET_NAME_MAX		64u		/* bytes */
#define FLEET_MODEL_MAX		256u		/* bytes */
#define FLEET_URL_MAX		1024u		/* bytes */
#define FLEET_PULL_MAX		2048u		/* bytes */
#define FLEET_IPC_PATH_MAX	107u		/* bytes; sockaddr_un's limit */

#define FLEET_KIND_LIST(X)	\
	X(NATIVE, "native")	\
	X(SGLANG, "sglang")	\
	X(VLLM, "vllm")

enum fleet_kind {
#define X(id, name) FLEET_##id,
	FLEET_KIND_LIST(X)
#undef X
	FLEET_NKINDS
};

struct fleet_engine {
	char *name;
	enum fleet_kind kind;
	char *url;			/* HTTP engines; else NULL */
	char *pull;			/* where it keeps what it pulls of a
					 * shared directory; or NULL */
	char **endpoint;		/* of each worker, in order */
	uint32_t nworkers;
};

/* {0} is an empty one. */
struct fleet {
	char *model;			/* or NULL */
	struct fleet_engine *engine;
	uint32_t n;
};

/* path "-": standard input.  0; -E_CONFIG and one line; -E_NOINPUT. */
int fleet_read(struct fleet *f, const char *path);
/* The same of text; name: for messages. */
int fleet_parse(struct fleet *f, const char *name, struct slice text);
/* --engine [KIND=]ENDPOINT: one more, named engine-0, engine-1 ...; native
 * ones have one worker, HTTP ones take a URL.  -E_USAGE, quoting spec. */
int fleet_add_endpoint(struct fleet *f, const char *spec);
/* What all ways of filling a fleet share at their end: there is an engine,
 * and no name or native endpoint twice.  fleet_parse() has done it. */
int fleet_check(const struct fleet *f, const char *name);
/* Only the engines of these names stay.  -E_USAGE for one that is not there. */
int fleet_keep(struct fleet *f, char *const *names, size_t n);
/* By kind, staged ones first (I6), in fleet order within each. */
void fleet_sort(struct fleet *f);
/* Engines of staged kinds. */
uint32_t fleet_staged(const struct fleet *f);
void fleet_release(struct fleet *f);

const char *fleet_kind_name(enum fleet_kind k);
/* The engine of that name, or NULL.  Linear. */
const struct fleet_engine *fleet_find(const struct fleet *f,
				      struct slice name);
bool fleet_is_name(struct slice s);

#endif
