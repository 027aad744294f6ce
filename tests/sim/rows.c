#include "rows.h"

#include "common/fsm.h"

#include <fnmatch.h>
#include <string.h>

/* Patterns of fnmatch(3) over row_text(); the first one that fits. */
struct note {
	const char *machine, *row, *why;
};

static const struct note never[] = {
	/* ---- no legal run ---- */
	{ "admit", "load go -> hold*", "`opened` says phase 2 from the start" },
	{ "admit", "hold *", "`opened` says phase 2 from the start" },
	{ "admit", "load released *not open*",
	  "a link keeps its order: what is told of before comes before "
	  "`holds`" },
	{ "admit", "seal released *", "the wave's credit is back by then" },
	{ "admit", "done released *", "all credit is back by then" },
	{ "admit", "hash released *", "nothing is granted then" },
	{ "admit", "hash sealed *", "no engine is begun then" },
	{ "admit", "abort holds *", "transfer passes the abort on last" },
	{ "admit", "abort released *", "transfer passes the abort on last" },
	{ "admit", "abort sealed *", "transfer passes the abort on last" },
	{ "transfer", "wait digest *", "nothing is read before `opened`" },
	{ "transfer", "wait fault *", "nothing is read before `opened`" },
	{ "transfer", "wait severed *", "nobody is attached before `opened`" },
	{ "transfer", "wait grant *", "admit grants after `holds`" },
	{ "transfer", "wait seal *", "admit seals after `holds`" },
	{ "transfer", "wait ready *", "nothing is granted before `holds`" },
	{ "transfer", "wait moved *", "nothing is offered before `holds`" },
	{ "transfer", "wait ack *", "nothing is offered before `holds`" },
	{ "transfer", "wait finished *", "nobody is asked before `opened`" },
	{ "transfer", "ask digest *", "nothing is read before `holds`" },
	{ "transfer", "ask grant *", "admit grants after `holds`" },
	{ "transfer", "ask seal *", "admit seals after `holds`" },
	{ "transfer", "ask ready *", "nothing is granted before `holds`" },
	{ "transfer", "ask moved *", "nothing is offered before `holds`" },
	{ "transfer", "ask ack *", "nothing is offered before `holds`" },
	{ "transfer", "ask finished *", "nobody is asked to before `holds`" },
	{ "transfer", "run held *", "all have answered before it runs" },
	{ "transfer", "verify held *", "all have answered before it runs" },
	{ "transfer", "done held *", "all have answered before it runs" },
	{ "transfer", "* grant *: *older admit's",
	  "a link drops what an older one says; a newer one grants after "
	  "`holds`" },
	{ "transfer", "verify ready *", "no grant is open when all is sealed" },
	{ "transfer", "verify moved *", "no grant is open when all is sealed" },
	{ "transfer", "verify ack *", "no offer is open when all is sealed" },
	{ "transfer", "verify finished *", "all have finished by then" },
	{ "transfer", "done digest *", "all is read by then" },
	{ "transfer", "done ready *", "no grant is open when all is sealed" },
	{ "transfer", "done moved *", "no grant is open when all is sealed" },
	{ "transfer", "done ack *", "no offer is open when all is sealed" },
	{ "transfer", "done finished *", "all have finished by then" },
	{ "commit", "open home *", "one step: nothing is heard in it" },
	{ "commit", "open away *", "one step: nothing is heard in it" },
	{ "commit", "open lost *", "one step: nothing is heard in it" },
	{ "commit", "decide home *", "one step: nothing is heard in it" },
	{ "commit", "decide away *", "one step: nothing is heard in it" },
	{ "commit", "probe lost -> done", "they are refused together" },
	{ "commit", "seek lost *", "no engine is asked anything in it" },
	{ "commit", "hash lost *", "no engine is asked anything in it" },
	{ "commit", "receipt drained *", "the shell drops it" },
	{ "commit", "hold drained *", "the shell drops it" },
	{ "commit", "reload drained *", "the shell drops it" },
	{ "commit", "swap drained *", "the shell drops it" },
	{ "commit", "abort drained *", "the shell drops it" },
	{ "commit", "done drained *", "the shell drops it" },
	{ "commit", "probe probed *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "probe there *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "begin begun *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "receipt receipt *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "hold held *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "reload loaded *excluded",
	  "of who was excluded only `bring` hears" },
	{ "commit", "abort probed *", "in an abort only `bring` hears them" },
	{ "commit", "abort begun *", "in an abort only `bring` hears them" },
	{ "commit", "abort receipt *", "in an abort only `bring` hears them" },
	{ "commit", "abort held *", "in an abort only `bring` hears them" },
	{ "commit", "abort loaded *", "in an abort only `bring` hears them" },
	{ "engine slot", "checking begin -> checking*",
	  "who begins asks for no receipt of an earlier boot" },
	{ "engine slot", "checking holding *",
	  "an older boot's transfer is refused" },
	{ "engine slot", "checking finish *",
	  "an older boot's transfer is refused" },
	{ "engine slot", "dropping linked *",
	  "one step: its links are made, and it is sealed" },
	{ "homing", "find refused *", "a probe is not fenced" },
	{ "transfer", "abort held *", "nothing is polled after the stop" },
	{ "transfer", "abort moved *", "nothing is polled after the stop" },
	{ "transfer", "abort ack *", "nothing is polled after the stop" },
	{ "transfer", "abort finished *", "nothing is polled after the stop" },
	{ "transfer", "abort severed *", "nothing is polled after the stop" },
	/* ---- not simulated ---- */
	{ "transfer", "* placed *", "not simulated: versions that come whole" },
	{ "engine slot", "* load *",
	  "not simulated: versions that come whole" },
	{ "engine slot", "filling copy-failed *",
	  "not simulated: a copy through maps that fails" },
	{ "transfer", "* ready -> abort*", "not simulated: a cold source" },
};

/* What needs more at one moment than an aim can place there. */
static const struct note seldom[] = {
	{ "homing", "receipt gone *",
	  "it dies between its answer to the probe and the next call, and that "
	  "is heard of before the call is made" },
};

static const struct {
	const char *name, *why;
} moves[] = {
	{ "* unlink */.tmp.*", "one that was killed has left it" },
	{ "plan fsync /reg/versions",
	  "what it believes was mostly synced before" },
	{ "* unlink /run/*", "one that was killed has left it" },
	{ "* unlink /sock/*", "one that was killed has left it" },
	{ "* /run/r#/*verdict*", "one that outlives commit writes it" },
	{ "commit unlink /reg/versions/#/*", "a run that was aborted late" },
};

void row_text(struct buf *out, const struct fsm_table *t, size_t row)
{
	const struct fsm_edge *e = &t->edges[row];

	buf_addf(out, "%s %s -> %s%s%s", t->states[e->from], t->events[e->on],
		 t->states[e->to], e->why ? ": " : "", e->why ? e->why : "");
}

static const char *find(const struct note *notes, size_t n,
			const struct fsm_table *t, size_t row)
{
	struct buf text = { 0 };
	const char *why = NULL;

	row_text(&text, t, row);
	for (size_t i = 0; i < n && !why; i++)
		if (strcmp(notes[i].machine, t->name) == 0 &&
		    fnmatch(notes[i].row, buf_cstr(&text), 0) == 0)
			why = notes[i].why;
	buf_release(&text);
	return why;
}

const char *row_never(const struct fsm_table *t, size_t row)
{
	return find(never, COUNT(never), t, row);
}

const char *row_seldom(const struct fsm_table *t, size_t row)
{
	return find(seldom, COUNT(seldom), t, row);
}

const char *row_unit(const struct fsm_table *t)
{
	static const struct {
		const char *machine, *unit;
	} of[] = {
		{ "admit", "unit_fsmadmit" },
		{ "transfer", "unit_fsmtransfer" },
		{ "commit", "unit_fsmcommit" },
		{ "homing", "unit_fsmhoming" },
		{ "engine slot", "unit_engine" },
		{ "engine gate", "unit_engine" },
		{ "supervise", "unit_supervise" },
	};

	for (size_t i = 0; i < COUNT(of); i++)
		if (strcmp(of[i].machine, t->name) == 0)
			return of[i].unit;
	return "no script";
}

const char *move_seldom(const char *name)
{
	for (size_t i = 0; i < COUNT(moves); i++)
		if (fnmatch(moves[i].name, name, 0) == 0)
			return moves[i].why;
	return NULL;
}
