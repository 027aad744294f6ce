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
	if (text.n)
		(void)!write(fd, text.p, text.n);
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

static void show_errors(struct push_show *s)
{
	struct slice line;
	size_t from = 0;

	/* What a stage says stands after what it has told. */
	push_show_update(s);
	clear_bar(s);
	while (next_line(&s->errors, &from, &line)) {
		line.n++;
		put(STDERR_FILENO, line);
	}
	drop_front(&s->errors, from);
	if (is_overlong(&s->errors)) {
		put(STDERR_FILENO, buf_slice(&s->errors));
		buf_clear(&s->errors);
	}
	draw_bar(s);
}

static void on_stage_error(void *arg)
{
	struct push_show *s = arg;
	ssize_t n;

	while ((n = read(s->err[0], buf_reserve(&s->errors, LOG_LINE_MAX),
			 LOG_LINE_MAX)) > 0) {
		s->errors.n += (size_t)n;
		show_errors(s);
	}
}

int push_show_open(struct push_show *s, struct loop *l, struct run *r,
		   const struct push_conf *conf)
{
	const struct opt_common *common = &conf->common;

	*s = (struct push_show){
		.loop = l, .run = r, .conf = conf, .err = { -1, -1 }
	};
	if (common->quiet || common->json)
		return 0;
	s->bar_on = isatty(STDERR_FILENO);
	if (pipe2(s->err, O_CLOEXEC | O_NONBLOCK) < 0)
		return log_errno(E_IO, "make a pipe");
	/* Stages write to it as to any stderr: their end blocks. */
	if (fcntl(s->err[1], F_SETFL, 0) < 0)
		return log_errno(E_IO, "make a pipe block");
	loop_add_fd(l, s->err[0], on_stage_error, s);
	return 0;
}

void push_show_close(struct push_show *s)
{
	if (s->err[0] >= 0) {
		on_stage_error(s);
		loop_del_fd(s->loop, s->err[0]);
		close(s->err[0]);
		close(s->err[1]);
	}
	clear_bar(s);
	put(STDERR_FILENO, buf_slice(&s->errors));
	buf_release(&s->errors);
	buf_release(&s->events);
	buf_release(&s->bar);
}

int push_show_stderr(const struct push_show *s)
{
	return s->err[1] >= 0 ? s->err[1] : PROC_KEEP;
}

/* Totals; the plan is there before the first event that needs them. */
static void learn_plan(struct push_show *s, struct run *r)
{
	uint32_t staged = 0;
	struct waves waves;
	struct plan plan;

	if (s->planned || faccessat(r->dirfd, PLAN_FILE, R_OK, 0) < 0)
		return;
	s->planned = true;
	if (plan_open(&plan, r->dirfd, PLAN_FILE) < 0)
		return;
	while (staged < plan.nengines &&
	       plan.engine[staged].kind == ENGINE_NATIVE)
		staged++;
	s->progress.engines = plan.nengines;
	s->progress.buckets = plan.nbuckets;
	s->progress.bytes = plan.bytes;
	if (waves_init(&waves, staged, plan.nengines,
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
	int n;

	if (fd < 0)
		return 0;
	n = io_pread_full(fd, buf_reserve(&s->events, SHOW_CHUNK), SHOW_CHUNK,
			  (off_t)s->offset);
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
