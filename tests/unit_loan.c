/* loan.h: whatever weir-keeper does, who asks it hears why. */
#include "pipes/loan.h"

#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "tests/tap.h"

#include <sys/socket.h>
#include <unistd.h>

int __wrap_fdpass_dial(const char *path);

static struct msg last_word; /* of a keeper that has ended since */

int __wrap_fdpass_dial(const char *path)
{
	struct buf b = { 0 };
	int pair[2];

	(void)path;
	BUG_ON(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) <
	       0);
	if (last_word.type != MSG_NONE) {
		BUG_ON(msg_pack(&b, &last_word) < 0);
		fdpass_send(pair[1], buf_slice(&b), NULL, 0);
		buf_release(&b);
	}
	close(pair[1]);
	return pair[0];
}

/* Nobody has printed the cause of what came before. */
static void check(int want, const char *cause)
{
	struct m_borrow what = { .run = SLICE("run") };
	struct loan none;
	int rc;

	log_adopt_cause(E_IO, "something else");
	rc = loan_open("keep", &what, &none);
	eq_i64(rc, -want, "it fails");
	eq_str(log_cause(), cause, "and says why");
}

int main(void)
{
	log_quiet_thread(1);
	check(E_UNAVAIL, "weir-keeper at keep has ended");
	last_word.type = M_refused;
	last_word.refused = (struct m_refused){ .code = E_AGAIN,
						.cause = SLICE("it is lent") };
	check(E_AGAIN, "weir-keeper at keep: it is lent");
	return tap_done();
}
