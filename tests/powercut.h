/*
 * powercut.h - what a power cut leaves of a directory: nothing that was not
 * synced.
 *
 *	power_begin(dir, grave);	what is there is durable
 *	...				wrapped calls come here
 *	power_cut(true);
 *
 * Content is what it was at the file's last fsync, or nothing.  Names are
 * those of the last fsync of a directory, in the order of a journal: what came
 * before the last change to that directory is durable with it.  power_cut(false)
 * keeps all names, as if the kernel had written them just then: a rename
 * without fsync shows an empty file.
 *
 * Names that are replaced or removed are kept in the grave, so that they can
 * come back.  Files are at most POWER_BYTES large, and there are few.
 */
#ifndef WEIR_POWERCUT_H
#define WEIR_POWERCUT_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POWER_BYTES 8192
#define POWER_FILES 256
#define POWER_OPS 1024
#define POWER_PATH 512

int __real_renameat(int a, const char *b, int c, const char *d);
int __real_unlinkat(int a, const char *b, int c);
int __real_symlinkat(const char *a, int b, const char *c);
int __real_mkdirat(int a, const char *b, mode_t c);
int __real_fsync(int a);

struct power_file {
	ino_t ino;
	ssize_t n;
	char bytes[POWER_BYTES];
};

struct power_op {		/* undone: to goes (to from), kept comes back */
	char from[POWER_PATH], to[POWER_PATH], kept[POWER_PATH];
};

static struct {
	bool on;
	char dir[POWER_PATH], grave[POWER_PATH];
	struct power_file file[POWER_FILES];
	struct power_op op[POWER_OPS];
	unsigned nfiles, nops, nkept;
} power;

static void power_path(int fd, const char *name, char out[POWER_PATH])
{
	char link[64], at[POWER_PATH / 2] = "";

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (*name != '/' && readlink(link, at, sizeof at - 1) < 0)
		abort();
	snprintf(out, POWER_PATH, "%.*s%s%.200s", (int)sizeof at, at,
		 *name == '/' ? "" : "/", name);
}

/* The file's content is durable as it is now. */
static void power_keep(const char *path, ino_t ino)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned i = 0;

	if (fd < 0)
		abort();
	while (i < power.nfiles && power.file[i].ino != ino)
		i++;
	if (i == POWER_FILES)
		abort();
	power.nfiles += i == power.nfiles;
	power.file[i].ino = ino;
	power.file[i].n = read(fd, power.file[i].bytes, POWER_BYTES);
	close(fd);
}

static int power_see(const char *path, const struct stat *st, int kind,
		     struct FTW *where)
{
	(void)where;
	if (kind == FTW_F)
		power_keep(path, st->st_ino);
	return 0;
}

static void power_begin(const char *dir, const char *grave)
{
	snprintf(power.dir, POWER_PATH, "%s", dir);
	snprintf(power.grave, POWER_PATH, "%s", grave);
	mkdir(grave, 0700);
	nftw(dir, power_see, 8, FTW_PHYS);
	power.on = true;
}

static struct power_op *power_op(const char *from, const char *to)
{
	struct power_op *o = &power.op[power.nops++];

	if (power.nops == POWER_OPS)
		abort();
	memset(o, 0, sizeof *o);
	strcpy(o->from, from);
	strcpy(o->to, to);
	return o;
}

/* If something is there, it goes to the grave. */
static void power_bury(struct power_op *o)
{
	struct stat st;

	if (lstat(o->to, &st) < 0)
		return;
	snprintf(o->kept, POWER_PATH, "%.200s/%u", power.grave, power.nkept++);
	if (__real_renameat(AT_FDCWD, o->to, AT_FDCWD, o->kept) < 0)
		abort();
}

static int power_rename(int a, const char *b, int c, const char *d)
{
	char from[POWER_PATH], to[POWER_PATH];

	power_path(a, b, from);
	power_path(c, d, to);
	power_bury(power_op(from, to));
	return __real_renameat(a, b, c, d);
}

static int power_unlink(int a, const char *b, int flags)
{
	char path[POWER_PATH];
	struct stat st;

	if (fstatat(a, b, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    S_ISDIR(st.st_mode) != !!(flags & AT_REMOVEDIR))
		return __real_unlinkat(a, b, flags); /* which fails */
	power_path(a, b, path);
	power_bury(power_op("", path));
	return 0;
}

static int power_symlink(const char *a, int b, const char *c)
{
	char path[POWER_PATH];

	power_path(b, c, path);
	power_op("", path);
	return __real_symlinkat(a, b, c);
}

static int power_mkdir(int a, const char *b, mode_t mode)
{
	char path[POWER_PATH];

	power_path(a, b, path);
	power_op("", path);
	return __real_mkdirat(a, b, mode);
}

static bool power_is_in(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/' &&
	       !strchr(path + n + 1, '/');
}

/* Up to the last change to this directory, all are durable. */
static void power_commit(const char *dir)
{
	unsigned n = power.nops;

	while (n > 0 && !power_is_in(power.op[n - 1].from, dir) &&
	       !power_is_in(power.op[n - 1].to, dir))
		n--;
	power.nops -= n;
	memmove(power.op, power.op + n, power.nops * sizeof *power.op);
}

static int power_fsync(int fd)
{
	char path[POWER_PATH];
	struct stat st;
	int rc = __real_fsync(fd);

	if (rc < 0 || fstat(fd, &st) < 0)
		return rc;
	power_path(fd, "", path);
	path[strlen(path) - 1] = '\0';
	if (S_ISDIR(st.st_mode))
		power_commit(path);
	else if (S_ISREG(st.st_mode))
		power_keep(path, st.st_ino);
	return rc;
}

static void power_undo(const struct power_op *o)
{
	static unsigned lost;
	char away[POWER_PATH];

	snprintf(away, POWER_PATH, "%.200s/lost%u", power.grave, lost++);
	__real_renameat(AT_FDCWD, o->to, AT_FDCWD,
			o->from[0] ? o->from : away);
	if (o->kept[0])
		__real_renameat(AT_FDCWD, o->kept, AT_FDCWD, o->to);
}

static int power_lose(const char *path, const struct stat *st, int kind,
		      struct FTW *where)
{
	int fd = kind == FTW_F ? open(path, O_RDWR | O_CLOEXEC) : -1;

	(void)where;
	if (fd < 0)
		return 0;
	if (ftruncate(fd, 0) < 0)
		abort();
	for (unsigned i = 0; i < power.nfiles; i++)
		if (power.file[i].ino == st->st_ino &&
		    pwrite(fd, power.file[i].bytes, (size_t)power.file[i].n,
			   0) < 0)
			abort();
	close(fd);
	return 0;
}

static void power_cut(bool names_too)
{
	power.on = false;
	while (names_too && power.nops > 0)
		power_undo(&power.op[--power.nops]);
	nftw(power.dir, power_lose, 8, FTW_PHYS);
}

#endif
