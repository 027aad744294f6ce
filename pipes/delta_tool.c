#include "pipes/delta_tool.h"
#include "common/err.h"
#include "common/jsonw.h"
#include "common/log.h"
#include "common/units.h"
#include "common/version.h"
#include "pipes/crew.h"
#include "pipes/delta.h"
#include "pipes/delta_choice.h"
#include "pipes/registry.h"

#include <stdio.h>
#include <string.h>

typedef unsigned long long ull;

static const struct opt rows[] = {
	{ .name = "output",
	  .letter = 'o',
	  OPT_TO_STRING(struct delta_conf, out),
	  .value = "DIR",
	  .help = "diff: the delta's directory; apply: a new directory, and "
		  "the old one stays" },
	{ .name = "base-version",
	  OPT_TO_UINT(struct delta_conf, base_version),
	  .value = "N",
	  .min = 1,
	  .max = VERSION_MAX,
	  .help = "number of the old version, where its directory does not "
		  "say it" },
	{ .name = "weight-version",
	  OPT_TO_UINT(struct delta_conf, weight_version),
	  .value = "N",
	  .min = 1,
	  .max = VERSION_MAX,
	  .help = "diff: number of the new version" },
	{ .name = "delta-encoding",
	  OPT_TO_CHOICE(struct delta_conf, encoding),
	  .choices = delta_encodings,
	  .def = "xor",
	  .aliases = { "update-weight-delta-encoding" },
	  .help = "diff: xor and overwrite can be read by slime too, sparse "
		  "and auto (the best for each tensor) only by weir" },
	{ .name = "delta-checksum",
	  OPT_TO_CHOICE(struct delta_conf, checksum),
	  .choices = delta_checksums,
	  .def = "xxh3-128",
	  .aliases = { "update-weight-delta-checksum" },
	  .help = "diff: of each new tensor" },
	{ .name = "wait",
	  OPT_TO_DURATION(struct delta_conf, wait_ms),
	  .value = "TIME",
	  .def = "0",
	  .help = "apply: so long for a delta whose files are not all there "
		  "yet, as on a shared file system" },
	{ .name = "threads",
	  OPT_TO_UINT(struct delta_conf, threads),
	  .value = "N",
	  .def = "0",
	  .max = CREW_THREADS_MAX,
	  .help = "that read and compute at a time; 0: one for each core" },
};

const struct opt_spec delta_spec = {
	.program = "weir-delta",
	.summary = "make, apply and check what changed between two versions",
	.args = "diff OLD NEW | apply DELTA DIR | verify DIR | inspect DIR",
	.min_args = 1,
	.max_args = 3,
	.opts = rows,
	.nopts = COUNT(rows),
	.common = offsetof(struct delta_conf, common),
};

/* "" if no registry is named. */
static int registry_id(const struct delta_conf *conf, char out[VMARK_TEXT_MAX])
{
	struct registry r;
	int rc;

	out[0] = '\0';
	if (!conf->common.registry)
		return 0;
	rc = registry_look(&r, conf->common.registry);
	/* Who works with a registry may not have made it yet. */
	if (rc == -E_NOINPUT && opt_is_from_env(&delta_spec, conf, "registry"))
		return 0;
	if (rc == -E_NOINPUT)
		return log_error(E_NOINPUT, "%s: no registry",
				 conf->common.registry);
	if (rc < 0)
		return rc;
	strcpy(out, r.id);
	registry_close(&r);
	return 0;
}

/* ---- what is printed ---- */

static int print(struct buf *b)
{
	bool ok = fwrite(b->p, 1, b->n, stdout) == b->n && fflush(stdout) == 0;

	buf_release(b);
	return ok ? 0 : log_errno(E_IO, "write");
}

static int tell_json(const char *verb, const struct delta_result *r)
{
	struct buf b = { 0 };
	struct jsonw j;

	jsonw_begin(&j, &b, JSONW_LINE_MAX);
	jsonw_object(&j, NULL);
	jsonw_str(&j, "event", verb);
	jsonw_u64(&j, "version", r->version);
	if (r->base_version)
		jsonw_u64(&j, "base_version", r->base_version);
	if (r->base_version)
		jsonw_str(&j, "encoding", delta_encoding_name(r->encoding));
	jsonw_u64(&j, "tensors", r->tensors);
	jsonw_u64(&j, "changed", r->changed);
	jsonw_u64(&j, "bytes", r->bytes);
	jsonw_u64(&j, "stored", r->stored);
	jsonw_hex(&j, "tensors_digest", r->id.tensors.b, DIGEST_LEN);
	jsonw_hex(&j, "content", r->id.content.b, DIGEST_LEN);
	jsonw_bool(&j, "was_there", r->was_there);
	jsonw_end(&j);
	jsonw_finish(&j);
	return print(&b);
}

static int tell(const struct delta_conf *conf, const struct delta_result *r)
{
	const char *verb = conf->common.args.v[0];
	const char *place = conf->common.args.v[conf->common.args.n - 1];
	char bytes[UNITS_MAX], stored[UNITS_MAX];
	struct buf b = { 0 };

	if (conf->common.json)
		return tell_json(verb, r);
	if (conf->common.quiet)
		return 0;
	if (conf->out)
		place = conf->out;
	units_size(r->bytes, bytes);
	units_size(r->stored, stored);
	if (strcmp(verb, "verify") == 0)
		buf_addf(&b, "%s: version %llu, every byte as it was written\n",
			 place, (ull)r->version);
	else if (r->was_there)
		buf_addf(&b, "%s: version %llu already\n", place,
			 (ull)r->version);
	else
		buf_addf(&b,
			 "%s: version %llu from %llu: %u of %u tensors (%s) "
			 "changed, %s as %s\n",
			 place, (ull)r->version, (ull)r->base_version,
			 r->changed, r->tensors, bytes, stored,
			 delta_encoding_name(r->encoding));
	return print(&b);
}

static void add_tensor(const struct delta *d, uint32_t i, struct buf *b)
{
	const struct delta_tensor *t = &d->tensor[i];

	buf_addf(b, "  %.*s  %s [%s]  %s  %llu bytes\n", SLICE_ARG(t->name),
		 t->dtype < ST_NDTYPES ? st_dtype_name(t->dtype) : "?",
		 t->shape ? t->shape : "?", patch_name(t->kind), (ull)t->bytes);
}

static int tell_delta(const struct delta_conf *conf, const struct delta *d)
{
	struct delta_result r = {
		.version = d->version,
		.base_version = d->base_version,
		.encoding = d->encoding,
		.changed = d->n,
		.stored = d->stored,
		.id = { .tensors = d->tensors, .content = d->content },
	};
	char stored[UNITS_MAX], hex[DIGEST_HEX];
	struct buf b = { 0 };

	if (conf->common.json)
		return tell_json("inspect", &r);
	buf_addf(&b,
		 "delta of version %llu from %llu: %u tensor%s, %s in %u "
		 "file%s, encoding %s, checksums %s, written by %s\n",
		 (ull)d->version, (ull)d->base_version, d->n, plural(d->n),
		 units_size(d->stored, stored), d->nfiles, plural(d->nfiles),
		 delta_encoding_name(d->encoding), checksum_name(d->checksum),
		 d->is_weirs ? "weir" : "another");
	if (d->is_weirs) {
		buf_addf(&b, "base %s\n", digest_hex(&d->parent_tensors, hex));
		buf_addf(&b, "makes %s\n", digest_hex(&d->tensors, hex));
	}
	if (d->registry[0])
		buf_addf(&b, "registry %s\n", d->registry);
	for (uint32_t i = 0; conf->common.verbose && i < d->n; i++)
		add_tensor(d, i, &b);
	return print(&b);
}

static int tell_version(const struct delta_conf *conf, const struct source *s,
			const struct vmark *m)
{
	struct delta_result r = { .version = m->version,
				  .tensors = s->ntensors,
				  .bytes = s->bytes,
				  .id = m->id };
	char bytes[UNITS_MAX], hex[DIGEST_HEX];
	struct buf b = { 0 };

	if (conf->common.json)
		return tell_json("inspect", &r);
	buf_addf(&b, "version %llu, %s: %u tensor%s, %s in %u shard%s\n",
		 (ull)m->version,
		 strcmp(m->kind, "delta") ? "written whole" : "made by a delta",
		 s->ntensors, plural(s->ntensors), units_size(s->bytes, bytes),
		 s->nshards, plural(s->nshards));
	buf_addf(&b, "tensors %s\n", digest_hex(&m->id.tensors, hex));
	buf_addf(&b, "content %s\n", digest_hex(&m->id.content, hex));
	if (m->registry[0])
		buf_addf(&b, "registry %s\n", m->registry);
	return print(&b);
}

/* ---- verbs ---- */

static int run_diff(const struct delta_conf *conf)
{
	char registry[VMARK_TEXT_MAX];
	struct delta_diff c = {
		.old = conf->common.args.v[1],
		.new = conf->common.args.v[2],
		.out = conf->out,
		.base_version = conf->base_version,
		.version = conf->weight_version,
		.encoding = delta_encoding_of(conf->encoding),
		.checksum = (enum checksum_kind)conf->checksum,
		.registry = registry,
		.threads = (unsigned)conf->threads,
	};
	struct delta_result r;
	int rc = registry_id(conf, registry);

	if (rc == 0 && !c.out)
		rc = log_error(E_USAGE, "diff needs -o DIR");
	if (rc == 0)
		rc = delta_diff(&c, &r);
	return rc < 0 ? rc : tell(conf, &r);
}

static int run_apply(const struct delta_conf *conf)
{
	char registry[VMARK_TEXT_MAX];
	struct delta_apply c = {
		.delta = conf->common.args.v[1],
		.dir = conf->common.args.v[2],
		.out = conf->out,
		.base_version = conf->base_version,
		.registry = registry,
		.threads = (unsigned)conf->threads,
		.wait_ms = conf->wait_ms,
	};
	struct delta_result r;
	int rc = registry_id(conf, registry);

	if (rc == 0)
		rc = delta_apply(&c, &r);
	return rc < 0 ? rc : tell(conf, &r);
}

static int run_verify(const struct delta_conf *conf)
{
	struct delta_result r;
	int rc = delta_verify(conf->common.args.v[1], (unsigned)conf->threads,
			      &r);

	return rc < 0 ? rc : tell(conf, &r);
}

static int inspect_version(const struct delta_conf *conf, const char *path)
{
	struct source s;
	struct vmark m;
	int rc = source_open(&s, path);

	if (rc < 0)
		return rc;
	rc = vmark_read(s.dir.fd, path, &m);
	if (rc > 0)
		rc = tell_version(conf, &s, &m);
	else if (rc == 0)
		rc = log_error(E_DATA, "%s: a checkpoint without a %s", path,
			       VMARK_NAME);
	source_release(&s);
	return rc;
}

static int run_inspect(const struct delta_conf *conf)
{
	const char *path = conf->common.args.v[1];
	struct delta d;
	int rc = delta_is_one(path);

	if (rc <= 0)
		return rc < 0 ? rc : inspect_version(conf, path);
	rc = delta_open(&d, path);
	if (rc < 0)
		return rc;
	rc = tell_delta(conf, &d);
	delta_close(&d);
	return rc;
}

static const struct {
	const char *name;
	size_t args; /* and the verb itself */
	int (*run)(const struct delta_conf *conf);
	const char *usage;
} verbs[] = {
	{ "diff", 3, run_diff, "OLD NEW -o DIR" },
	{ "apply", 3, run_apply, "DELTA DIR" },
	{ "verify", 2, run_verify, "DIR" },
	{ "inspect", 2, run_inspect, "DIR" },
};

int delta_tool_run(const struct delta_conf *conf)
{
	const struct opt_list *args = &conf->common.args;

	for (size_t i = 0; i < COUNT(verbs); i++) {
		if (strcmp(args->v[0], verbs[i].name) != 0)
			continue;
		if (args->n != verbs[i].args)
			return err_exit_code(
				log_error(E_USAGE, "usage: weir delta %s %s",
					  verbs[i].name, verbs[i].usage));
		return err_exit_code(verbs[i].run(conf));
	}
	return err_exit_code(log_error(E_USAGE,
				       "unknown action \"%s\": expected diff, "
				       "apply, verify or inspect",
				       args->v[0]));
}
