/*
 * options.h - the command lines of the four stages, and so of weir push.
 *
 * One table per stage; push has no copy: it takes the rows of all four, and
 * hands each stage those it knows (see push.c).
 */
#ifndef WEIR_OPTIONS_H
#define WEIR_OPTIONS_H

#include "common/opt.h"

#define COMMIT_RETIRE_MAX 16	/* versions */

enum pause_mode { PAUSE_KEEP, PAUSE_ABORT };
enum on_failure { ON_FAILURE_KEEP, ON_FAILURE_ROLLBACK };
enum order { ORDER_AUTO, ORDER_WAVE, ORDER_WINDOW };

/* Waves and credit: of admit, and of plan for --dry-run. */
struct limits_conf {
	uint64_t groups;		/* engines at a time; 0: all at once */
	uint64_t buckets, bytes;	/* credit; 0: this dimension is off */
	unsigned order;			/* enum order */
	unsigned expert_routing;	/* 0 off, 1 auto */
};

struct plan_conf {
	struct opt_common common;
	struct opt_list sources, engines, only, keep_together;
	char *fleet, *transport, *disk_dir, *out, *to;
	uint64_t bucket_size, rate;
	bool split_tensors, dry_run;
	struct limits_conf limits;
	int64_t stage_timeout_ms;
};

struct admit_conf {
	struct opt_common common;	/* args: [PLANFILE] */
	struct limits_conf limits;
	int64_t stage_timeout_ms;
};

struct transfer_conf {
	struct opt_common common;
	uint64_t hash_threads;
	/* Of transports with version directories: */
	char *post_write;		/* command; NULL: none */
	bool disk_link;
	unsigned delta_encoding, delta_checksum; /* as in delta_choice.h */
	uint64_t full_every, max_chain;
	int64_t disk_wait_ms;
	char *keeper;			/* path; NULL: none */
	int64_t stage_timeout_ms;
};

/* Of the tensors' names, dtypes and shapes, beside what is served. */
enum expectation { EXPECT_SAME, EXPECT_ANY };

struct commit_conf {
	struct opt_common common;
	uint64_t weight_version;	/* 0: highest + 1 */
	uint64_t min_engines;		/* 0: all */
	uint64_t retire_after;		/* versions; 0: never */
	unsigned accept_proof;		/* enum proof_level */
	unsigned expect;		/* enum expectation */
	int64_t engine_timeout_ms, load_timeout_ms, stage_timeout_ms;
	int64_t run_timeout_ms, wait_ms;
	unsigned pause_mode, on_failure; /* of in-place engines */
	char *api_key_file;
	uint64_t keep;			/* version directories */
};

extern const struct opt_spec plan_spec, admit_spec, transfer_spec,
	commit_spec;

#endif
