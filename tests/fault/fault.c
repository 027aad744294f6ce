/*
 * fault.so - lets the n-th call of some kinds fail, in one named program.
 *
 *	LD_PRELOAD=.../fault.so FAULT_PROC=weir-commit FAULT_KIND=fsync \
 *		FAULT_N=3 FAULT_MARK=FILE weir-push ...
 *
 * Once, over all processes of that name: who creates FAULT_MARK fails, and
 * writes there what called it.  No mark: nobody came that far.
 *
 *	FAULT_PROC	nothing: all programs; FAULT_KIND: one or more, a,b,c
 *	FAULT_ERRNO	number; default: that of the kind
 *	FAULT_DONE=1	the call is done all the same, and then fails
 *	FAULT_ALWAYS=1	the n-th and all later ones, also of later processes
 *	FAULT_UNDER	only files below this directory
 *	FAULT_AFTER	a file: calls count once it is there
 *	FAULT_SIGNAL	number that the process gets instead, just before it
 *	FAULT_COUNT	file to which the number of calls is added at exit
 *
 * Kinds are the rows below.  Calls inside the C library are its own affair,
 * and so are the log lines on stderr, which must tell of the rest.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/opens.h"

#define FRAMES 40

enum kind {
	K_MALLOC,
	K_OPEN,
	K_CREATE,
	K_READ,
	K_WRITE,
	K_SPACE,
	K_FSYNC,
	K_RENAME,
	K_LINK,
	K_MKDIR,
	K_SENDMSG,
	K_MMAP,
	K_NONE
};

static const struct {
	const char *name;
	int error;
} kinds[] = {
	[K_MALLOC] = { "malloc", ENOMEM },    [K_OPEN] = { "open", EMFILE },
	[K_CREATE] = { "create", ENOSPC },    [K_READ] = { "read", EIO },
	[K_WRITE] = { "write", ENOSPC },      [K_SPACE] = { "space", ENOSPC },
	[K_FSYNC] = { "fsync", EIO },	      [K_RENAME] = { "rename", EIO },
	[K_LINK] = { "link", EIO },	      [K_MKDIR] = { "mkdir", ENOSPC },
	[K_SENDMSG] = { "sendmsg", ENOBUFS }, [K_MMAP] = { "mmap", ENOMEM },
};

static struct {
	unsigned kinds; /* 1 << K_x */
	int error, signo;
	unsigned long n;
	bool done, always;
	const char *mark, *under, *count, *after;
	atomic_ulong seen;
} fault;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static unsigned kinds_of(const char *names)
{
	unsigned found = 0;
	size_t n;

	for (; *names; names += n + (names[n] == ',')) {
		n = strcspn(names, ",");
		for (int k = 0; k < K_NONE; k++)
			if (strlen(kinds[k].name) == n &&
			    strncmp(names, kinds[k].name, n) == 0)
				found |= 1u << k;
	}
	return found;
}

static bool is_for(const char *program)
{
	const char *wanted = getenv("FAULT_PROC");

	return !wanted || strcmp(wanted, program) == 0;
}

static int number(const char *name)
{
	const char *text = getenv(name);

	return text ? atoi(text) : 0;
}

__attribute__((constructor)) static void init(void)
{
	const char *names = getenv("FAULT_KIND");
	void *frame[1];

	if (!names || !is_for(program_invocation_short_name))
		return;
	backtrace(frame, 1); /* loads what it needs now */
	fault.n = (unsigned long)number("FAULT_N");
	fault.error = number("FAULT_ERRNO");
	fault.signo = number("FAULT_SIGNAL");
	fault.done = getenv("FAULT_DONE") != NULL;
	fault.always = getenv("FAULT_ALWAYS") != NULL;
	fault.mark = getenv("FAULT_MARK");
	fault.under = getenv("FAULT_UNDER");
	fault.count = getenv("FAULT_COUNT");
	fault.after = getenv("FAULT_AFTER");
	fault.kinds = kinds_of(names);
}

static bool is_asked(enum kind k)
{
	return fault.kinds & 1u << k;
}

__attribute__((destructor)) static void count(void)
{
	char line[32];
	int fd, n;

	if (!fault.count)
		return;
	n = snprintf(line, sizeof line, "%lu\n", atomic_load(&fault.seen));
	fd = (int)syscall(SYS_openat, AT_FDCWD, fault.count,
			  O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0 || syscall(SYS_write, fd, line, n) < 0)
		abort();
}

/* What called, for the mark: one frame a line. */
static void tell(int fd)
{
	void *frame[FRAMES];
	int n = backtrace(frame, FRAMES);

	backtrace_symbols_fd(frame, n, fd);
}

/* Only one call of all processes is the one. */
static bool is_mine(void)
{
	int fd;

	if (!fault.mark)
		return true;
	fd = (int)syscall(SYS_openat, AT_FDCWD, fault.mark,
			  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return fault.always;
	tell(fd);
	syscall(SYS_close, fd);
	return true;
}

static bool is_below(int dirfd, const char *path)
{
	char link[64], at[PATH_MAX];
	size_t n;
	ssize_t got;

	if (!fault.under)
		return true;
	n = strlen(fault.under);
	if (path && *path == '/')
		return strncmp(path, fault.under, n) == 0;
	snprintf(link, sizeof link,
		 dirfd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
		 dirfd);
	got = readlink(link, at, sizeof at);
	return got >= (ssize_t)n && memcmp(at, fault.under, n) == 0;
}

static bool has_begun(void)
{
	return !fault.after ||
	       syscall(SYS_faccessat, AT_FDCWD, fault.after, F_OK) == 0;
}

/* Does this call fail?  errno is set then. */
static bool fails(enum kind k, int dirfd, const char *path)
{
	unsigned long i;
	int saved = errno;

	if (!is_asked(k) || !is_below(dirfd, path))
		return false;
	if (!has_begun()) {
		errno = saved;
		return false;
	}
	i = atomic_fetch_add(&fault.seen, 1) + 1;
	if (!(i == fault.n || (fault.always && i > fault.n)) || !is_mine()) {
		errno = saved;
		return false;
	}
	if (fault.signo)
		kill(getpid(), fault.signo);
	errno = fault.error ? fault.error : kinds[k].error;
	return true;
}

/* A call of which only the result is lost. */
static long ends(enum kind k, int dirfd, const char *path, long nr, long a,
		 long b, long c, long d, long e)
{
	bool bad = fails(k, dirfd, path);
	int error = errno;
	long rc;

	if (bad && !fault.done)
		return -1;
	rc = syscall(nr, a, b, c, d, e);
	if (!bad)
		return rc;
	errno = error;
	return -1;
}

static bool is_file(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Files and pipes, not what wakes a thread; and never the log. */
static bool is_written(int fd)
{
	struct stat st;

	return fd != STDERR_FILENO && fstat(fd, &st) == 0 &&
	       (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode));
}

static bool has_memory(void)
{
	return !fails(K_MALLOC, AT_FDCWD, "/");
}

void *malloc(size_t n)
{
	return has_memory() ? __libc_malloc(n) : NULL;
}

void *calloc(size_t n, size_t size)
{
	return has_memory() ? __libc_calloc(n, size) : NULL;
}

void *realloc(void *p, size_t n)
{
	return has_memory() ? __libc_realloc(p, n) : NULL;
}

void *memalign(size_t align, size_t n)
{
	return has_memory() ? __libc_memalign(align, n) : NULL;
}

void *aligned_alloc(size_t align, size_t n)
{
	return memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
	void *p = memalign(align, n);

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}

static int open_at(int dirfd, const char *path, int flags, mode_t mode)
{
	if (fails(K_OPEN, dirfd, path) ||
	    (makes(flags) && fails(K_CREATE, dirfd, path)))
		return -1;
	return (int)syscall(SYS_openat, dirfd, path, flags, mode);
}

ssize_t read(int fd, void *p, size_t n)
{
	if (is_asked(K_READ) && is_file(fd) && fails(K_READ, fd, NULL))
		return -1;
	return syscall(SYS_read, fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t off)
{
	if (is_asked(K_READ) && is_file(fd) && fails(K_READ, fd, NULL))
		return -1;
	return syscall(SYS_pread64, fd, p, n, off);
}

ssize_t pread64(int fd, void *p, size_t n, off_t off)
	__attribute__((alias("pread")));

ssize_t write(int fd, const void *p, size_t n)
{
	if (is_asked(K_WRITE) && is_written(fd) && fails(K_WRITE, fd, NULL))
		return -1;
	return syscall(SYS_write, fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	if (fails(K_WRITE, fd, NULL))
		return -1;
	return syscall(SYS_pwrite64, fd, p, n, off);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off_t off)
	__attribute__((alias("pwrite")));

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t n,
			unsigned flags)
{
	if (fails(K_WRITE, out, NULL))
		return -1;
	return syscall(SYS_copy_file_range, in, from, out, to, n, flags);
}

int ftruncate(int fd, off_t n)
{
	return (int)ends(K_SPACE, fd, NULL, SYS_ftruncate, fd, n, 0, 0, 0);
}

int ftruncate64(int fd, off_t n) __attribute__((alias("ftruncate")));

int fallocate(int fd, int mode, off_t off, off_t n)
{
	return (int)ends(K_SPACE, fd, NULL, SYS_fallocate, fd, mode, off, n, 0);
}

int fallocate64(int fd, int mode, off_t off, off_t n)
	__attribute__((alias("fallocate")));

int posix_fallocate(int fd, off_t off, off_t n)
{
	return fallocate(fd, 0, off, n) < 0 ? errno : 0;
}

int posix_fallocate64(int fd, off_t off, off_t n)
	__attribute__((alias("posix_fallocate")));

int fsync(int fd)
{
	return (int)ends(K_FSYNC, fd, NULL, SYS_fsync, fd, 0, 0, 0, 0);
}

int fdatasync(int fd)
{
	return (int)ends(K_FSYNC, fd, NULL, SYS_fdatasync, fd, 0, 0, 0, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
	return (int)ends(K_RENAME, b, to, SYS_renameat2, a, (long)from, b,
			 (long)to, flags);
}

int renameat(int a, const char *from, int b, const char *to)
{
	return renameat2(a, from, b, to, 0);
}

int rename(const char *from, const char *to)
{
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int a, const char *from, int b, const char *to, int flags)
{
	return (int)ends(K_LINK, b, to, SYS_linkat, a, (long)from, b, (long)to,
			 flags);
}

int link(const char *from, const char *to)
{
	return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlinkat(const char *to, int dirfd, const char *path)
{
	return (int)ends(K_LINK, dirfd, path, SYS_symlinkat, (long)to, dirfd,
			 (long)path, 0, 0);
}

int symlink(const char *to, const char *path)
{
	return symlinkat(to, AT_FDCWD, path);
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
	return (int)ends(K_MKDIR, dirfd, path, SYS_mkdirat, dirfd, (long)path,
			 mode, 0, 0);
}

int mkdir(const char *path, mode_t mode)
{
	return mkdirat(AT_FDCWD, path, mode);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	if (fails(K_SENDMSG, AT_FDCWD, "/"))
		return -1;
	return syscall(SYS_sendmsg, fd, m, flags);
}

ssize_t send(int fd, const void *p, size_t n, int flags)
{
	if (fails(K_SENDMSG, AT_FDCWD, "/"))
		return -1;
	return syscall(SYS_sendto, fd, p, n, flags, NULL, 0);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	if (fails(K_MMAP, AT_FDCWD, "/"))
		return MAP_FAILED;
	/* NOLINTNEXTLINE: what the kernel gives is an address. */
	return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off);
}

void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off)
	__attribute__((alias("mmap")));
