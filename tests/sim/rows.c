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
	{ "transfer", "verify ready *", "no grant is open when all is sealed" },
	{ "transfer", "verify moved *", "no grant is open when all is sealed" },
	{ "transfer", "verify ack *", "no offer is open when all is sealed" },
	{ "transfer", "verify finished *", "all have finished by then" },
	{ "transfer", "done digest *", "all is read by then" },
	{ "transfer", "done ready *", "no grant is open when all is sealed" },
	{ "transfer", "done moved *", "no grant is open when all is sealed" },
	{ "transfer", "done ack *", "no offer is open when all is sealed" },
	{ "transfer", "done finished *", "all have finished by then" },
	{ "commit", "* leave *",
	  "a second signal is no story of the simulator" },
	{ "commit", "open home *", "one step: nothing is heard in it" },
	{ "commit", "open away *", "one step: nothing is heard in it" },
	{ "commit", "open lost *", "one step: nothing is heard in it" },
	{ "commit", "decide home *", "one step: nothing is heard in it" },
	{ "commit", "decide away *", "one step: nothing is heard in it" },
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
	{ "engine slot", "checking seal-failed *",
	  "not simulated: bytes that rot in a slot" },
};

/* What needs more at one moment than an aim of aims.c can place there. */
static const struct note seldom[] = {
	{ "admit", "abort exclud*", "what was said before comes before it" },
	{ "admit", "hash abort *", "hashing takes no time here" },
	{ "admit", "load holds *", "a link is lost twice within its answer" },
	{ "admit", "seal holds *", "a link is lost twice within its answer" },
	{ "admit", "done holds *", "a link is lost twice within its answer" },
	{ "admit", "load sealed *", "an engine's seal is said again" },
	{ "admit", "seal opened *", "said again, while nothing is waited for" },
	{ "transfer", "* grant *: *older admit's",
	  "an admit's last words, behind its successor's first" },
	{ "transfer", "verify grant -> verify",
	  "of a bucket that all hold: granted by an admit that asked before" },
	{ "transfer", "done grant -> done",
	  "of a bucket that all hold: granted by an admit that asked before" },
	{ "transfer", "verify seal *",
	  "a seal that was said before is waited for" },
	{ "transfer", "done seal *",
	  "a seal that was said before is waited for" },
	{ "transfer", "verify fault *", "hashing takes no time here" },
	{ "transfer", "verify abort *", "hashing takes no time here" },
	{ "transfer", "abort ready *",
	  "of jobs the last one alone is waited for" },
	{ "transfer", "abort verified *",
	  "of jobs the last one alone is waited for" },
	{ "transfer", "abort fault *",
	  "of jobs the last one alone is waited for" },
	{ "transfer", "abort seal *", "admit hears of the abort at once" },
	{ "commit", "* over *", "its run was brought home by another commit" },
	{ "commit", "lock fail *", "a lock that is free is taken in one step" },
	{ "commit", "recover fail *", "nothing to recover: over in one step" },
	{ "commit", "plan fail *", "a plan is made, or there is none" },
	{ "commit", "open fail -> abort", "one step: one write of it fails" },
	{ "commit", "decide unknown *", "one step: one sync of it fails" },
	{ "commit", "seek fail *", "a slot that is kept needs no source" },
	{ "commit", "probe there -> *",
	  "a join of engines of which only one is behind" },
	{ "commit", "probe lost -> done",
	  "those that fail are gathered first" },
	{ "commit", "probe lost -> abort",
	  "those that fail are gathered first" },
	{ "commit", "* lost *: its engine is excluded",
	  "it is left out, and then fails once more" },
	{ "commit", "* home -> *",
	  "the state ends before who was left out is home" },
	{ "commit", "plan away *",
	  "its run was brought home by another commit" },
	{ "commit", "* away -> *",
	  "the state ends before who was left out is away" },
	{ "commit", "receipt lost -> *", "a receipt takes no time" },
	{ "commit", "hold lost -> *", "a pause takes no time" },
	{ "commit", "reload lost -> *", "a reload takes no time" },
	{ "commit", "done *", "its process is about to end" },
	{ "engine slot", "* begin -> dropping*",
	  "a run begins when the last one's cancel was answered" },
	{ "engine slot", "idle go *",
	  "a run begins when the last one's cancel was answered" },
	{ "engine slot", "broken begin *",
	  "a run begins when the last one's cancel was answered" },
	{ "engine slot", "sealed begin -> making",
	  "a run begins when the last one's cancel was answered" },
	{ "engine slot", "checking cancel *", "a check takes no time" },
	{ "engine slot", "sealing *",
	  "a seal takes no time, but for post-load" },
	{ "engine slot", "sealed cancel *: after the swap",
	  "no cancel follows a decision, but for one that was late" },
	{ "engine slot", "sealed go *", "no cancel comes while it is swapped" },
	{ "engine slot", "sealed finish *", "said again, by a new transfer" },
	{ "engine slot", "dropping *", "a job ends just after its cancel" },
	{ "engine slot", "making begin *", "said again while it is made" },
	{ "engine gate", "* cancel *",
	  "no cancel follows a decision, but for one that was late" },
	{ "engine gate", "paused go *",
	  "a swap that came while it was pausing" },
	{ "engine gate", "open resume *", "said again, when all is done" },
	{ "engine gate", "swapping publish-failed *",
	  "one step: its write fails" },
	{ "homing", "find *", "a probe is answered at once" },
	{ "homing", "receipt *", "a receipt takes no time" },
	{ "homing", "swap gone *", "a swap takes no time" },
	{ "homing", "swap refused *", "a newer run, while this one swaps" },
	{ "homing", "cancel refused *", "a newer run, while this one aborts" },
	{ "supervise", "running exit-final *", "it says why, and gives up" },
	{ "supervise", "pausing due -> ended*", "the run ends within a pause" },
};

static const struct {
	const char *name, *why;
} moves[] = {
	{ "* unlink */.tmp.*", "one that was killed has left it" },
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
