/*
 * Killed at every step of writing a version directory and of fetching one: a
 * directory is absent, what it was, or whole, a store serves what it served,
 * and trying again succeeds and leaves nothing behind.  And: all that is in it
 * was synced when it got its name.
 */
#include "common/err.h"
#include "common/io.h"
#include "pipes/beside.h"
#include "pipes/delta.h"
#include "pipes/fetch.h"
#include "pipes/seal.h"
#include "pipes/vdir_write.h"
#include "tests/files.h"
#include "tests/synced.h"
#include "tests/tap.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define CRASHED 9
#define STEPS_MAX 200
#define TENSOR 70000u
#define REGISTRY "0123456789abcdef0123456789abcdef"

static char root[64];
static char disk[96], store_dir[96];
static atomic_bool never;

/* ---- checkpoints, and plans of them ---- */

struct version {
	char dir[96];
	struct source source;
	struct plan plan;
	struct plan_rank rank;
	struct plan_file file[4];
	int fd[4];
	struct vdir_write write;
};

static void put(const char *dir, const char *name, const void *p, size_t n)
{
	char path[160];
	int fd;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	file_with(fd, p, n);
	close(fd);
}

static void make_shard(const char *dir, const char *name, char changed)
{
	static const char head[] =
		"{\"a\":{\"dtype\":\"U8\",\"shape\":[70000],"
		"\"data_offsets\":[0,70000]},\"b\":{\"dtype\":\"U8\","
		"\"shape\":[70000],\"data_offsets\":[70000,140000]}}";
	uint64_t n = sizeof head - 1;
	size_t size = 8 + n + 2 * TENSOR;
	char *p = xcalloc(size, 1);

	memcpy(p, &n, 8);
	memcpy(p + 8, head, n);
	fill(p + 8 + n, 2 * TENSOR, 3);
	p[8 + n + 17] = changed;
	put(dir, name, p, size);
	free(p);
}

static void begin_version(struct version *v, const char *name)
{
	*v = (struct version){ 0 };
	snprintf(v->dir, sizeof v->dir, "%s/%s", root, name);
	BUG_ON(mkdir(v->dir, 0700) < 0);
	put(v->dir, "config.json", "{}", 2);
}

static void end_version(struct version *v, uint64_t number)
{
	BUG_ON(source_open(&v->source, v->dir) < 0);
	v->rank = (struct plan_rank){ .source = v->dir,
				      .files = v->source.nfiles };
	for (uint32_t i = 0; i < v->source.nfiles; i++) {
		const struct source_file *f = &v->source.file[i];

		v->file[i] = (struct plan_file){ .path = f->path,
						 .bytes = f->id.size };
		v->plan.bytes += f->id.size;
		v->fd[i] = source_open_file(&v->source, i);
	}
	v->plan.structure = v->source.structure;
	v->plan.rank = &v->rank;
	v->plan.file = v->file;
	v->plan.nranks = 1;
	v->plan.nfiles = v->source.nfiles;
	v->write = (struct vdir_write){ .disk_dir = disk,
					.plan = &v->plan,
					.fd = v->fd,
					.registry = REGISTRY,
					.version = number,
					.threads = 2,
					.cancel = &never };
}

static void make_version(struct version *v, const char *name, char changed,
			 uint64_t number)
{
	begin_version(v, name);
	make_shard(v->dir, "model.safetensors", changed);
	end_version(v, number);
}

/* Its shard is two directories down. */
static void make_deep(struct version *v, const char *name, uint64_t number)
{
	static const char index[] = "{\"metadata\":{},\"weight_map\":{"
				    "\"a\":\"deep/er/m.safetensors\","
				    "\"b\":\"deep/er/m.safetensors\"}}";
	char path[160];

	begin_version(v, name);
	snprintf(path, sizeof path, "%s/deep", v->dir);
	BUG_ON(mkdir(path, 0700) < 0);
	snprintf(path, sizeof path, "%s/deep/er", v->dir);
	BUG_ON(mkdir(path, 0700) < 0);
	make_shard(v->dir, "deep/er/m.safetensors", 4);
	put(v->dir, "model.safetensors.index.json", index, sizeof index - 1);
	end_version(v, number);
}

static void unmake_version(struct version *v)
{
	for (uint32_t i = 0; i < v->source.nfiles; i++)
		close(v->fd[i]);
	source_release(&v->source);
}

static struct version one, other, two, deep;

/* ---- crashes ---- */

static int countdown;

static void die_at_step(const char *what)
{
	(void)what;
	if (__atomic_sub_fetch(&countdown, 1, __ATOMIC_SEQ_CST) == 0)
		_exit(CRASHED);
}

/* In a child that dies at its n-th step: did it? */
static bool crash_at(int n, int (*fn)(unsigned), unsigned arg)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		countdown = n;
		beside_step = die_at_step;
		_exit(fn(arg) < 0 ? 1 : 0);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CRASHED)
		return true;
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "step %d: done, as no step is left", n);
	return false;
}

static void drop(const char *dir)
{
	io_remove_tree(AT_FDCWD, dir);
}

/* How many names are in it. */
static unsigned entries(const char *dir)
{
	int fd = io_open_dir(AT_FDCWD, dir);
	DIR *d = fdopendir(fd);
	struct dirent *e;
	unsigned n = 0;

	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

/* Absent, or whole and with that content. */
static bool is_whole(uint64_t number, const struct digest *content)
{
	char *path = vdir_path(disk, number);
	struct delta_result r;
	struct vdir d;
	bool good = vdir_open(&d, path) == 0 &&
		    delta_verify(path, 2, &r) == 0 &&
		    digest_eq(&d.mark.id.content, content);

	vdir_close(&d);
	free(path);
	return good;
}

static bool is_absent(uint64_t number)
{
	char *path = vdir_path(disk, number);
	bool absent = access(path, F_OK) < 0;

	free(path);
	return absent;
}

/* ---- writing ---- */

static struct vdir_made made; /* last */
static struct digest base;

static int write_one(unsigned arg)
{
	struct vdir_made m;
	int rc = vdir_write_full(arg ? &other.write : &one.write, &m);

	if (rc < 0)
		return rc;
	free(made.path);
	made = m;
	return 0;
}

static void test_full(void)
{
	bool good = write_one(0) == 0;
	int n;

	for (n = 1; n < STEPS_MAX; n++) {
		drop(disk);
		mkdir(disk, 0700);
		if (!crash_at(n, write_one, 0))
			break;
		good = good &&
		       (is_absent(1) || is_whole(1, &made.content) || n == 1);
		good = good && write_one(0) == 0 &&
		       is_whole(1, &made.content) && entries(disk) == 1;
	}
	ok(good && n > 6 && n < STEPS_MAX,
	   "full: died at each of %d steps: absent or whole", n - 1);
}

static void test_replaced(void)
{
	struct digest was, is;
	bool good = true;
	int n, old = 0;

	write_one(1);
	is = made.content;
	for (n = 1; n < STEPS_MAX; n++) {
		drop(disk);
		mkdir(disk, 0700);
		write_one(0);
		was = made.content;
		if (!crash_at(n, write_one, 1))
			break;
		old += is_whole(1, &was);
		good = good && (is_whole(1, &was) || is_whole(1, &is));
		good = good && write_one(1) == 0 && is_whole(1, &is) &&
		       entries(disk) == 1;
	}
	ok(good && old > 5 && n - 1 > old && n < STEPS_MAX,
	   "DK-07 replaced: died at each of %d steps: old or new", n - 1);
}

static void test_synced(void)
{
	struct vdir_made m;

	synced_begin();
	eq_i64(vdir_write_full(&deep.write, &m), 0, "one with directories");
	synced_end();
	eq_u64(synced.appeared, 1, "it got its name");
	eq_u64(synced.unsynced, 0,
	       "FS-01 with nothing in it that was not synced");
	ok(is_whole(deep.write.version, &m.content), "and is whole");
	free(m.path);
}

static int write_two(unsigned encoding)
{
	struct vdir_diff c = { .base = 1,
			       .content = &base,
			       .encoding = encoding };
	struct vdir_made m;
	int rc = vdir_write_diff(&two.write, &c, &m);

	if (rc < 0)
		return rc;
	free(made.path);
	made = m;
	return 0;
}

static void test_diff(unsigned encoding)
{
	bool good = true;
	int n;

	write_two(encoding);
	for (n = 1; n < STEPS_MAX; n++) {
		char *path = vdir_path(disk, 2);

		drop(path);
		free(path);
		if (!crash_at(n, write_two, encoding))
			break;
		good = good && (is_absent(2) || is_whole(2, &made.content));
		good = good && write_two(encoding) == 0 &&
		       is_whole(2, &made.content) && entries(disk) == 2;
	}
	ok(good && made.bytes < TENSOR && n > 5 && n < STEPS_MAX,
	   "%s: died at each of %d steps: absent or whole",
	   delta_encoding_name(encoding), n - 1);
}

/* ---- fetching ---- */

static void want(const struct version *v, struct store_slot *out)
{
	struct m_slotfile f[4] = { 0 };
	struct m_begin b = { .fence = { .registry = SLICE(REGISTRY),
					.epoch = v->write.version,
					.run = SLICE("r") },
			     .version = v->write.version,
			     .structure = v->plan.structure,
			     .bytes = v->plan.bytes,
			     .workers = 1,
			     .whole = true,
			     .files = { f, v->plan.nfiles } };

	for (uint32_t i = 0; i < v->plan.nfiles; i++) {
		const struct source_file *s = &v->source.file[i];

		f[i] = (struct m_slotfile){ .path = slice_of(s->path),
					    .bytes = s->id.size,
					    .kind = FILE_CARRIED };
		if (s->kind != SOURCE_SHARD)
			continue;
		f[i].kind = FILE_SHARD;
		f[i].header = s->st.data_start;
		f[i].digest = s->st.header;
	}
	BUG_ON(store_slot_init(out, &b) < 0);
}

static int load(struct store *s, struct store_slot *slot)
{
	struct store_making k;
	struct store_files files = { 0 };
	struct store_slot has = { 0 };
	struct fetch f = { .store = s,
			   .slot = slot,
			   .place = vdir_path(disk, slot->version),
			   .threads = 2,
			   .cancel = &never };
	struct seal seal = {
		.store = s, .files = &files, .cancel = &never, .slot = slot
	};
	int rc = store_make_names(s, slot, &k);

	if (rc == 0)
		rc = store_make_space(&k, &never, &files);
	if (rc == 0 && s->serving &&
	    store_slot_load(s, s->serving, &has) == 0) {
		f.has = s->serving;
		f.has_content = has.received;
		f.has_path = store_version_path(s, s->serving);
	}
	if (rc == 0)
		rc = fetch_run(&f);
	if (rc == 0)
		rc = seal_run(&seal);
	if (rc == 0)
		rc = store_seal(s, slot);
	if (rc == 0)
		rc = store_publish(s);
	store_files_release(&files);
	store_slot_release(&has);
	fetch_release(&f);
	return rc;
}

/* A start, a load unless it is there, an end. */
static int engine(const struct version *v, uint64_t *was)
{
	struct store s = STORE_CLOSED;
	struct store_slot slot = { 0 };
	int rc = store_open(&s, store_dir, 2);

	if (was)
		*was = s.serving;
	want(v, &slot);
	if (rc == 0 && s.serving < v->write.version)
		rc = load(&s, &slot);
	store_slot_release(&slot);
	store_close(&s);
	return rc;
}

static int load_two(unsigned arg)
{
	(void)arg;
	return engine(&two, NULL);
}

static bool serves(const struct version *v)
{
	char cmd[256];

	snprintf(cmd, sizeof cmd, "diff -r %s %s/versions/%06u", v->dir,
		 store_dir, (unsigned)v->write.version);
	return system(cmd) == 0;
}

static void test_fetch(const char *what)
{
	bool good = true;
	uint64_t was;
	int n, old = 0;

	for (n = 1; n < STEPS_MAX; n++) {
		drop(store_dir);
		good = good && engine(&one, NULL) == 0 && serves(&one);
		if (!crash_at(n, load_two, 0))
			break;
		good = good && serves(&one);
		good = good && engine(&two, &was) == 0 && serves(&two);
		old += was == 1;
	}
	ok(good && old == n - 1 && n > 4 && n < STEPS_MAX,
	   "DK-01 %s: fetch died at each of %d steps: serves the old version, "
	   "then the new one",
	   what, n - 1);
}

int main(void)
{
	static const unsigned encodings[] = { PATCH_XOR, PATCH_OVERWRITE };

	log_quiet_thread(1);
	new_root(root, sizeof root, "weir-unit-vdir");
	snprintf(disk, sizeof disk, "%s/disk", root);
	snprintf(store_dir, sizeof store_dir, "%s/store", root);
	make_version(&one, "one", 1, 1);
	make_version(&other, "other", 2, 1);
	make_version(&two, "two", 3, 2);
	make_deep(&deep, "deep", 3);
	mkdir(disk, 0700);
	test_full();
	test_replaced();
	test_synced();
	drop(disk);
	mkdir(disk, 0700);
	write_one(0);
	base = made.content;
	for (size_t i = 0; i < COUNT(encodings); i++) {
		test_diff(encodings[i]);
		test_fetch(delta_encoding_name(encodings[i]));
	}
	free(made.path);
	unmake_version(&one);
	unmake_version(&other);
	unmake_version(&two);
	unmake_version(&deep);
	drop(root);
	return tap_done();
}
