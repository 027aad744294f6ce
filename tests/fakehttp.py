#!/usr/bin/env python3
"""A server that speaks SGLang's or vLLM's admin calls, and fails as it is told.

    fakehttp.py FILE

One process is all servers of a suite: a start of Python costs more than a
test.  FILE gets the port of its control socket, to which each connection says
one line:

    new --kind sglang|vllm --dir DIR --name NAME [--host ADDR] [--served MODEL]
        [--path DIR] [--token KEY] [--arch NAME] [--draft DIR] [--old]
        [--pull] [--cast] [--asleep] [--gzip] [--http10]  answered by its URL
    end --dir DIR --name NAME                             nobody listens then
    label --dir DIR --name NAME                           the version it tells
    state --dir DIR --name NAME                           that, whether it is
                                paused and what it has loaded, in JSON

DIR/calls gets a line when a request begins, and one when it ends: "NAME begin
METHOD TARGET BODY" and "NAME end METHOD TARGET STATUS".  DIR/NAME.faults, read
at every request, has lines

    TARGET FAULT [COUNT]        TARGET: a path, or METHOD:path, or * (not
                                OPTIONS, but for OPTIONS:path)

of which the first that fits is taken, COUNT times (without: always), or, of
FIRST-LAST, from that time to that one:

    silent      no answer                  stall       half a body, then none
    trickle     one byte at a time         half        half a body, closed
    close       closed, not done           lost        done, then closed
    flood       1 GiB of body              redirect:URL  307, to there
    raw:FILE    what is in it, closed      rawhold:FILE  ..., then nothing
    body:FILE   200, that body             as:NAME     another server does it
    lie         200 and no sense           accepted    202, not done
    status:N:T  status N, body T (~: space)          500ok       done, 500 and success
    200fail     200 and failure            dpfail      one rank has failed
    hold:FILE   done when FILE is there    restart     started anew first
    die         nobody listens any more    slow        done, after 0.1 s
"""
import argparse
import gzip
import http.server
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

MIB = 1 << 20


def pull(local, source, target):
    """slime's receiver: the copy in local is brought up to target, by its
    number alone, from the newest full version that is newer, or by deltas."""
    import slimedelta       # numpy and others: for the suite that pulls

    state = os.path.join(local, ".weight_sync")
    os.makedirs(state, exist_ok=True)
    state = os.path.join(state, "state.json")
    at = 0
    if os.path.exists(state):
        with open(state, encoding="utf-8") as f:
            at = int(json.load(f)["version"])
    chain = []
    for version in range(target, at, -1):
        dirname = os.path.join(source, f"weight_v{version:06d}")
        chain.append((version, dirname, slimedelta.base_of(dirname)))
        if chain[-1][2] is None:
            break
    for version, dirname, base in reversed(chain):
        if base is None:
            slimedelta.copy(dirname, local)
        elif base != at:
            raise ValueError(f"out-of-order: has {at}, needs {base}")
        else:
            slimedelta.apply(dirname, local)
        at = version
        with open(state, "w", encoding="utf-8") as f:
            json.dump({"version": f"{at:06d}"}, f)


class State:
    """What the server is; reset by a restart."""

    def __init__(self, args):
        self.args = args
        self.scheduler = threading.Lock()
        self.workers = {}
        self.start()

    def start(self):
        with self.scheduler:
            for worker in self.workers.values():
                worker.leave()
        self.workers = {}           # by their groups' names
        self.label = "default"
        self.path = self.args.path
        self.paused = False
        self.asleep = False
        self.update = None
        self.started = time.monotonic_ns()
        self.sums = {"w": self.path}

    def seen(self):
        """Of one moment: a version is loaded and told but once."""
        def look():
            return {"loaded": str(self.sums), "label": self.label,
                    "paused": self.paused}
        seen = look()
        while seen != look():
            seen = look()
        return seen


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    # ---- answers ----

    def send(self, status, value, headers=()):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        if self.state.args.gzip:
            body = gzip.compress(body)
            headers = [*headers, ("Content-Encoding", "gzip")]
        self.status = status
        # Who hears the answer calls the next server at once.
        self.note_end()
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_body(self, length):
        self.status = 200
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def wait_for_client(self):
        """Until it has gone."""
        try:
            while self.connection.recv(1024):
                pass
        except OSError:
            pass
        self.close_connection = True

    def fault(self, what, target):
        kind, _, rest = what.partition(":")
        self.close_connection = True
        if kind == "silent":
            self.wait_for_client()
        elif kind == "close":
            pass
        elif kind == "lost":
            self.result(target)
        elif kind in ("stall", "half"):
            self.begin_body(1000)
            self.wfile.write(b'{"success": true')
            self.wfile.flush()
            if kind == "stall":
                self.wait_for_client()
        elif kind == "trickle":
            self.begin_body(1 << 30)
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)
        elif kind == "flood":
            self.begin_body(1 << 30)
            for _ in range(1024):
                self.wfile.write(b"x" * MIB)
        elif kind == "redirect":
            self.send(307, {}, [("Location", rest)])
        elif kind in ("raw", "rawhold"):
            with open(rest, "rb") as f:
                self.wfile.write(f.read())
            self.wfile.flush()
            if kind == "rawhold":
                self.wait_for_client()
        elif kind == "body":
            with open(rest, "rb") as f:
                self.send(200, f.read())
        elif kind == "lie":
            self.send(200, b"<html>all is well</html>")
        elif kind == "accepted":
            self.send(202, {"success": True, "status": "ok"})
        elif kind == "status":
            status, _, text = rest.partition(":")
            self.send(int(status), text.replace("~", " ").encode())
        elif kind == "500ok":
            self.send(500, self.result(target)[1])
        elif kind == "200fail":
            self.send(200, {"success": False, "status": "error",
                            "message": "no, said the scheduler",
                            "results": ["no, said the scheduler"]})
        elif kind == "dpfail":
            self.send(400 if self.state.args.kind == "sglang" else 200,
                      {"success": False, "message": "ok | rank 1 failed",
                       "results": [None, "rank 1 failed"]})
        elif kind == "die":
            self.server.end()
        else:
            raise SystemExit("unknown fault " + what)

    # ---- what it does ----

    def result(self, target):
        """(status, value) of a request, done; None: no such path."""
        path = target.partition("?")[0]
        name = path.strip("/").replace("/", "_")
        kind = self.state.args.kind
        old = self.state.args.old and name != "server_info" and name in self.too_new[kind]
        old |= name == "pull_weights" and not self.state.args.pull
        old |= name.endswith("_group") and not self.state.args.cast
        fn = None if old else getattr(self, kind + "_" + name, None)
        if fn is None:
            return 404, {"detail": "Not Found"}
        methods, run = fn()
        if self.command == "OPTIONS" or self.command not in methods:
            return 405, {"detail": "Method Not Allowed"}
        return run()

    def query(self):
        return urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)

    # SGLang

    too_new = {
        "sglang": ("model_info", "server_info", "ready", "weights_checker",
                   "begin_weight_update", "end_weight_update"),
        "vllm": ("weight_info", "update_weight_version", "is_paused",
                 "weight_checker", "is_sleeping", "reset_encoder_cache",
                 "shutdown_weight_transfer_engine"),
    }

    def info(self):
        s = self.state
        return 200, {"model_path": s.path, "weight_version": s.label,
                     "served_model_name": s.args.served or s.path,
                     "architectures": [s.args.arch] if s.args.arch else None}

    def sglang_model_info(self):
        return ("GET",), self.info

    def sglang_get_model_info(self):
        return ("GET",), self.info

    def sglang_server_info(self):
        return ("GET",), lambda: (200, {"startup_time": self.state.started,
                                        "speculative_draft_model_path":
                                        self.state.args.draft or None,
                                        "tp_size": 1, "version": "fake"})

    def sglang_ready(self):
        return ("GET",), lambda: (503 if self.state.paused else 200, b"")

    def sglang_health(self):
        return ("GET",), lambda: (503 if self.state.paused else 200, b"")

    def sglang_pause_generation(self):
        def run():
            self.state.paused = True
            return 200, {"message": "paused", "status": "ok"}
        return ("POST",), run

    def sglang_continue_generation(self):
        def run():
            self.state.paused = False
            return 200, {"message": "continued", "status": "ok"}
        return ("POST",), run

    def sglang_flush_cache(self):
        return ("GET", "POST"), lambda: (200, b"Cache flushed.\n")

    def load(self, path):
        if not os.path.isdir(path):
            return False
        self.state.path = path
        with open(os.path.join(path, "model.safetensors"), "rb") as f:
            self.state.sums = {"w": f.read().hex()[-64:]}
        return True

    def sglang_update_weights_from_disk(self):
        def run():
            path = json.loads(self.body)["model_path"]
            if self.load(path):
                return 200, {"success": True, "message": "Succeeded.",
                             "num_paused_requests": 0}
            return 400, {"success": False, "num_paused_requests": 0,
                         "message": "Failed to get weights iterator: " + path}
        return ("POST",), run

    def sglang_pull_weights(self):
        def run():
            q = json.loads(self.body)
            try:
                pull(q["local_checkpoint_dir"], q["source_dir"],
                     q["target_version"])
            except (OSError, ValueError, AssertionError) as e:
                return 400, {"success": False, "message": str(e)}
            return 200, {"success": True, "message": "Success"}
        return ("POST",), run

    # A group, and what comes by it: DIR/NAME.got has what was loaded last,
    # DIR/NAME.casts the bytes of each broadcast.

    def scheduled(self, fn):
        """One call at a time; what it fails with is said."""
        with self.state.scheduler:
            try:
                fn()
            except (OSError, AssertionError) as e:
                if self.state.args.kind == "sglang":
                    return 400, {"success": False, "message": str(e)}
                return 500, {"error": {"message": str(e), "code": 500,
                                       "type": "InternalServerError"}}
        if self.state.args.kind == "sglang":
            return 200, {"success": True, "message": ""}
        return 200, {"message": "done"}

    def scheduled_post(self, fn):
        return ("POST",), lambda: self.scheduled(fn)

    def join(self, name, make):
        assert name not in self.state.workers, name + " has been created"
        self.state.workers[name] = make()

    def leave(self, name):
        assert name in self.state.workers, "the group does not exist"
        self.state.workers.pop(name).leave()

    def begin_update(self):
        assert self.state.update is None, "an update is already open"
        self.state.update = {}

    def end_update(self):
        assert self.state.update is not None, "no update is open"
        self.state.update = None

    def take(self, name, ask):
        import fakecast
        args, update = self.state.args, self.state.update
        assert name in self.state.workers, "no group " + name
        assert update is not None, "no update is open"
        worker = self.state.workers[name]
        update.update(worker.take(ask))
        self.state.sums = got = fakecast.lines(update)
        for end, lines in ("got", got), ("casts", worker.casts):
            with open(os.path.join(args.dir, args.name + "." + end), "w",
                      encoding="utf-8") as f:
                f.writelines(f"{line}\n" for line in lines)

    def sglang_init_weights_update_group(self):
        import fakecast
        q = json.loads(self.body or "{}")
        return self.scheduled_post(lambda: self.join(
            q["group_name"], lambda: fakecast.Worker(q)))

    def sglang_destroy_weights_update_group(self):
        return self.scheduled_post(
            lambda: self.leave(json.loads(self.body)["group_name"]))

    def sglang_begin_weight_update(self):
        return self.scheduled_post(self.begin_update)

    def sglang_end_weight_update(self):
        return self.scheduled_post(self.end_update)

    def sglang_update_weights_from_distributed(self):
        def run():
            q = json.loads(self.body)
            if self.state.args.old and self.state.update is None:
                self.state.update = {}
            self.take(q["group_name"], q)
        return self.scheduled_post(run)

    def sglang_weights_checker(self):
        return ("GET", "POST"), lambda: (
            200, {"success": True, "message": "",
                  "per_engine_checksum": self.state.sums})

    def sglang_get_weights_by_name(self):
        def run():
            name = json.loads(self.body)["name"]
            return 200, [len(name), hash(str(self.state.sums)) % 1000]
        return ("GET", "POST"), run

    def set_label(self):
        self.state.label = json.loads(self.body)["new_version"]
        return 200, {"success": True, "message": "", "new_version":
                     self.state.label}

    def sglang_update_weight_version(self):
        return ("POST",), self.set_label

    # vLLM

    def vllm_v1_models(self):
        return ("GET",), lambda: (200, {"object": "list", "data": [
            {"id": self.state.args.served or self.state.args.path}]})

    def vllm_is_sleeping(self):
        asleep = self.state.asleep or self.state.args.asleep
        return ("GET",), lambda: (200, {"is_sleeping": asleep})

    def vllm_is_paused(self):
        return ("GET",), lambda: (200, {"is_paused": self.state.paused})

    def vllm_weight_info(self):
        return ("GET",), lambda: (200, {"weight_version": self.state.label})

    def vllm_health(self):
        return ("GET",), lambda: (200, b"")

    def vllm_pause(self):
        def run():
            self.state.paused = True
            return 200, {"status": "paused"}
        return ("POST",), run

    def vllm_resume(self):
        def run():
            self.state.paused = False
            return 200, {"status": "resumed"}
        return ("POST",), run

    def vllm_reset_prefix_cache(self):
        if self.state.args.old:
            return ("POST",), lambda: (200, b"")
        return ("POST",), lambda: (200, {"success": True})

    def vllm_reset_mm_cache(self):
        return ("POST",), lambda: (200, b"")

    def vllm_reset_encoder_cache(self):
        return ("POST",), lambda: (200, b"")

    def vllm_collective_rpc(self):
        def run():
            path = json.loads(self.body)["kwargs"]["weights_path"]
            if self.load(path):
                return 200, {"results": [None]}
            return 500, {"error": {"message": "no such path: " + path,
                                   "type": "InternalServerError",
                                   "code": 500}}
        return ("POST",), run

    # vLLM's group has no name.

    def vllm_get_world_size(self):
        return ("GET",), lambda: (200, {"world_size": 1})

    def vllm_server_info(self):
        how = {"backend": "nccl"} if self.state.args.cast else None
        return ("GET",), lambda: (
            200, {"vllm_config": {"weight_transfer_config": how}})

    def vllm_init_weight_transfer_engine(self):
        def run():
            import fakecast
            assert self.state.args.cast, "Weight transfer not configured"
            q = json.loads(self.body)["init_info"]
            packing = {k: q[k] for k in fakecast.PACKING if k in q}
            assert set(q) - set(packing) == {
                "master_address", "master_port", "rank_offset", "world_size"}
            if self.state.args.old:
                assert not packing, "unknown keys"
                packing = None
            if "" in self.state.workers:
                self.leave("")
            self.join("", lambda: fakecast.EagerWorker(q, packing))
        return self.scheduled_post(run)

    def vllm_shutdown_weight_transfer_engine(self):
        def run():
            assert self.state.update is None, "during a weight update"
            if "" in self.state.workers:
                self.leave("")
        return self.scheduled_post(run)

    def vllm_start_weight_update(self):
        return self.scheduled_post(self.begin_update)

    def vllm_finish_weight_update(self):
        return self.scheduled_post(self.end_update)

    def vllm_update_weights(self):
        def run():
            try:
                self.take("", json.loads(self.body)["update_info"])
            except (OSError, AssertionError):
                self.state.update = None
                raise
        return self.scheduled_post(run)

    def vllm_weight_checker(self):
        return ("POST",), lambda: (200, {"checksums": self.state.sums})

    def vllm_update_weight_version(self):
        return ("POST",), self.set_label

    # ---- a request ----

    def handle_any(self):
        self.state = self.server.state
        if self.state.args.http10:
            self.protocol_version = "HTTP/1.0"
        n = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(n).decode()
        self.status, self.ended = 0, False
        self.server.note(f"begin {self.command} {self.path} {self.body}")
        try:
            self.answer()
        except OSError:
            self.close_connection = True
        self.note_end()

    def note_end(self):
        if not self.ended:
            self.ended = True
            self.server.note(f"end {self.command} {self.path} {self.status}")

    def answer(self):
        key = self.state.args.token
        if key and self.headers.get("Authorization") != "Bearer " + key:
            self.send(401, {"error": "Unauthorized"})
            return
        what = self.server.fault_of(self.command, self.path)
        if what == "restart":
            self.state.start()
        elif what.startswith("as:"):
            self.state = SERVERS[self.state.args.dir, what[3:]].state
        elif what == "slow":
            time.sleep(0.1)
        elif what.startswith("hold:"):
            while not os.path.exists(what[5:]):
                time.sleep(0.01)
        elif what:
            self.fault(what, self.path)
            return
        self.send(*self.result(self.path))

    do_GET = do_POST = do_OPTIONS = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, args):
        if ":" in args.host:
            self.address_family = socket.AF_INET6
        super().__init__((args.host, 0), Handler)
        self.state = State(args)
        self.args = args
        self.lock = threading.Lock()
        self.used = {}

    def note(self, line):
        with open(os.path.join(self.args.dir, "calls"), "a",
                  encoding="utf-8") as f:
            f.write(self.args.name + " " + line.rstrip() + "\n")

    @staticmethod
    def is_time(words, n):
        first, _, last = (words[2] if len(words) > 2 else "").rpartition("-")
        return (not first or n >= int(first)) and (not last or n <= int(last))

    def fault_of(self, method, target):
        path = target.partition("?")[0]
        try:
            with open(os.path.join(self.args.dir, self.args.name + ".faults"),
                      encoding="utf-8") as f:
                lines = f.read().splitlines()
        except FileNotFoundError:
            return ""
        for line in lines:
            words = line.split(" ")
            names = [method + ":" + path]
            if method != "OPTIONS":
                names += [path, "*"]
            if words[0] not in names:
                continue
            with self.lock:
                self.used[line] = self.used.get(line, 0) + 1
                if not self.is_time(words, self.used[line]):
                    continue
            return words[1]
        return ""

    def end(self):
        """Nobody listens, and open requests end without an answer."""
        threading.Thread(target=self.shutdown, daemon=True).start()
        self.server_close()


SERVERS = {}


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--kind", choices=("sglang", "vllm"), default="sglang")
    p.add_argument("--dir", required=True)
    p.add_argument("--name", required=True)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--served", default="")
    p.add_argument("--path", default="/models/first")
    p.add_argument("--token", default="")
    p.add_argument("--arch", default="")
    p.add_argument("--draft", default="")
    p.add_argument("--old", action="store_true")
    p.add_argument("--pull", action="store_true")
    p.add_argument("--cast", action="store_true")
    p.add_argument("--asleep", action="store_true")
    p.add_argument("--gzip", action="store_true")
    p.add_argument("--http10", action="store_true")
    return p


def control(line):
    words = line.split()
    args = parser().parse_args(words[1:])
    key = (args.dir, args.name)
    if words[0] == "label":
        return SERVERS[key].state.label
    if words[0] == "state":
        return json.dumps(SERVERS[key].state.seen())
    if key in SERVERS:
        SERVERS.pop(key).end()
    if words[0] == "end":
        return "ended"
    server = SERVERS[key] = Server(args)
    threading.Thread(target=server.serve_forever, args=(0.02,),
                     daemon=True).start()
    host = f"[{args.host}]" if ":" in args.host else args.host
    return f"http://{host}:{server.server_address[1]}"


def main():
    with socket.create_server(("127.0.0.1", 0)) as s:
        with open(sys.argv[1] + ".tmp", "w", encoding="utf-8") as f:
            f.write(f"{s.getsockname()[1]}\n")
        os.rename(sys.argv[1] + ".tmp", sys.argv[1])
        while True:
            conn, _ = s.accept()
            with conn, conn.makefile("rw") as f:
                f.write(control(f.readline()) + "\n")


if __name__ == "__main__":
    main()
