/*
 * leftovers - what is left of weir below a directory, and what a process that
 * goes on has taken: the one checker of all suites.
 *
 *	leftovers DIR [--serving STORE]... [--living PID]...
 *		prints what is left of a test, one a line; 1: something is
 *	leftovers --of PID
 *		what it has open, mapped files and threads, sorted
 *
 * DIR is a test's own: run directories, registries, temporary files and
 * sockets are below it, and its processes have WEIR_TEST_DIR=DIR, or a
 * directory below DIR.  A socket is none while somebody listens.  In STORE, of
 * an engine that is in no run, nothing may be staged.  Of PID it is known that
 * it lives.  Nothing of weir's has a name in /dev/shm.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SHM "/dev/shm" /* LEFTOVERS_SHM: another directory in its place */
#define ENVIRON_MAX (1u << 18) /* bytes; of more, the rest is not seen */
#define WALK_FDS 20
#define AT_MAX (PATH_MAX + NAME_MAX + 2)

static int found;

static void left(const char *what, const char *path)
{
	printf("%s%s\n", what, path);
	found++;
}

/* ---- names ---- */

static bool accepts(const char *path, int kind)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, kind | SOCK_CLOEXEC, 0);
	bool good;

	if (strlen(path) >= sizeof a.sun_path) {
		close(fd);
		return false;
	}
	memcpy(a.sun_path, path, strlen(path));
	good = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
	close(fd);
	return good;
}

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);

	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool is_temporary(const char *name)
{
	return ends_in(name, ".endpoint") || strstr(name, ".tmp.") ||
	       strstr(name, ".weir-new") || strstr(name, ".weir-fp8");
}

static int look(const char *path, const struct stat *st, int kind,
		struct FTW *at)
{
	(void)kind;
	if (is_temporary(path + at->base) ||
	    (S_ISSOCK(st->st_mode) && !accepts(path, SOCK_STREAM) &&
	     !accepts(path, SOCK_SEQPACKET)))
		left("", path);
	return 0;
}

/* Calls with each name in a directory; one that is not there has none. */
static void each(const char *dir, void (*fn)(const char *dir, const char *name))
{
	DIR *d = opendir(dir);
	const struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			fn(dir, e->d_name);
	if (d)
		closedir(d);
}

static void staged(const char *dir, const char *name)
{
	printf("staged: %s/%s\n", dir, name);
	found++;
}

static void serving(const char *store)
{
	char path[AT_MAX];

	snprintf(path, sizeof path, "%s/staging", store);
	each(path, staged);
}

static void shared(const char *dir, const char *name)
{
	char path[AT_MAX];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	if (strstr(name, "weir") && lstat(path, &st) == 0 &&
	    S_ISREG(st.st_mode))
		left("shared memory: ", path);
}

/* ---- processes ---- */

static const char *mark; /* WEIR_TEST_DIR=... */
static const char *living[64];

static ssize_t slurp(const char *pid, const char *file, char *out, size_t size)
{
	char path[64];
	ssize_t n, got = 0;
	int fd;

	snprintf(path, sizeof path, "/proc/%.20s/%s", pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	while ((n = read(fd, out + got, size - 1 - (size_t)got)) > 0)
		got += n;
	close(fd);
	out[got] = '\0';
	return got;
}

static bool is_marked(const char *pid)
{
	static char env[ENVIRON_MAX];
	ssize_t n = slurp(pid, "environ", env, sizeof env);
	size_t len = strlen(mark);

	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(env + at) + 1)
		if (strncmp(env + at, mark, len) == 0 &&
		    (env[at + (ssize_t)len] == '\0' ||
		     env[at + (ssize_t)len] == '/'))
			return true;
	return false;
}

/* One that has ended, or is ending, has no words. */
static void process(const char *dir, const char *pid)
{
	char words[4096], line[4200];
	ssize_t n;

	(void)dir;
	if (!isdigit((unsigned char)*pid) || atoi(pid) == getpid() ||
	    !is_marked(pid))
		return;
	for (size_t i = 0; living[i]; i++)
		if (strcmp(living[i], pid) == 0)
			return;
	n = slurp(pid, "cmdline", words, sizeof words);
	for (ssize_t i = 0; i + 1 < n; i++)
		if (words[i] == '\0')
			words[i] = ' ';
	snprintf(line, sizeof line, "%.20s %s", pid, words);
	if (n > 0)
		left("process ", line);
}

/* ---- one that goes on ---- */

static void descriptor(const char *dir, const char *name)
{
	char path[AT_MAX], at[PATH_MAX];
	ssize_t n;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	n = readlink(path, at, sizeof at - 1);
	if (n < 0)
		return;
	at[n] = '\0';
	/* Inodes of sockets and pipes come and go. */
	if (*at != '/')
		at[strcspn(at, ":")] = '\0';
	printf("open %s\n", at);
}

static void maps(const char *pid)
{
	char path[64], line[PATH_MAX + 128];
	FILE *f;

	snprintf(path, sizeof path, "/proc/%.20s/maps", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f)) {
		const char *name = strchr(line, '/');

		if (name)
			printf("mapped %s", name);
	}
	if (f)
		fclose(f);
}

static void thread(const char *dir, const char *name)
{
	(void)dir;
	(void)name;
	puts("thread");
}

static int profile(const char *pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
	each(path, descriptor);
	maps(pid);
	snprintf(path, sizeof path, "/proc/%.20s/task", pid);
	each(path, thread);
	return 0;
}

int main(int argc, char **argv)
{
	char text[PATH_MAX + 32], top[PATH_MAX];
	const char *shm = getenv("LEFTOVERS_SHM");
	size_t nliving = 0;

	if (argc == 3 && strcmp(argv[1], "--of") == 0)
		return profile(argv[2]);
	if (argc < 2 || argc % 2 || !realpath(argv[1], top))
		return 64;
	for (int i = 2; i < argc; i += 2) {
		if (strcmp(argv[i], "--serving") == 0)
			serving(argv[i + 1]);
		else if (nliving + 1 < sizeof living / sizeof *living)
			living[nliving++] = argv[i + 1];
	}
	snprintf(text, sizeof text, "WEIR_TEST_DIR=%s", argv[1]);
	mark = text;
	each("/proc", process);
	nftw(top, look, WALK_FDS, FTW_PHYS);
	each(shm ? shm : SHM, shared);
	return found != 0;
}
