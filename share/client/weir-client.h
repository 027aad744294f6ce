/*
 * weir-client.h - how an engine process uses the weights that weir-engine
 * keeps in a GPU's memory (weir-engine --device).
 *
 *	struct weir_client *c;
 *	struct weir_view *v;
 *
 *	if (weir_open(&c, "/run/weir/store", -1) < 0)
 *		...
 *	while (weir_wait(c, 0, 60000) == -ETIMEDOUT)
 *		;				// nothing is published yet
 *	if (weir_map(c, &v) < 0)
 *		fail(weir_error(c));
 *	... v->tensor[i].data are device pointers of version v->version ...
 *	weir_wait_change(c, v->word, -1);	// it is time for the next one
 *	... finish what the device still computes with v ...
 *	weir_release(v);
 *
 * Rules.  A view's memory is read-only by agreement.  While it is held,
 * weir-engine does not write into it; with two versions on the device the
 * next one but one has to wait for its release, and in place (--in-place)
 * the next one: release it when the engine pauses (--on-pause), after the
 * device has finished with it.  A killed process holds nothing.
 *
 * weir_is_live() is false once weir-engine, whose memory it is, has ended:
 * stop using the view, release it, and wait for the engine's next life, which
 * publishes the same version again (another word).
 *
 * Functions return 0 or a negative errno; weir_error() has the reason in one
 * line.  One client is for one thread.  Links with libcudart; uses the
 * primary context of the device, and leaves that device current.
 */
#ifndef WEIR_CLIENT_H
#define WEIR_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct weir_client;

struct weir_tensor {
	const char *name, *dtype;	/* as in safetensors: "BF16" */
	const uint64_t *shape;
	uint32_t dims;
	uint64_t bytes;
	void *data;			/* on the device */
};

struct weir_view {
	uint64_t version;
	uint32_t word;			/* of its publication, to wait for others */
	int device;			/* as this process counts them */
	char *directory;		/* config.json and the like are there */
	const struct weir_tensor *tensor;	/* by name */
	size_t ntensors;
};

/*
 * store: weir-engine's --store.  device: the one that it is expected on, as
 * this process counts; -1: whichever it is.  Devices are compared by UUID,
 * for two processes may count them differently.
 *
 *	-ENOENT	no weir-engine --device has ever used that store, or the first
 *		one has just begun
 *	-EAGAIN	weir-engine ended while it published: its next life mends that
 *	-ENODEV	its device cannot be seen here, or is another than asked for
 *	-EPROTO	its format is another one: build both from one version
 *
 * On failure *out is set as well unless memory lacks, for weir_error(); it is
 * closed with weir_close() in any case.
 */
int weir_open(struct weir_client **out, const char *store, int device);
/* Views must have been released. */
void weir_close(struct weir_client *c);
const char *weir_error(const struct weir_client *c);

/* Does the weir-engine live whose memory it is? */
int weir_is_live(struct weir_client *c);
/* The published version; 0: none, or its weir-engine has ended. */
uint64_t weir_version(struct weir_client *c);

/* Waits until a version is published by another word than this one (0: by
 * any), and its weir-engine lives.  ms < 0: for ever.  -ETIMEDOUT. */
int weir_wait(struct weir_client *c, uint32_t word, int ms);
/* The same, until what was published by this word is offered no more: there
 * is another version, or (in place) another needs the room, or weir-engine has
 * ended, which is seen within a second. */
int weir_wait_change(struct weir_client *c, uint32_t word, int ms);

/* -EAGAIN: nothing is published (any more): wait, and try again; others: by
 * weir_error(). */
int weir_map(struct weir_client *c, struct weir_view **out);
/* Also after the engine's end.  NULL is fine. */
void weir_release(struct weir_view *v);
/* NULL: the version has none of that name. */
const struct weir_tensor *weir_find(const struct weir_view *v,
				    const char *name);

#ifdef __cplusplus
}
#endif

#endif
