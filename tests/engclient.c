/*
 * engclient - asks an engine single requests, for tests.
 *
 *	engclient ENDPOINT <<END
 *	probe
 *	begin epoch=1 run=r1 version=1 dir=SRC
 *	attach
 *	offer bucket=0
 *	END
 *
 * One request a line; key=value settings stay for later lines.  Prints each
 * reply as JSON.  Buckets are, unless piece=FILE:OFFSET:BYTES is given, the
 * objects of one file of dir each.  `wait` N more replies; `print TEXT`.
 * Exit 69 if a reply does not come.
 */
#include "common/clock.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "common/safetensors.h"
#include "common/sock.h"
#include "pipes/msg.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 64
#define PIECES_MAX 256
#define WAIT_MS 120000

static struct {
	char registry[65], run[65], boot[65], dir[512], cause[65], mode[16];
	char transport[33];
	uint64_t epoch, version, instance, stage, token, lease, proof;
	uint64_t buckets, bucket, worker, workers, bytes, first, count;
	uint64_t replies, size, seq;
	struct digest content;
} set = { .registry = "A",
	  .run = "r1",
	  .boot = "",
	  .mode = "r",
	  .epoch = 1,
	  .version = 1,
	  .instance = 1,
	  .stage = STAGE_TRANSFER,
	  .token = 7,
	  .lease = 20000,
	  .proof = PROOF_COPIED,
	  .workers = 1,
	  .cause = "test" };

static const struct {
	const char *name;
	uint64_t *to;
} numbers[] = {
	{ "epoch", &set.epoch },       { "version", &set.version },
	{ "instance", &set.instance }, { "stage", &set.stage },
	{ "token", &set.token },       { "lease", &set.lease },
	{ "proof", &set.proof },       { "buckets", &set.buckets },
	{ "bucket", &set.bucket },     { "worker", &set.worker },
	{ "workers", &set.workers },   { "bytes", &set.bytes },
	{ "first", &set.first },       { "count", &set.count },
	{ "replies", &set.replies },   { "size", &set.size },
	{ "seq", &set.seq },
};

static struct m_slotfile file[FILES_MAX];
static struct m_piece piece[PIECES_MAX];
static uint32_t nfiles, npieces;
static struct sock sock;
static int fd_sock = -1;
static char fd_path[256];
static struct msg_arena arena;
static struct buf frame, line;

static void die(const char *what)
{
	fprintf(stderr, "engclient: %s\n", what);
	exit(1);
}

static int by_path(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *d)
{
	return d->d_name[0] != '.';
}

static int open_file(uint32_t i, int flags)
{
	char path[1024];

	snprintf(path, sizeof path, "%s/%.*s", set.dir,
		 SLICE_ARG(file[i].path));
	return open(path, flags | O_CLOEXEC);
}

static void read_dir(void)
{
	struct dirent **e;
	int n = scandir(set.dir, &e, no_dots, by_path);
	struct stat s;
	struct st st = { 0 };

	nfiles = 0;
	for (int i = 0; i < n && nfiles < FILES_MAX; i++) {
		struct m_slotfile *f = &file[nfiles];

		*f = (struct m_slotfile){ .path = slice_of(
						  xstrdup(e[i]->d_name)),
					  .kind = FILE_CARRIED };
		int fd = open_file(nfiles++, O_RDONLY);

		if (fd < 0 || fstat(fd, &s) < 0)
			die("cannot open a file");
		f->bytes = (uint64_t)s.st_size;
		if (strstr(e[i]->d_name, ".safetensors") &&
		    st_read_fd(&st, e[i]->d_name, fd, f->bytes) == 0) {
			f->kind = FILE_SHARD;
			f->header = st.data_start;
			f->digest = st.header;
			st_release(&st);
		}
		close(fd);
	}
	for (int i = 0; i < n; i++)
		free(e[i]);
	if (n >= 0)
		free(e);
}

static void add_piece(uint32_t f, uint64_t offset, uint64_t bytes)
{
	if (bytes > 0 && npieces < PIECES_MAX)
		piece[npieces++] = (struct m_piece){ f, offset, bytes };
}

/* The objects of a file, each a piece. */
static void pieces_of(uint32_t f)
{
	struct st st = { 0 };
	int fd;

	npieces = 0;
	if (f >= nfiles)
		return;
	if (file[f].kind != FILE_SHARD) {
		add_piece(f, 0, file[f].bytes);
		return;
	}
	fd = open_file(f, O_RDONLY);
	if (fd < 0 || st_read_fd(&st, "shard", fd, file[f].bytes) < 0)
		die("cannot read a shard");
	add_piece(f, 0, st.data_start);
	for (uint32_t i = 0; i < st.n; i++)
		add_piece(f, st.data_start + st.tensor[i].begin,
			  st.tensor[i].end - st.tensor[i].begin);
	st_release(&st);
	close(fd);
}

static void take_setting(char *word)
{
	char *eq = strchr(word, '=');
	unsigned long long f, off, n;

	*eq++ = '\0';
	for (size_t i = 0; i < COUNT(numbers); i++)
		if (strcmp(word, numbers[i].name) == 0) {
			*numbers[i].to = strtoull(eq, NULL, 10);
			return;
		}
	if (strcmp(word, "registry") == 0)
		snprintf(set.registry, sizeof set.registry, "%s", eq);
	else if (strcmp(word, "run") == 0)
		snprintf(set.run, sizeof set.run, "%s", eq);
	else if (strcmp(word, "boot") == 0)
		snprintf(set.boot, sizeof set.boot, "%s", eq);
	else if (strcmp(word, "mode") == 0)
		snprintf(set.mode, sizeof set.mode, "%s", eq);
	else if (strcmp(word, "transport") == 0)
		snprintf(set.transport, sizeof set.transport, "%s", eq);
	else if (strcmp(word, "content") == 0)
		digest_parse(eq, strlen(eq), &set.content);
	else if (strcmp(word, "dir") == 0) {
		snprintf(set.dir, sizeof set.dir, "%s", eq);
		read_dir();
	} else if (strcmp(word, "piece") == 0 &&
		   sscanf(eq, "%llu:%llu:%llu", &f, &off, &n) == 3)
		piece[npieces++] = (struct m_piece){ (uint32_t)f, off, n };
	else
		die(word);
}

static void show(struct msg *m)
{
	buf_clear(&line);
	msg_json(&line, m);
	puts(buf_cstr(&line));
	fflush(stdout);
	if (m->type == M_state)
		snprintf(set.boot, sizeof set.boot, "%.*s",
			 SLICE_ARG(m->state.boot));
	if (m->type == M_receipt)
		set.content = m->receipt.received;
}

static void wait_reply(void)
{
	int64_t deadline = clock_mono_ms() + WAIT_MS;
	struct sock_poll p = { .s = &sock, .fd = -1 };
	struct msg m;

	while (sock_recv(&sock, NULL, &frame) == 0) {
		if (clock_mono_ms() > deadline) {
			fprintf(stderr, "engclient: no reply\n");
			exit(69);
		}
		sock_poll(&p, 1, 100);
	}
	if (msg_unpack(&m, &arena, buf_slice(&frame)) < 0)
		exit(76);
	show(&m);
}

static void send_attach(struct msg *m)
{
	struct pollfd p = { .events = POLLIN };
	int fds[FDPASS_MAX], got[FDPASS_MAX];
	size_t n = 0, in;
	int flags = set.mode[0] == 'w' ? O_RDWR : O_RDONLY;

	if (fd_sock < 0)
		fd_sock = fdpass_dial(fd_path);
	if (fd_sock < 0)
		exit(69);
	m->attach.first = (uint32_t)set.first;
	m->attach.count = set.count ? (uint32_t)set.count : nfiles;
	for (uint32_t i = 0; i < m->attach.count; i++)
		fds[n++] = set.mode[0] == 'd'
				   ? open(set.dir, O_RDONLY)
				   : open_file((uint32_t)set.first + i, flags);
	buf_clear(&frame);
	if (msg_pack(&frame, m) < 0 ||
	    fdpass_send(fd_sock, buf_slice(&frame), fds, n) < 0)
		die("attach cannot be sent");
	while (n > 0)
		close(fds[--n]);
	p.fd = fd_sock;
	if (poll(&p, 1, WAIT_MS) < 1 ||
	    fdpass_recv(fd_sock, &frame, got, &in) < 1) {
		puts("{\"closed\":true}");
		return;
	}
	if (msg_unpack(m, &arena, buf_slice(&frame)) < 0)
		exit(76);
	show(m);
}

static uint64_t total(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < nfiles; i++)
		n += file[i].bytes;
	return n;
}

static uint64_t sum_pieces(void)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < npieces; i++)
		n += piece[i].bytes;
	return n;
}

#define FENCED(name) m.name.fence = fence, m.name.seq = ++set.seq
#define BOOTED(name) FENCED(name), m.name.boot = slice_of(set.boot)

static void request(const char *what)
{
	const struct m_fence fence = { .registry = slice_of(set.registry),
				       .epoch = set.epoch,
				       .run = slice_of(set.run),
				       .stage = (uint8_t)set.stage,
				       .instance = (uint32_t)set.instance };
	struct msg m = { 0 };

	if (strcmp(what, "wait") == 0) {
		wait_reply();
		return;
	} else if (strcmp(what, "probe") == 0) {
		m.type = M_probe;
		FENCED(probe);
		m.probe.name = SLICE("engine");
	} else if (strcmp(what, "status") == 0) {
		m.type = M_status;
		m.status.seq = ++set.seq;
	} else if (strcmp(what, "begin") == 0) {
		m.type = M_begin;
		BOOTED(begin);
		m.begin.version = set.version;
		m.begin.bytes = set.size ? set.size : total();
		m.begin.buckets = set.buckets ? (uint32_t)set.buckets : nfiles;
		m.begin.proof = (uint8_t)set.proof;
		m.begin.worker = (uint32_t)set.worker;
		m.begin.workers = (uint32_t)set.workers;
		m.begin.files.v = file;
		m.begin.files.n = nfiles;
	} else if (strcmp(what, "attach") == 0) {
		m.type = M_attach;
		BOOTED(attach);
		send_attach(&m);
		return;
	} else if (strcmp(what, "offer") == 0) {
		m.type = M_offer;
		BOOTED(offer);
		if (npieces == 0)
			pieces_of((uint32_t)set.bucket);
		m.offer.version = set.version;
		m.offer.bucket = (uint32_t)set.bucket;
		m.offer.bytes = set.bytes ? set.bytes : sum_pieces();
		m.offer.pieces.v = piece;
		m.offer.pieces.n = npieces;
	} else if (strcmp(what, "enroll") == 0) {
		m.type = M_enroll;
		BOOTED(enroll);
		m.enroll.transport = slice_of(set.transport);
		m.enroll.bytes = set.bytes ? set.bytes : total();
	} else if (strcmp(what, "holding") == 0) {
		m.type = M_holding;
		BOOTED(holding);
	} else if (strcmp(what, "finish") == 0) {
		m.type = M_finish;
		BOOTED(finish);
		m.finish.version = set.version;
	} else if (strcmp(what, "receipt") == 0) {
		m.type = M_ask_receipt;
		BOOTED(ask_receipt);
		m.ask_receipt.version = set.version;
	} else if (strcmp(what, "pause") == 0) {
		m.type = M_pause;
		BOOTED(pause);
		m.pause.token = set.token;
		m.pause.lease_ms = set.lease;
	} else if (strcmp(what, "swap") == 0) {
		m.type = M_swap;
		BOOTED(swap);
		m.swap.version = set.version;
		m.swap.content = set.content;
		m.swap.token = set.token;
	} else if (strcmp(what, "resume") == 0) {
		m.type = M_resume;
		BOOTED(resume);
		m.resume.token = set.token;
	} else if (strcmp(what, "cancel") == 0) {
		m.type = M_cancel;
		FENCED(cancel);
		m.cancel.cause = slice_of(set.cause);
	} else {
		die(what);
	}
	buf_clear(&frame);
	if (msg_pack(&frame, &m) < 0)
		die("a message cannot be packed");
	if (sock_send(&sock, NULL, buf_slice(&frame)) < 0)
		die("a message cannot be sent");
	if (set.replies)
		set.replies--;
	wait_reply();
	for (; set.replies; set.replies--)
		wait_reply();
}

/* raw HEX: a frame as it is. */
static void raw(const char *hex)
{
	unsigned byte;

	buf_clear(&frame);
	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2) {
		unsigned char c = (unsigned char)byte;

		buf_add(&frame, &c, 1);
	}
	if (sock_send(&sock, NULL, buf_slice(&frame)) < 0)
		die("a frame cannot be sent");
}

int main(int argc, char **argv)
{
	char text[4096];

	if (argc != 2 || strncmp(argv[1], "ipc://", 6) != 0)
		die("usage: engclient ipc://PATH");
	log_init("engclient", LOG_WARN);
	snprintf(fd_path, sizeof fd_path, "%s.fd", argv[1] + 6);
	if (sock_dial(&sock, argv[1], FRAME_MAX) < 0)
		return 69;
	while (fgets(text, sizeof text, stdin)) {
		char *save, *what = strtok_r(text, " \t\n", &save), *word;

		if (!what || what[0] == '#')
			continue;
		npieces = 0;
		set.bytes = 0;
		while ((word = strtok_r(NULL, " \t\n", &save)))
			if (strcmp(what, "raw") == 0)
				raw(word);
			else
				take_setting(word);
		if (strcmp(what, "raw") != 0 && strcmp(what, "set") != 0)
			request(what);
	}
	sock_close(&sock);
	sock_end();
	return 0;
}
