#include "push_show.h"

#include "common/err.h"
#include "common/io.h"
#include "common/log.h"
#include "common/proc.h"
#include "common/wave.h"
#include "pipes/planfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SHOW_CHUNK 65536 /* bytes of RUN/events read at a time */
#define SHOW_WIDTH 80	 /* columns if the terminal does not tell */

static void put(int fd, struct slice text)
{
	/* Nothing depends on what is shown. */
	while (text.n) {
		ssize_t n = write(fd, text.p, text.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		text.p += n;
		text.n -= (size_t)n;
	}
}

static void clear_bar(struct push_show *s)
{
	if (s->bar_drawn)
		put(STDERR_FILENO, SLICE("\r\033[K"));
	s->bar_drawn = false;
}

static unsigned width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col < 2)
		return SHOW_WIDTH;
	return w.ws_col - 1u;
}

static void draw_bar(struct push_show *s)
{
	if (!s->bar_on)
		return;
	clear_bar(s);
	buf_clear(&s->bar);
	progress_bar(&s->progress, width(), &s->bar);
	put(STDERR_FILENO, buf_slice(&s->bar));
	s->bar_drawn = true;
}

/* Takes whole lines off the front of b. */
static bool next_line(struct buf *b, size_t *from, struct slice *line)
{
	char *start = b->p + *from;
	char *end = b->n > *from ? memchr(start, '\n', b->n - *from) : NULL;

	if (!end)
		return false;
	*line = (struct slice){ start, (size_t)(end - start) };
	*from += line->n + 1;
	return true;
}

static void drop_front(struct buf *b, size_t n)
{
	if (n == 0)
		return;
	memmove(b->p, b->p + n, b->n - n);
	b->n -= n;
}

/* Longer than any line of ours: passed on as it is. */
static bool is_overlong(const struct buf *b)
{
	return b->n > 2 * LOG_LINE_MAX;
}

static void show_text(struct push_text *t)
{
	struct slice line;
	size_t from = 0;

	/* What a stage says stands after what it has told. */
	push_show_update(t->show);
	clear_bar(t->show);
	while (next_line(&t->part, &from, &line)) {
		line.n++;
		put(t->to, line);
	}
	drop_front(&t->part, from);
	if (is_overlong(&t->part)) {
		put(t->to, buf_slice(&t->part));
		buf_clear(&t->part);
	}
	draw_bar(t->show);
}

static void on_text(void *arg)
{
	struct push_text *t = arg;
	ssize_t n;

	while ((n = read(t->pipe[0], buf_reserve(&t->part, LOG_LINE_MAX),
			 LOG_LINE_MAX)) > 0) {
		t->part.n += (size_t)n;
		/* Commit gives the result before its summary. */
		if (t == &t->show->err)
			on_text(&t->show->out);
		show_text(t);
	}
}

static int text_open(struct push_text *t)
{
	if (pipe2(t->pipe, O_CLOEXEC | O_NONBLOCK) < 0)
		return log_errno(E_IO, "make a pipe");
	/* Stages write to it as to any file: their end blocks. */
	if (fcntl(t->pipe[1], F_SETFL, 0) < 0)
		return log_errno(E_IO, "make a pipe block");
	loop_add_fd(t->show->loop, t->pipe[0], on_text, t);
	return 0;
}

static void drain(struct push_text *t)
{
	if (t->pipe[0] >= 0)
		on_text(t);
}

static void text_close(struct push_text *t)
{
	if (t->pipe[0] >= 0) {
		loop_del_fd(t->show->loop, t->pipe[0]);
		close(t->pipe[0]);
		close(t->pipe[1]);
		t->pipe[0] = -1;
	}
	clear_bar(t->show);
	put(t->to, buf_slice(&t->part));
	buf_release(&t->part);
}

int push_show_open(struct push_show *s, struct loop *l, struct run *r,
		   const struct push_conf *conf)
{
	const struct opt_common *common = &conf->common;
	int rc;

	*s = (struct push_show){
		.loop = l,
		.run = r,
		.conf = conf,
		.out = { s, { -1, -1 }, STDOUT_FILENO, { 0 } },
		.err = { s, { -1, -1 }, STDERR_FILENO, { 0 } },
	};
	rc = text_open(&s->out);
	if (rc < 0 || common->quiet || common->json)
		return rc;
	s->bar_on = isatty(STDERR_FILENO);
	return text_open(&s->err);
}

void push_show_close(struct push_show *s)
{
	if (!s->loop)
		return;
	s->bar_on = false; /* what comes now is the last */
	/* To read the one is to read the other: both are still open. */
	drain(&s->err);
	drain(&s->out);
	text_close(&s->out);
	text_close(&s->err);
	buf_release(&s->events);
	buf_release(&s->bar);
	progress_release(&s->progress);
}

static int end_for_stages(const struct push_text *t)
{
	return t->pipe[1] >= 0 ? t->pipe[1] : PROC_KEEP;
}

int push_show_stdout(const struct push_show *s)
{
	return end_for_stages(&s->out);
}

int push_show_stderr(const struct push_show *s)
{
	return end_for_stages(&s->err);
}

static void pass(const struct push_text *t)
{
	char some[LOG_LINE_MAX];
	ssize_t n = 1;

	while (n > 0 && t->pipe[0] >= 0) {
		n = read(t->pipe[0], some, sizeof some);
		if (n > 0)
			put(t->to, (struct slice){ some, (size_t)n });
	}
}

void push_show_pass(const struct push_show *s)
{
	pass(&s->out);
	pass(&s->err);
}

/* Totals; the plan is there before the first event that needs them. */
static void learn_plan(struct push_show *s, struct run *r)
{
	struct waves waves;
	struct plan plan;

	if (s->planned || faccessat(r->dirfd, PLAN_FILE, R_OK, 0) < 0)
		return;
	s->planned = true;
	if (plan_open(&plan, r->dirfd, PLAN_FILE) < 0)
		return;
	s->progress.engines = plan.nengines;
	s->progress.buckets = plan.nbuckets;
	s->progress.bytes = plan.bytes;
	if (waves_init(&waves, plan_staged(&plan), plan.nengines,
		       (int64_t)s->conf->admit.limits.groups) == 0)
		s->progress.waves = waves_count(&waves);
	plan_close(&plan);
}

static void show_line(struct push_show *s, struct slice line)
{
	struct buf text = { 0 };

	if (s->conf->common.json) {
		put(STDOUT_FILENO, (struct slice){ line.p, line.n + 1 });
	} else if (progress_line(&s->progress, line, &text) && !s->bar_on &&
		   !s->conf->common.quiet) {
		buf_addf(&text, "\n");
		put(STDERR_FILENO, buf_slice(&text));
	}
	buf_release(&text);
}

static int read_events(struct push_show *s, struct run *r)
{
	int fd = openat(r->dirfd, "events", O_RDONLY | O_CLOEXEC);
	int n, was;

	if (fd < 0)
		return 0;
	/* Asked ten times a second, said once. */
	was = log_quiet_thread(s->cannot_read);
	n = io_pread_full(fd, buf_reserve(&s->events, SHOW_CHUNK), SHOW_CHUNK,
			  (off_t)s->offset);
	log_quiet_thread(was);
	s->cannot_read = n < 0;
	close(fd);
	if (n > 0) {
		s->events.n += (size_t)n;
		s->offset += (uint64_t)n;
	}
	return n;
}

void push_show_update(struct push_show *s)
{
	struct slice line;

	learn_plan(s, s->run);
	while (read_events(s, s->run) > 0) {
		size_t from = 0;

		while (next_line(&s->events, &from, &line))
			show_line(s, line);
		drop_front(&s->events, from);
	}
	draw_bar(s);
}
