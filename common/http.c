#include "http.h"
#include "err.h"
#include "io.h"
#include "log.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is asked of curl.  It is loaded when there is a server to speak to: with
 * all that it needs itself it takes three times as long as weir-commit. */
/* clang-format off */
#define CURL_CALLS(X) \
	X(easy_cleanup) X(easy_getinfo) X(easy_init) X(easy_setopt) \
	X(easy_strerror) X(global_init) X(multi_add_handle) \
	X(multi_assign) X(multi_cleanup) X(multi_info_read) \
	X(multi_init) X(multi_remove_handle) X(multi_setopt) \
	X(multi_socket_action) X(slist_append) X(slist_free_all)
/* clang-format on */
static struct {
#define X(name) __typeof__(curl_##name) *name;
	CURL_CALLS(X)
#undef X
} curl;

struct watched { /* a socket of curl's */
	struct http *h;
	int fd;
};

struct http {
	struct loop *loop;
	struct loop_timer timer; /* curl's */
	char *url, *token;
	char here[64];
	CURLM *multi;
	CURL *easy;
	struct curl_slist *headers;
	bool busy, has_proxy;
	http_fn *fn;
	void *arg;
	struct buf body;
	size_t head;	  /* bytes of the answer's head */
	uint32_t most;	  /* bytes of its body */
	const char *over; /* which bound was exceeded */
	char error[CURL_ERROR_SIZE];
	char why[HTTP_WHY_MAX];
	int64_t ms;
};

static void check_done(struct http *h);

static void on_socket(struct watched *w, int what)
{
	struct http *h = w->h;
	int running;

	curl.multi_socket_action(h->multi, w->fd, what, &running);
	check_done(h);
}

static void on_in(void *arg)
{
	on_socket(arg, CURL_CSELECT_IN);
}

static void on_out(void *arg)
{
	on_socket(arg, CURL_CSELECT_OUT);
}

static void on_timer(void *arg)
{
	struct http *h = arg;
	int running;

	curl.multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	check_done(h);
}

static int watch(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
	struct watched *w = known;
	struct http *h = arg;

	(void)easy;
	if (what == CURL_POLL_REMOVE) {
		loop_del_fd(h->loop, fd);
		free(w);
		return 0;
	}
	if (!w) {
		w = xcalloc(1, sizeof *w);
		w->h = h;
		w->fd = fd;
		loop_add_fd(h->loop, fd, on_in, w);
		curl.multi_assign(h->multi, fd, w);
	}
	loop_want_out(h->loop, fd, what & CURL_POLL_OUT, on_out);
	return 0;
}

static int set_timer(CURLM *multi, long ms, void *arg)
{
	struct http *h = arg;

	(void)multi;
	if (ms < 0)
		loop_disarm(h->loop, &h->timer);
	else
		loop_arm(h->loop, &h->timer, ms);
	return 0;
}

static size_t take_body(char *p, size_t size, size_t n, void *arg)
{
	struct http *h = arg;

	n *= size;
	if (h->body.n + n > h->most) {
		h->over = "body";
		return 0;
	}
	buf_add(&h->body, p, n);
	return n;
}

static size_t take_head(char *p, size_t size, size_t n, void *arg)
{
	struct http *h = arg;

	(void)p;
	h->head += n * size;
	if (h->head <= HTTP_HEAD_MAX)
		return n * size;
	h->over = "head";
	return 0;
}

#define SET(option, value) BUG_ON(curl.easy_setopt(h->easy, option, value))

/* Engines are asked directly: what the environment has for other programs, a
 * proxy of the house's, does not see them, or would see their key. */
static void set_proxy(struct http *h)
{
	const char *proxy = getenv("WEIR_HTTP_PROXY");

	h->has_proxy = proxy && proxy[0];
	SET(CURLOPT_PROXY, proxy ? proxy : "");
}

static void set_fixed(struct http *h)
{
	SET(CURLOPT_NOSIGNAL, 1L);
	SET(CURLOPT_FOLLOWLOCATION, 0L);
	SET(CURLOPT_FRESH_CONNECT, 1L);
	SET(CURLOPT_FORBID_REUSE, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
	/* A name server that is silent costs no more than the deadline. */
	SET(CURLOPT_QUICK_EXIT, 1L);
#endif
	SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	/* Not asked for, but understood: some compress all the same. */
	SET(CURLOPT_ACCEPT_ENCODING, "identity");
	SET(CURLOPT_CONNECTTIMEOUT_MS, (long)HTTP_CONNECT_MS);
	SET(CURLOPT_ERRORBUFFER, h->error);
	SET(CURLOPT_WRITEFUNCTION, take_body);
	SET(CURLOPT_WRITEDATA, h);
	SET(CURLOPT_HEADERFUNCTION, take_head);
	SET(CURLOPT_HEADERDATA, h);
	SET(CURLOPT_HTTPHEADER, h->headers);
	set_proxy(h);
}

static void add_header(struct http *h, const char *line)
{
	struct curl_slist *l = curl.slist_append(h->headers, line);

	BUG_ON(!l);
	h->headers = l;
}

static void set_headers(struct http *h)
{
	char *line;

	add_header(h, "Content-Type: application/json");
	add_header(h, "Accept: application/json");
	add_header(h, "Expect:");
	if (!h->token)
		return;
	line = xasprintf("Authorization: Bearer %s", h->token);
	add_header(h, line);
	free(line);
}

/* Debian has it by two names, of which the first is everybody's: why that one
 * cannot be loaded is what is said. */
static void *open_lib(void)
{
	void *lib = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
	char *why = lib ? NULL : xstrdup(dlerror());

	if (!lib)
		lib = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		log_error(E_CONFIG, "libcurl, for HTTP: %s", why);
	free(why);
	return lib;
}

/* For as long as the process lives. */
static int load(void)
{
	static bool ready;
	static void *lib;
	void *call;

	if (ready)
		return 0;
	lib = lib ? lib : open_lib();
	if (!lib)
		return -E_CONFIG;
#define X(name)                                                          \
	call = dlsym(lib, "curl_" #name);                                \
	if (!call) {                                                     \
		log_error(E_CONFIG, "libcurl, for HTTP: %s", dlerror()); \
		return -E_CONFIG;                                        \
	}                                                                \
	memcpy(&curl.name, &call, sizeof call);
	CURL_CALLS(X)
#undef X
	BUG_ON(curl.global_init(CURL_GLOBAL_DEFAULT));
	ready = true;
	return 0;
}

struct http *http_new(struct loop *l, const char *url, const char *token)
{
	struct http *h;
	size_t n = strlen(url);

	if (load() < 0)
		return NULL;
	h = xcalloc(1, sizeof *h);
	while (n > 0 && url[n - 1] == '/')
		n--;
	h->loop = l;
	h->url = xstrndup(url, n);
	h->token = token ? xstrdup(token) : NULL;
	h->timer.fn = on_timer;
	h->timer.arg = h;
	h->multi = curl.multi_init();
	h->easy = curl.easy_init();
	BUG_ON(!h->multi || !h->easy);
	curl.multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, watch);
	curl.multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	curl.multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, set_timer);
	curl.multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	set_headers(h);
	set_fixed(h);
	return h;
}

void http_cancel(struct http *h)
{
	if (!h->busy)
		return;
	curl.multi_remove_handle(h->multi, h->easy);
	h->busy = false;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_cancel(h);
	curl.easy_cleanup(h->easy);
	curl.multi_cleanup(h->multi);
	curl.slist_free_all(h->headers);
	loop_disarm(h->loop, &h->timer);
	buf_release(&h->body);
	free(h->url);
	free(h->token);
	free(h);
}

bool http_is_busy(const struct http *h)
{
	return h->busy;
}

const char *http_here(const struct http *h)
{
	return h->here[0] ? h->here : NULL;
}

void http_call(struct http *h, const struct http_request *q, http_fn *fn,
	       void *arg)
{
	char *url = xasprintf("%s%s", h->url, q->path);
	bool post = strcmp(q->method, "POST") == 0;

	BUG_ON(h->busy);
	h->busy = true;
	h->fn = fn;
	h->arg = arg;
	h->head = 0;
	h->over = NULL;
	h->ms = q->ms > 0 ? q->ms : 1;
	h->most = q->most ? q->most : HTTP_BODY_MAX;
	h->error[0] = '\0';
	buf_clear(&h->body);
	SET(CURLOPT_URL, url);
	SET(CURLOPT_HTTPGET, 1L);
	SET(CURLOPT_CUSTOMREQUEST, post ? NULL : q->method);
	if (post) {
		SET(CURLOPT_POST, 1L);
		SET(CURLOPT_POSTFIELDSIZE, (long)q->body.n);
		SET(CURLOPT_COPYPOSTFIELDS, q->body.n ? q->body.p : "");
	}
	SET(CURLOPT_TIMEOUT_MS, (long)h->ms);
	free(url);
	BUG_ON(curl.multi_add_handle(h->multi, h->easy));
}

/* ---- how it ended ---- */

static const char *late(const struct http *h)
{
	if (h->body.n)
		return "the answer stopped in its body";
	return h->head ? "the answer stopped in its head" : "no answer";
}

static void explain(struct http *h, CURLcode code, struct http_reply *r)
{
	long sent = 0, os = 0;

	curl.easy_getinfo(h->easy, CURLINFO_REQUEST_SIZE, &sent);
	curl.easy_getinfo(h->easy, CURLINFO_OS_ERRNO, &os);
	r->sent = sent > 0;
	r->refused = !r->sent && os == ECONNREFUSED && !h->has_proxy;
	r->rc = -E_IO;
	if (h->over) {
		r->rc = -E_PROTO;
		snprintf(h->why, sizeof h->why,
			 "the answer's %s is longer than %u bytes", h->over,
			 h->over[0] == 'b' ? h->most : HTTP_HEAD_MAX);
	} else if (code == CURLE_OPERATION_TIMEDOUT && r->sent) {
		r->rc = -E_TIMEOUT;
		snprintf(h->why, sizeof h->why, "%s within %lld ms", late(h),
			 (long long)h->ms);
	} else if (!r->sent) {
		r->rc = -E_UNAVAIL;
		snprintf(h->why, sizeof h->why, "not connected: %s",
			 h->error[0] ? h->error : curl.easy_strerror(code));
	} else {
		snprintf(h->why, sizeof h->why, "closed %s: %s",
			 h->head ? "in the middle of its answer"
				 : "without an answer",
			 h->error[0] ? h->error : curl.easy_strerror(code));
	}
	r->why = h->why;
}

/* The last thing done with h: fn may free it. */
static void finish(struct http *h, CURLcode code)
{
	struct http_reply r = { .sent = true };
	struct buf body = h->body;
	char *to = NULL, *here = NULL, *location;

	if (code == CURLE_OK) {
		curl.easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &r.status);
		curl.easy_getinfo(h->easy, CURLINFO_REDIRECT_URL, &to);
	} else {
		explain(h, code, &r);
	}
	curl.easy_getinfo(h->easy, CURLINFO_LOCAL_IP, &here);
	snprintf(h->here, sizeof h->here, "%s", here ? here : "");
	location = to ? xstrdup(to) : NULL;
	r.location = location;
	r.body = buf_slice(&body);
	h->body = (struct buf){ 0 };
	curl.multi_remove_handle(h->multi, h->easy);
	h->busy = false;
	h->fn(h->arg, &r);
	buf_release(&body);
	free(location);
}

static void check_done(struct http *h)
{
	CURLMsg *m;
	int left;

	while ((m = curl.multi_info_read(h->multi, &left))) {
		if (m->msg != CURLMSG_DONE || !h->busy)
			continue;
		finish(h, m->data.result);
		return;
	}
}

/* ---- the key ---- */

static int check_token(const char *path, struct slice s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] <= 0x20 || s.p[i] == 0x7f)
			return log_error(E_DATA,
					 "key file %s: expected one line of "
					 "graphic characters",
					 path);
	if (s.n == 0)
		return log_error(E_DATA, "key file %s is empty", path);
	return 0;
}

int http_token_read(const char *path, char **out)
{
	struct buf b = { 0 };
	struct slice s;
	struct stat st;
	int rc;

	if (stat(path, &st) < 0)
		return log_errno(E_IO, "key file %s", path);
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return log_error(E_PERM,
				 "key file %s: others may read it; chmod 600",
				 path);
	rc = io_read_file(AT_FDCWD, path, HTTP_TOKEN_MAX, &b);
	if (rc < 0)
		return rc;
	s = buf_slice(&b);
	while (s.n && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r'))
		s.n--;
	rc = check_token(path, s);
	if (rc == 0)
		*out = xstrndup(s.p, s.n);
	buf_release(&b);
	return rc;
}
