/* What stages have written when a push closes: shown, in its order, with
 * nothing kept (which a build with the address sanitizer sees). */
#include "pipes/push_show.h"
#include "tests/tap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The run of a push that was told to end at once: no file in it. */
static struct run no_run = { .dirfd = -1 };

static void say(int fd, const char *text)
{
	size_t n = strlen(text);

	ok(write(fd, text, n) == (ssize_t)n, "a stage writes");
}

int main(void)
{
	static const struct push_conf conf;
	struct push_show show;
	struct loop *loop = loop_new();
	char shown[64] = "";
	int to[2];

	ok(pipe(to) == 0, "a pipe to see it in");
	ok(push_show_open(&show, loop, &no_run, &conf) == 0, "opened");
	show.out.to = show.err.to = to[1];
	say(push_show_stderr(&show), "summary\n");
	say(push_show_stdout(&show), "result\n");
	say(push_show_stderr(&show), "half");
	push_show_close(&show);
	close(to[1]);
	ok(read(to[0], shown, sizeof(shown) - 1) > 0, "shown");
	eq_str(shown, "result\nsummary\nhalf", "the result comes first");
	close(to[0]);
	loop_free(loop);
	return tap_done();
}
