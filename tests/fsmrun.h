/*
 * fsmrun.h - machine scripts: what a pure machine does, line by line.
 *
 *	# a remark
 *	story a begin, and its reply lost
 *	idle/open  begin v=1   -> making/open make
 *	making/open made       -> filling/open reply:begin
 *
 * `story` starts with a fresh machine.  A line names the state that the
 * machine must be in, an event with arguments, the state afterwards and all
 * actions in order.  One TAP line each.  What an event's words mean is the
 * machine's runner's.
 *
 *	int main(int argc, char **argv)
 *	{
 *		return fsm_scripts(&ops, argc, argv);
 *	}
 */
#ifndef WEIR_FSMRUN_H
#define WEIR_FSMRUN_H

#include "common/buf.h"
#include "tests/tap.h"

#include <stdlib.h>

#define FSM_WORDS_MAX 24	/* of a line */
#define FSM_LINE_MAX 1024	/* bytes of it */

struct fsm_script {
	void (*reset)(void);
	/* Appends the name of the state. */
	void (*state)(struct buf *out);
	/* Feeds one event, words[0] its name, and appends " action" for each
	 * that comes out.  False: no such event or argument. */
	bool (*event)(char **words, size_t n, struct buf *out);
	/* NULL, or what is checked after the last line. */
	void (*last)(void);
};

/* The number in "key=123" among words, or def. */
static inline uint64_t fsm_arg(char **words, size_t n, const char *key,
			       uint64_t def)
{
	size_t len = strlen(key);

	for (size_t i = 1; i < n; i++)
		if (strncmp(words[i], key, len) == 0 && words[i][len] == '=')
			return strtoull(words[i] + len + 1, NULL, 10);
	return def;
}

static inline size_t fsm_split(char *text, char **words)
{
	size_t n = 0;
	char *save, *w = strtok_r(text, " \t\n", &save);

	for (; w && n < FSM_WORDS_MAX; w = strtok_r(NULL, " \t\n", &save))
		words[n++] = w;
	return n;
}

static inline void fsm_line(const struct fsm_script *s, const char *file,
			    unsigned no, char *line)
{
	char *arrow = strstr(line, "->"), *left[FSM_WORDS_MAX];
	char *right[FSM_WORDS_MAX];
	struct buf want = { 0 }, got = { 0 }, before = { 0 };
	char text[FSM_LINE_MAX];
	size_t nl, nr;

	snprintf(text, sizeof text, "%s:%u %.*s", file, no,
		 (int)strcspn(line, "\n"), line);
	if (!arrow) {
		ok(false, "%s: no ->", text);
		return;
	}
	*arrow = '\0';
	nl = fsm_split(line, left);
	nr = fsm_split(arrow + 2, right);
	s->state(&before);
	for (size_t i = 0; i < nr; i++)
		buf_addf(&want, "%s%s", i ? " " : "", right[i]);
	if (nl < 2 || strcmp(buf_cstr(&before), left[0]) != 0) {
		ok(false, "%s: the state is %s", text, buf_cstr(&before));
	} else {
		struct buf actions = { 0 };
		bool known = s->event(left + 1, nl - 1, &actions);

		s->state(&got);
		buf_add(&got, actions.p, actions.n);
		if (!ok(known && slice_eq(buf_slice(&got), buf_slice(&want)),
			"%s", text))
			printf("# got %s%s\n", buf_cstr(&got),
			       known ? "" : " (no such event)");
		buf_release(&actions);
	}
	buf_release(&want);
	buf_release(&got);
	buf_release(&before);
}

static inline int fsm_scripts(const struct fsm_script *s, int argc, char **argv)
{
	char line[FSM_LINE_MAX];

	for (int i = 1; i < argc; i++) {
		FILE *f = fopen(argv[i], "r");
		unsigned no = 0, lines = 0;

		if (!ok(f != NULL, "%s is there", argv[i]))
			continue;
		s->reset();
		while (fgets(line, sizeof line, f)) {
			no++;
			if (line[0] == '#' || strspn(line, " \t\n") ==
						      strlen(line))
				continue;
			if (strncmp(line, "story ", 6) == 0) {
				s->reset();
				printf("# %s", line);
				continue;
			}
			fsm_line(s, argv[i], no, line);
			lines++;
		}
		fclose(f);
		ok(lines > 0, "%s has lines", argv[i]);
	}
	if (s->last)
		s->last();
	return tap_done();
}

#endif
