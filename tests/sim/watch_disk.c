/* What is on the disk, and ends: I1, I2, I9, I11, I12, I13. */
#include "server.h"
#include "watch.h"

#include "pipes/recfile.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define READ_NS (3 * SIM_S) /* at most, of a reader */
#define ULL(x) ((unsigned long long)(x))

static uint64_t cuts; /* of the power: what was open is not */

/* ---- looking ---- */

static struct node *find(const char *path, bool durable)
{
	struct node *n = disk_root();

	while (n && *path) {
		size_t len = strcspn(++path, "/");
		const struct entries *e = durable ? &n->in_safe : &n->in;

		n = NULL;
		for (size_t i = 0; i < e->n && !n; i++)
			if (strncmp(e->v[i].name, path, len) == 0 &&
			    e->v[i].name[len] == '\0')
				n = e->v[i].node;
		path += len;
	}
	return n;
}

bool seen_file(const char *path, bool durable, struct slice *out)
{
	struct node *n = find(path, durable);

	if (!n || n->kind != N_FILE)
		return false;
	*out = durable ? (struct slice){ n->safe, n->nsafe }
		       : (struct slice){ n->data, n->size };
	return true;
}

bool seen_record(const char *path, bool durable, enum msg_type type,
		 struct msg *m)
{
	struct rec_reader r = { .name = path };

	if (!seen_file(path, durable, &r.all) ||
	    r.all.n < strlen(RECFILE_MAGIC))
		return false;
	r.off = strlen(RECFILE_MAGIC);
	return rec_next(&r, m, &watch.arena) > 0 && m->type == type;
}

static void decision_path(char *out, size_t size, uint64_t version)
{
	snprintf(out, size, "/reg/versions/%06llu/decision", ULL(version));
}

bool seen_decided(uint64_t version, bool durable)
{
	char path[64];
	struct msg m;

	decision_path(path, sizeof path, version);
	return seen_record(path, durable, M_decision, &m);
}

static bool same_file(const struct node *dir, const struct entry *e)
{
	struct node *n = disk_lookup(dir, e->name);

	return n && n->size == e->node->size &&
	       memcmp(n->data, e->node->data, n->size) == 0;
}

const struct decided *seen_content(const struct digest *content)
{
	for (uint64_t v = 1; v < VERSIONS_MAX; v++)
		if (watch.decided[v].is &&
		    memcmp(&watch.decided[v].content, content, 16) == 0)
			return &watch.decided[v];
	return NULL;
}

bool seen_bytes(uint32_t engine, const char *where, uint64_t version,
		uint32_t from)
{
	const struct node *source = world_source(from), *slot;
	char path[64];

	snprintf(path, sizeof path, "/store/%u/%s/%06llu", engine, where,
		 ULL(version));
	slot = find(path, false);
	if (!source || !slot || slot->in.n != source->in.n)
		return false;
	for (size_t i = 0; i < source->in.n; i++) {
		if (same_file(slot, &source->in.v[i]))
			continue;
		sim_tell("%s differs from %s of source %u", path,
			 source->in.v[i].name, from);
		return false;
	}
	return true;
}

/* ---- the decision ---- */

/* Buckets reserved for engines that are in.  A grant to a wave whose engines
 * are all excluded may be on its way to transfer when that is drained: it
 * holds nobody's memory. */
static uint32_t reserved(const struct m_decision *d, const struct push *p)
{
	const struct seen_run *r = &watch.run[p->index];
	uint32_t n = 0;

	for (uint32_t i = r->head; i < r->n; i++) {
		uint32_t e, end;

		watch_wave(p, r->grant[i].wave, &e, &end);
		while (e < end && d->engines.v[e].excluded)
			e++;
		n += e < end;
	}
	return n;
}

/* What transfer has read; of a rollback what was published before. */
static bool is_of_source(const struct m_decision *d, const struct push *p)
{
	const struct seen_run *r = &watch.run[p->index];

	if (p->kind == PUSH_BACK)
		return seen_content(&d->content) != NULL;
	return r->has_content && memcmp(&r->content, &d->content, 16) == 0;
}

static void check_receipts(const struct m_decision *d, const struct push *p)
{
	uint32_t in = 0;

	for (uint32_t i = 0; i < world.engines; i++) {
		const struct seen_engine *e = &watch.engine[i];

		if (d->engines.v[i].excluded)
			continue;
		if (!e->begun || e->begun_epoch != d->epoch ||
		    !e->gave_receipt || e->version != d->version)
			sim_break("I1",
				  "version %llu is decided without a "
				  "receipt of engine-%u",
				  ULL(d->version), i);
		else if (e->lied || e->lied_ack)
			sim_break("I1",
				  "version %llu is decided, and "
				  "engine-%u has told of other bytes",
				  ULL(d->version), i);
		else if (memcmp(&e->received, &d->content, 16) ||
			 !is_of_source(d, p))
			sim_break("I1",
				  "version %llu is decided, and the "
				  "receipt of engine-%u is of other "
				  "bytes",
				  ULL(d->version), i);
	}
	for (uint32_t i = 0; i < world.engines; i++)
		in += !d->engines.v[i].excluded;
	if (in < (world.min_engines ? world.min_engines : world.engines))
		sim_break("I1", "version %llu is decided for %u engines",
			  ULL(d->version), in);
	if (reserved(d, p) > 0)
		sim_break("I1",
			  "version %llu is decided, and %u buckets are "
			  "reserved",
			  ULL(d->version), reserved(d, p));
}

static void decided(uint64_t version)
{
	const struct push *p;
	struct decided *v;
	uint32_t source;
	char path[64];
	struct msg m;

	decision_path(path, sizeof path, version);
	if (version >= VERSIONS_MAX ||
	    !seen_record(path, false, M_decision, &m))
		return;
	p = world_push(m.decision.run);
	v = &watch.decided[version];
	if (v->is && (p->index != v->push || m.decision.wall_ms != v->wall_ms))
		sim_break("I12", "version %llu is decided twice", ULL(version));
	if (v->is)
		return;
	if (version <= watch.top)
		sim_break("I12", "version %llu is decided after %llu",
			  ULL(version), ULL(watch.top));
	check_receipts(&m.decision, p);
	source = p->source;
	if (p->kind == PUSH_BACK && seen_content(&m.decision.content))
		source = seen_content(&m.decision.content)->source;
	*v = (struct decided){ .is = true,
			       .push = p->index,
			       .source = source,
			       .wall_ms = m.decision.wall_ms,
			       .content = m.decision.content };
	for (uint32_t i = 0; i < world.engines; i++)
		v->in[i] = !m.decision.engines.v[i].excluded;
	watch.top = version;
}

/* ---- what is served ---- */

static uint64_t number_of(const char *s)
{
	uint64_t n = 0;

	while (*s >= '0' && *s <= '9')
		n = 10 * n + (uint64_t)(*s++ - '0');
	return n;
}

/* What `current` names; 0: nothing. */
static uint64_t served(uint32_t e)
{
	char path[48], text[32] = "", *slash;
	struct node *n;

	snprintf(path, sizeof path, "/store/%u/current", e);
	n = find(path, false);
	if (!n || n->kind != N_LINK)
		return 0;
	snprintf(text, sizeof text, "%.*s", (int)n->size, n->data);
	slash = strchr(text, '/');
	return slash ? number_of(slash + 1) : 0;
}

/* The version, 0: none. */
static uint64_t check_served(uint32_t e)
{
	uint64_t version = served(e);

	if (version == 0)
		return 0;
	if (!seen_decided(version, false))
		sim_break("I2", "engine-%u serves version %llu, undecided", e,
			  ULL(version));
	else if (!seen_decided(version, true))
		sim_break("I2",
			  "engine-%u serves version %llu, whose decision "
			  "a power cut would take",
			  e, ULL(version));
	else if (!seen_bytes(e, "versions", version,
			     watch.decided[version % VERSIONS_MAX].source))
		sim_break("I2",
			  "engine-%u serves other bytes than those of "
			  "version %llu",
			  e, ULL(version));
	return version;
}

/* ---- who reads what is served, and goes on when it is retired ---- */

struct reader {
	struct node *file;
	uint64_t cuts;
	size_t n;
	char bytes[];
};

static void read_again(void *arg)
{
	struct reader *r = arg;

	if (r->cuts == cuts) {
		if (r->file->size != r->n ||
		    memcmp(r->file->data, r->bytes, r->n) != 0)
			sim_break("I2", "%s is written while it is read",
				  r->file->name);
		r->file->opens--;
	}
	sim_free(r);
}

static void read_served(uint32_t e, uint64_t version)
{
	int64_t until = sim.now + (int64_t)rng_below(&sim.rng, READ_NS);
	struct node *dir;
	char path[64];

	snprintf(path, sizeof path, "/store/%u/versions/%06llu", e,
		 ULL(version));
	dir = find(path, false);
	for (size_t i = 0; i < dir->in.n; i++) {
		struct node *n = dir->in.v[i].node;
		struct reader *r = sim_alloc(sizeof *r + n->size);

		r->file = n;
		r->cuts = cuts;
		r->n = n->size;
		memcpy(r->bytes, n->data, n->size);
		n->opens++;
		sim_at(until, read_again, r);
	}
}

/* ---- who is behind, and is not forgotten ---- */

/* The last version that was decided with its receipt; 0: none. */
static uint64_t owed(uint32_t e)
{
	uint64_t v = watch.top;

	while (v > 0 && !(watch.decided[v].is && watch.decided[v].in[e]))
		v--;
	return v;
}

static bool is_in_attention(uint32_t e)
{
	struct rec_reader r = { .name = "attention" };
	char name[16];
	struct msg m;

	snprintf(name, sizeof name, "engine-%u", e);
	if (!seen_file("/reg/attention", false, &r.all))
		return false;
	r.off = strlen(RECFILE_MAGIC);
	while (rec_next(&r, &m, &watch.arena) > 0)
		if (m.attention.decided &&
		    slice_eq(m.attention.engine.name, slice_of(name)))
			return true;
	return false;
}

/* With nothing open, who does not serve what it is owed is in attention. */
static void check_owed(void)
{
	for (uint32_t e = 0; e < world.engines; e++)
		if (served(e) < owed(e) && !is_in_attention(e))
			sim_break("I9",
				  "engine-%u serves %llu, is owed %llu, and is "
				  "forgotten",
				  e, ULL(served(e)), ULL(owed(e)));
}

static bool is_registry(const struct node *dir)
{
	return dir->parent == disk_root() && dir->name &&
	       strcmp(dir->name, "reg") == 0;
}

static uint64_t epoch_in(struct slice s)
{
	uint64_t n = 0;

	for (size_t i = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
		n = 10 * n + (uint64_t)(s.p[i] - '0');
	return n;
}

/* The record of a run goes: a power cut leaves its epoch, or that. */
static void check_kept(void)
{
	struct slice text;

	if (!seen_file("/reg/epoch", true, &text) ||
	    epoch_in(text) < watch.begun)
		sim_break("I10",
			  "epoch %llu was used, its run's record goes, and a "
			  "power cut would let it be used again",
			  ULL(watch.begun));
}

/* dir: of a version. */
static bool is_foreign(const struct node *dir)
{
	const struct node *reg = dir->parent ? dir->parent->parent : NULL;

	return reg && reg->name && strcmp(reg->name, "reg") != 0;
}

void watch_named(struct node *dir, const char *name)
{
	struct proc *running = sim.p;
	uint64_t version;
	uint32_t e;

	sim.p = NULL;
	if (strcmp(name, "decision") == 0 && dir->name &&
	    disk_lookup(dir, name) && is_foreign(dir))
		sim_break("I10", "a registry that owns no engine decides");
	else if (strcmp(name, "decision") == 0 && dir->name &&
		 disk_lookup(dir, name))
		decided(number_of(dir->name));
	if ((strcmp(name, "open") == 0 || strcmp(name, "attention") == 0) &&
	    is_registry(dir) && !disk_lookup(dir, "open"))
		check_owed();
	if (strcmp(name, "open") == 0 && is_registry(dir) &&
	    !disk_lookup(dir, "open"))
		check_kept();
	if (strcmp(name, "current") == 0 && dir->parent && dir->parent->name &&
	    strcmp(dir->parent->name, "store") == 0) {
		e = (uint32_t)number_of(dir->name);
		version = check_served(e);
		if (version && !sim.broken)
			read_served(e, version);
	}
	sim.p = running;
}

/* An epoch that was used is known: by the record of its run, or kept. */
static void check_epoch(void)
{
	uint64_t known = 0;
	struct slice text;
	struct msg m;

	if (seen_file("/reg/epoch", false, &text))
		known = epoch_in(text);
	if (seen_record("/reg/open", false, M_open, &m) && m.open.epoch > known)
		known = m.open.epoch;
	if (known < watch.begun)
		sim_break("I10", "epoch %llu was used, and can be used again",
			  ULL(watch.begun));
}

/* What a power cut took was not decided; what it left was. */
void watch_power_cut(void)
{
	cuts++;
	check_epoch();
	watch.top = 0;
	for (uint64_t v = 1; v < VERSIONS_MAX; v++) {
		watch.decided[v].is =
			watch.decided[v].is && seen_decided(v, false);
		if (watch.decided[v].is)
			watch.top = v;
	}
	for (uint32_t e = 0; e < world.engines && !sim.broken; e++)
		if (check_served(e) < watch.engine[e].said)
			sim_break("I12",
				  "engine-%u has served %llu, which a "
				  "power cut took",
				  e, ULL(watch.engine[e].said));
}

/* ---- ends ---- */

static bool run_is_decided(uint32_t push)
{
	const struct push *p = &world.push[push];

	/* These decide nothing: it is published already. */
	if (p->kind == PUSH_JOIN)
		return watch.top > 0;
	if (p->kind == PUSH_AGAIN && watch.decided[p->number].is)
		return watch.decided[p->number].source == p->source;
	for (uint64_t v = 1; v < VERSIONS_MAX; v++)
		if (watch.decided[v].is && watch.decided[v].push == push &&
		    seen_decided(v, false))
			return true;
	return false;
}

/* The run is aborted, and all serve the old version: then its epoch is closed
 * wherever it was begun. */
static void check_aborted(uint32_t push)
{
	for (uint32_t i = 0; i < world.engines; i++) {
		const struct seen_engine *e = &watch.engine[i];

		if (e->begun && e->push == push && e->begun_epoch == e->epoch &&
		    !e->closed)
			sim_break("I7",
				  "r%u is aborted, and engine-%u has not "
				  "heard of it",
				  push, i);
	}
}

/* What a run is to bring to its engines. */
static uint64_t goal_of(const struct push *p)
{
	if (p->kind == PUSH_AGAIN)
		return p->number;
	for (uint64_t v = 1; v < VERSIONS_MAX; v++)
		if (watch.decided[v].is && watch.decided[v].push == p->index)
			return v;
	return watch.top;
}

/* Published to all: each of them says so, or serves a later one when a commit
 * that is started again by hand tells of a run that is over. */
static void check_told_all(const struct push *p)
{
	uint64_t version = goal_of(p);

	for (uint32_t i = 0; i < p->nfleet && !sim.broken; i++)
		if (watch.engine[p->fleet[i]].said < version ||
		    (p->kind == PUSH_AGAIN &&
		     watch.engine[p->fleet[i]].said > version))
			sim_break("I11",
				  "r%u is published to all, and engine-%u "
				  "serves %llu, not %llu",
				  p->index, p->fleet[i],
				  ULL(watch.engine[p->fleet[i]].said),
				  ULL(version));
}

static bool decides(uint32_t push)
{
	const struct push *p = &world.push[push];

	return p->kind == PUSH_ALL || p->kind == PUSH_BACK;
}

/* An exit code is a promise: 0 and 3 published, 1 and 2 not. */
void watch_exit(struct proc *p)
{
	bool is, stage = strncmp(p->name, "engine-", 7) != 0;

	/* What it alone has heard died with it; the bytes were right. */
	if (strcmp(p->name, "transfer") == 0)
		for (uint32_t i = 0; i < world.engines; i++)
			watch.engine[i].lied_ack = false;
	if (!stage || p->code >= 128)
		return;
	is = run_is_decided(p->where);
	if ((p->code == 0 || p->code == 3) && !is)
		sim_break("I11",
			  "%s of r%u ends with %d, and it is not "
			  "published",
			  p->name, p->where, p->code);
	if (p->code == 1 && strcmp(p->name, "commit") == 0)
		check_aborted(p->where);
	if (p->code == 0 && strcmp(p->name, "commit") == 0)
		check_told_all(&world.push[p->where]);
	if ((p->code == 1 || p->code == 2) && is && decides(p->where))
		sim_break("I11", "%s of r%u ends with %d, and it is published",
			  p->name, p->where, p->code);
}

/* A stage of a push that was killed may be in a slow write yet; a temporary
 * name ends in its pid and a number. */
static bool is_being_written(const char *tmp)
{
	const char *end = strrchr(tmp, '.');
	const char *pid = end ? memrchr(tmp, '.', (size_t)(end - tmp)) : NULL;

	for (struct proc *p = sim.procs; pid && p; p = p->next)
		if (p->pid == atoi(pid + 1))
			return true;
	return false;
}

static void check_empty(const char *path, const char *what)
{
	struct node *n = find(path, false);

	for (size_t i = 0; n && i < n->in.n; i++) {
		const char *name = n->in.v[i].name, *end = strrchr(name, '.');

		if ((strncmp(name, ".tmp", 4) == 0 &&
		     !is_being_written(name)) ||
		    (what && strcmp(what, "all") == 0) ||
		    (what && end && strcmp(end, what) == 0))
			sim_break("I9", "%s/%s is left behind", path, name);
	}
}

static void check_left_behind(void)
{
	char path[64];

	for (uint32_t i = 0; i < world.pushes; i++) {
		if (world.push[i].code < 0)
			continue;
		snprintf(path, sizeof path, "/run/%s", world.push[i].run);
		if (i + 1 == world.pushes)
			check_empty(path, ".sock");
	}
	check_empty("/reg", NULL);
	if (find("/reg/open", false))
		sim_break("I9", "registry/open is left behind");
	for (uint32_t e = 0; e < world.engines; e++) {
		snprintf(path, sizeof path, "/store/%u/staging", e);
		check_empty(path, "all");
		snprintf(path, sizeof path, "/store/%u", e);
		check_empty(path, NULL);
	}
}

/* The last push met no fault: it must have healed all. */
void watch_end_of_world(void)
{
	const struct push *last = &world.push[world.pushes - 1];

	if (sim.broken)
		return;
	if (last->code == 65 && watch_oversize(last->index))
		return;
	if (last->code != 0)
		sim_break("I9", "a push without a fault ends with %d",
			  last->code);
	check_epoch();
	for (uint32_t e = 0; e < world.engines && !sim.broken; e++) {
		check_served(e);
		if (watch.engine[e].said != watch.top)
			sim_break("I9", "engine-%u serves %llu, not %llu", e,
				  ULL(watch.engine[e].said), ULL(watch.top));
	}
	if (!sim.broken)
		servers_check_end();
	check_left_behind();
	for (uint32_t i = 0; i < world.pushes; i++) {
		const struct push *p = &world.push[i];
		int64_t most = (world.run_ms + 120000) * SIM_MS;

		if (p->ended - p->began > most)
			sim_break("I13", "push %s took %lld s", p->run,
				  (long long)((p->ended - p->began) / SIM_S));
	}
}
