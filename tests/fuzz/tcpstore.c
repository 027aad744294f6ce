#include "pipes/tcpstore.h"
#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#define PEERS 3

static void check_bounds(const struct tcpstore *s)
{
	size_t stored = 0;

	BUG_ON(s->nentries > TCPSTORE_KEYS_MAX);
	for (size_t i = 0; i < s->nentries; i++) {
		BUG_ON(s->entry[i].key.n > TCPSTORE_KEY_MAX);
		BUG_ON(s->entry[i].value.n > TCPSTORE_VALUE_MAX);
		stored += s->entry[i].key.n + s->entry[i].value.n;
	}
	BUG_ON(stored != s->bytes || stored > TCPSTORE_MEMORY_MAX);
	for (size_t i = 0; i < s->npeers; i++) {
		BUG_ON(s->peer[i]->in.n >= TCPSTORE_REQUEST_MAX);
		BUG_ON(s->peer[i]->out.n > 2 * TCPSTORE_REPLY_MAX);
		BUG_ON(s->peer[i]->nmissing > TCPSTORE_LIST_MAX);
	}
}

/* Who waits does so for what is not there. */
static void check_missing(void *arg, struct slice key)
{
	BUG_ON(tcpstore_get(arg, key) != NULL);
}

/* A few clients' bytes, in pieces; some read their answers. */
void fuzz_tcpstore(struct slice in)
{
	struct tcpstore s = { 0 };
	struct tcpstore_peer *p[PEERS];

	for (size_t i = 0; i < PEERS; i++)
		p[i] = tcpstore_join(&s);
	while (in.n > 0) {
		size_t who = (size_t)fuzz_number(&in, 1);
		size_t i = who % PEERS;
		int rc = tcpstore_feed(&s, p[i], fuzz_part(&in));

		BUG_ON((rc < 0) != (p[i]->why[0] != '\0'));
		if (who & 0x80)
			buf_clear(&p[i]->out);
		if (rc < 0) {
			tcpstore_leave(&s, p[i]);
			p[i] = tcpstore_join(&s);
		}
		check_bounds(&s);
		tcpstore_each_missing(&s, check_missing, &s);
	}
	tcpstore_release(&s);
}
