/*
 * plan_build.h - from a checkpoint and a fleet to the records of a plan.
 *
 * Records come in the order of planfile.h.  Files keep source.h's order (by
 * path, shards and carried files alike), rank after rank.  Engines: staged kinds first, fleet
 * order within each kind.  Buckets hold parts in (file, offset) order: of a
 * shard its header, then its tensors; of a carried file all of it.  Tensors of
 * one group (common/together.h) share a bucket, the one of the first of them,
 * wherever the others are; a group that no bucket can hold is -E_DATA if a
 * rule asked for it or a server loads bucket by bucket, else planned as if it
 * were none.  Headers and carried
 * files above the bucket size are split as common/bucket.h says, tensors only
 * with --split-tensors.
 *
 * On a transport whose staging is shared (TR_SHARED_STAGING) routed experts
 * (common/expert.h) come after all others, in buckets of their own that are
 * exclusive: admit.h serves such a one with nothing beside it.  So the others
 * pipeline, and are interrupted once.  A published version keeps its buckets;
 * exclusive are those with an expert.
 *
 * Several source ranks go in step: a tensor's shares are one object, in the
 * place that rank 0 gives it, and so are the i-th headers or carried files of
 * all ranks.  So all ranks close a bucket at the same tensor.
 *
 * The same source and options give the same bytes.  Records are handed on as
 * they are made: memory is the sources', one bucket's parts and one buffer,
 * whatever the plan's length.
 */
#ifndef WEIR_PLAN_BUILD_H
#define WEIR_PLAN_BUILD_H

#include "common/fleet.h"
#include "common/io.h"
#include "common/ranks.h"
#include "common/together.h"
#include "pipes/msg.h"
#include "pipes/options.h"
#include "pipes/plan_again.h"

/* What is planned: a source, or a published version again. */
struct plan_input {
	struct fleet fleet;		/* staged kinds first */
	bool is_again;
	struct plan_again again;	/* instead of ranks */
	struct opt_list sources;	/* directories; see plan_take.h */
	struct ranks ranks;
	struct together together;
	const char *transport;		/* resolved; static */
	char *disk_dir;			/* absolute, without links; or NULL */
	/* Some server is broadcast to, bucket by bucket (en_cast.c): what it
	 * cannot take is refused here, before any is paused. */
	bool is_cast;
};
struct stage;
/* Opens and checks all of it: fleet and names first, then the sources; as
 * many as each engine has workers, each at a receiver of its own, if there
 * are several.  s: into whose run device sources are brought; NULL if there
 * can be none (-o, --dry-run).  One line and -E_USAGE, -E_CONFIG, -E_DATA,
 * -E_NOINPUT; plan_take()'s failures. */
int plan_input_open(struct plan_input *in, const struct plan_conf *conf,
		    struct stage *s);
void plan_input_release(struct plan_input *in);
/* The same checks of the command line alone. */
int plan_check_options(const struct plan_conf *conf);

/* Where it goes. */
struct plan_output {
	struct io_stream *file;		/* NULL: nowhere */
	/* Told of each bucket, if not NULL; lent for the call. */
	int (*bucket)(void *arg, const struct m_bucket *b);
	void *arg;
};
/* *end is the plan's end record.  -E_DATA, -E_IO. */
int plan_build(const struct plan_input *in, const struct plan_conf *conf,
	       const struct plan_output *out, struct m_end *end);

#endif
