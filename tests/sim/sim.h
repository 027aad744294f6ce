/*
 * sim.h - one machine that is not there: processes, clock, disk and network
 * of the simulator.
 *
 * The programs that run here are weir's own, linked from the same objects as
 * the real ones; what they ask of the kernel, libzmq and threads is answered
 * by this directory instead (ld --wrap, and replacements of common/sock.c,
 * fdpass.c and pool.c).  A process is a set of tasks, each with a stack of its
 * own; one task runs at a time, and gives way in a call to the kernel only.
 * Everything that is chosen is drawn from one 64-bit seed.
 *
 *	kern.c	processes, clock, events, chance;  task.c, memory.c: theirs
 *	disk.c	a file system that knows what is durable
 *	files.c	descriptors;  data.c, names.c: the calls themselves
 *	net.c	connections;  sock.c: common/sock.h;  pass.c, pool.c: as there
 *	world.c	a fleet and its pushes;  story.c, source.c, faults.c: what
 *		it starts, what it sends, what befalls it
 *	aims.c, aims_close.c: worlds for what seldom happens
 *	watch.c	I1-I13, looked at after every step
 *	mutant.c	small faults that the invariants must find
 */
#ifndef WEIR_SIM_H
#define WEIR_SIM_H

#include "common/buf.h"

#include <assert.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_WITH_ASAN 1
#endif
#endif
#ifndef SIM_WITH_ASAN
#define SIM_WITH_ASAN 0
#endif

#define SIM_US 1000LL
#define SIM_MS 1000000LL
#define SIM_S 1000000000LL
#define SIM_NEVER INT64_MAX

#define FDS_MAX 128
#define TASKS_MAX 12	/* of one process */
#define PROCS_MAX 24	/* that live at once */

/* ---- chance ---- */

struct rng {
	uint64_t s;
};
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);	/* 0 .. n - 1 */
bool rng_one_in(struct rng *r, uint64_t n);

/* ---- processes ---- */

struct conn;
struct file;
struct node;
struct mapping;
struct owned;
struct task;

typedef int prog_main(int argc, char **argv);

struct proc {
	struct proc *next;
	prog_main *main;
	char name[32];		/* "commit", "engine-2" */
	int pid, argc;
	int64_t began;
	const char *log_name;
	char **argv;
	void (*ended)(struct proc *p, void *arg);
	void *arg;
	struct file *fd[FDS_MAX];
	struct task *task[TASKS_MAX];
	int ntasks;
	char *data;		/* the product's variables */
	struct owned *memory, *foreign;
	struct mapping *maps;
	uint64_t pending;	/* signals, bit n */
	int supervisor_fd;	/* -1: none */
	bool dead, doomed, stopped;
	bool fenced;		/* has said so: nothing else is sent */
	bool again;		/* a stage that is not the first of its run */
	int code;		/* exit code, or 128 + signal */
	uint64_t steps;		/* calls so far */
	uint64_t kill_at;	/* die in this step; 0: do not */
	uint64_t kill_move;	/* or at this durable move, just before it or */
	bool kill_after;	/* just after; 0: do not */
	uint64_t moves;		/* durable ones so far */
	/* Of count.h: the one that the next step is, the last one, and when
	 * that was; 0: none. */
	uint32_t coming, crossed;
	uint64_t crossed_at;
	uint64_t fail_at;	/* the disk fails in this write; 0: never */
	uint64_t writes;
	uint32_t where;		/* of the world: which engine, which push */
	int64_t job_ns;		/* that its next job takes; 0: any time */
};

struct sim {
	int64_t now;		/* ns since the machine's start */
	int64_t wall0;
	struct rng rng;		/* schedule, delays, noise */
	struct proc *procs, *p;	/* all that live; the one that runs */
	struct task *t;
	int last_pid;
	char boot_id[37];
	uint64_t hash, steps, seed;
	uint64_t disk_slow_ns;	/* of an fsync, at most */
	int64_t disk_full_until;
	const char *broken;	/* invariant that was found broken */
	char why[512];
	FILE *trace;
	int mutant;
};
extern struct sim sim;

void kern_begin(uint64_t seed);
void kern_end(void);
/* argv is copied; files[3] are handed over. */
struct proc *proc_start(const char *name, prog_main *main, char *const *argv,
			struct file *const files[3]);
void proc_kill(struct proc *p, int signo);	/* SIGKILL's way */
void proc_signal(struct proc *p, int signo);
void proc_stop(struct proc *p);
void proc_continue(struct proc *p);
void proc_poke(struct proc *p);	/* something that it waits for changed */
_Noreturn void proc_exit(int code);

/* A second thread of the running process. */
void task_start(void (*fn)(void *), void *arg);
/* Blocks until a poke, or until due. */
void task_wait(int64_t due);
void task_sleep(int64_t due);

/* Calls fn(arg) at that time, from outside all processes. */
void sim_at(int64_t when, void (*fn)(void *), void *arg);
/* One step of a process is about to happen: it may be its last. */
void sim_point(const char *what, uint64_t detail);
/* Runs until nothing is left to do, or something broke, or until() says so. */
void sim_run(bool (*until)(void));
void sim_break(const char *invariant, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void sim_tell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Memory of the simulator itself, and of the running process. */
void *sim_alloc(size_t n);
void sim_free(void *p);
void *sim_grow(void *p, size_t n);
/* A foreign object of the running process, ended with it. */
void own_foreign(void *p, void (*end)(void *));
void disown_foreign(void *p);

/* ---- disk ---- */

enum node_kind { N_FILE, N_DIR, N_LINK, N_SOCK };

struct entry {
	char *name;
	struct node *node;
};
struct entries {
	struct entry *v;
	size_t n, cap;
};

struct node {
	struct node *all;
	uint32_t ino, nlink, opens, writers;
	enum node_kind kind;
	mode_t mode;
	int64_t mtime;
	char *data, *safe;	/* content; what a power cut leaves of it */
	size_t size, cap, nsafe;
	uint32_t mapped;
	struct entries in, in_safe;
	struct node *parent;	/* where it was named last */
	char *name;
	struct file *lock;	/* exclusive */
	uint32_t shared;	/* locks */
	void *listener;		/* N_SOCK */
	struct file *watch[8];
};

void disk_begin(void);
void disk_end(void);
struct node *disk_root(void);
/* Absolute or relative to dir; NULL and errno.  follow: the last part too. */
struct node *disk_find(struct node *dir, const char *path, bool follow);
/* The directory of the last part, which is copied to name. */
struct node *disk_parent(struct node *dir, const char *path, char *name);
struct node *disk_lookup(const struct node *dir, const char *name);
struct node *disk_make(enum node_kind kind, mode_t mode);
void disk_link(struct node *dir, const char *name, struct node *n);
void disk_unlink(struct node *dir, const char *name);
void disk_rename(struct node *from, const char *a, struct node *to,
		 const char *b);
void disk_resize(struct node *n, size_t size);
void disk_write(struct node *n, size_t off, const void *p, size_t size);
void disk_sync(struct node *n);
void disk_path(const struct node *n, char *out, size_t size);
/* What nobody has synced is lost, or not. */
void disk_power_cut(void);
/* For worlds: whole files, durable at once. */
struct node *disk_mkdirs(const char *path);
void disk_put(const char *path, const void *p, size_t n);

/* ---- descriptors ---- */

enum file_kind_sim {
	F_NODE, F_PIPE, F_SIGNAL, F_WATCH, F_EVENT, F_PASS, F_ACCEPT, F_SINK
};

struct pipe;
struct file {
	enum file_kind_sim kind;
	int refs, flags;
	struct node *node;
	size_t pos;
	struct pipe *pipe;
	bool writes;		/* F_PIPE: which end */
	bool ready;		/* F_WATCH, F_EVENT */
	void *obj;		/* F_PASS, F_ACCEPT */
	struct proc *owner;	/* who is poked */
	int lease;
	bool leased, locks, locks_shared;
};

struct file *file_new(enum file_kind_sim kind);
void file_drop(struct file *f);
void file_pipe(struct file *out[2]);
int fd_put(struct file *f);		/* fd or -1 with errno */
struct file *fd_get(int fd);		/* NULL and EBADF */
struct node *fd_dir(int fd);		/* NULL: none */
bool disk_fails(void);			/* with errno */
bool file_is_readable(const struct file *f);
bool file_has_hung_up(const struct file *f);
void maps_drop(struct proc *p);

/* ---- network ---- */

void net_begin(void);
void net_end(void);
void net_proc_gone(struct proc *p);
/* One of the connections that are up is lost, or says nothing for ns; whose
 * endpoint begins so, and that dialler (NULL: anyone) has dialled. */
void net_cut(struct rng *r, const char *dialler, const char *prefix);
/* This one, with what is under way, if it loses that. */
void net_lose(struct conn *c, bool loses);
/* What is under way that way arrives later, by ns at most; all goes on. */
void net_hold(struct conn *c, bool to_dialler, int64_t ns);
void net_flow(void);
/* Which engine's it is; -1: it is a link. */
int net_engine(const struct conn *c);
/* A request to an engine is heard once more, perhaps much later. */
void net_echo(struct rng *r);
void net_echo_of_dead(struct rng *r);
void net_stall(struct rng *r, const char *dialler, const char *prefix,
	       int64_t ns);
void pass_close(struct file *f);
bool pass_is_readable(const struct file *f);

/* ---- the world, and what must be true of it ---- */

void watch_begin(void);
void watch_end(void);
enum { FRAME_SENT, FRAME_LIE, FRAME_TAKEN };
/* p sends it to, or takes it; conn: a name of the connection. */
void watch_frame(struct proc *p, const char *to, const void *conn,
		 struct slice frame, int how);
/* Of the last one; 0: it is no message. */
uint8_t watch_sent(void);
/* p writes that on its standard output or error. */
void watch_said(struct proc *p, struct slice text);
void watch_named(struct node *dir, const char *name);
void watch_exit(struct proc *p);
void watch_power_cut(void);

/* What an engine that lies says instead; lent until the next call. */
struct slice world_lie(const struct proc *p, struct slice frame, int *how);

int plan_main(int argc, char **argv);
int admit_main(int argc, char **argv);
int transfer_main(int argc, char **argv);
int commit_main(int argc, char **argv);
int engine_main(int argc, char **argv);

#endif
