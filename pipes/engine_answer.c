#include "pipes/engine_shell.h"
#include "common/err.h"
#include "common/log.h"

#include <stdlib.h>
#include <string.h>

static bool is_same_peer(const struct sock_peer *a, const struct sock_peer *b)
{
	return a->n == b->n && memcmp(a->id, b->id, a->n) == 0;
}

/* From the end: who floods us is found at once. */
static bool has_waiting(const struct shell *sh, const struct sock_peer *to)
{
	for (uint32_t i = sh->nout; i > 0; i--)
		if (is_same_peer(&sh->out[i - 1].to, to))
			return true;
	return false;
}

void shell_send_waiting(struct shell *sh)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < sh->nout; i++) {
		struct waiting *w = &sh->out[i];

		/* Replies to one peer keep their order, and are mostly in a
		 * row: it is asked once. */
		if ((kept > 0 && is_same_peer(&sh->out[kept - 1].to, &w->to)) ||
		    sock_send(&sh->sock, &w->to, buf_slice(&w->frame)) ==
			    -E_AGAIN) {
			sh->out[kept++] = *w;
			continue;
		}
		sh->out_bytes -= w->frame.n;
		buf_release(&w->frame);
	}
	sh->nout = kept;
	if (kept > 0)
		loop_arm(sh->loop, &sh->retry, SHELL_RETRY_MS);
	else
		loop_disarm(sh->loop, &sh->retry);
}

static void retry(void *arg)
{
	shell_send_waiting(arg);
}

/* A pause, a swap and a resume come back to back: the engine serves again
 * before any of them is answered, for each reply wakes a thread and a peer. */
static bool can_hold(const struct shell *sh)
{
	return sh->in_turn && sh->m.gate == EN_PAUSED && sh->nout < SHELL_TURN;
}

/* A peer that does not read: its replies wait, up to a bound. */
static void wait_for(struct shell *sh, const struct sock_peer *to)
{
	struct waiting w = { .to = *to };

	if (sh->nout == SHELL_OUT_MAX ||
	    sh->packed.n > SHELL_OUT_BYTES - sh->out_bytes) {
		log_debug("a peer reads no replies: one is dropped");
		return;
	}
	buf_add(&w.frame, sh->packed.p, sh->packed.n);
	sh->out = xreallocarray(sh->out, sh->nout + 1, sizeof *sh->out);
	sh->out[sh->nout++] = w;
	sh->out_bytes += w.frame.n;
	sh->retry.fn = retry;
	sh->retry.arg = sh;
	loop_arm(sh->loop, &sh->retry, SHELL_RETRY_MS);
}

static void shell_send(struct shell *sh, const struct sock_peer *to,
		       const struct msg *m)
{
	buf_clear(&sh->packed);
	if (msg_pack(&sh->packed, m) < 0)
		return;
	/* Behind its own that wait already: replies keep their order.  Nobody
	 * waits for a peer that does not read. */
	if (can_hold(sh) || has_waiting(sh, to) ||
	    sock_send(&sh->sock, to, buf_slice(&sh->packed)) == -E_AGAIN)
		wait_for(sh, to);
}

void shell_answer(struct shell *sh, const struct asker *to, const struct msg *m)
{
	if (!to->conn) {
		shell_send(sh, &to->peer, m);
		return;
	}
	buf_clear(&sh->packed);
	if (to->conn->fd >= 0 && msg_pack(&sh->packed, m) >= 0)
		fdpass_send(to->conn->fd, buf_slice(&sh->packed), NULL, 0);
}

void shell_refuse(struct shell *sh, const struct asker *to, int code,
		  uint32_t bucket, const char *cause)
{
	struct msg m = { .type = M_refused };

	if (log_few(&sh->refusals, LOG_INFO))
		log_info("refused: %s", cause);
	m.refused = (struct m_refused){
		.seq = to->seq,
		.boot = slice_of(sh->store.boot),
		.code = (uint8_t)-code,
		.bucket = bucket,
		.cause = slice_of(cause),
	};
	shell_answer(sh, to, &m);
}
