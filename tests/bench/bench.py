"""Engines, pushes, checkpoints and tables, for the benchmarks."""

import json
import os
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MKCKPT = os.path.join(HERE, "..", "fixtures", "mkckpt.py")
MIB = 1 << 20
GIB = 1 << 30
SETTLE_S = 60       # bound on any wait for a process of ours
SAMPLE_S = 0.005    # between two looks at a process's memory


class Failed(Exception):
    """A program did not do what it was asked."""


def median(values):
    return statistics.median(values)


def percentile(values, part):
    v = sorted(values)
    return v[min(len(v) - 1, int(part * len(v)))]


class Engine:
    """A weir-engine, listening when this returns."""

    def __init__(self, bench, name, store, options=()):
        self.name, self.store = name, store
        self.endpoint = f"ipc://{bench.dir}/{name}.sock"
        ready, told = os.pipe()
        self.process = subprocess.Popen(
            [bench.program("weir-engine"), "--name", name, "--store", store,
             "--listen", self.endpoint, "--reread", "0", "--quiet",
             "--ready-fd", str(told), *options],
            pass_fds=[told], env=bench.env)
        os.close(told)
        if os.read(ready, 1) != b"\n":
            raise Failed(f"engine {name} did not start")
        os.close(ready)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(SETTLE_S)


class Push:
    """One finished weir-push: its clock and its events."""

    def __init__(self, started_ns, ended_ns, events, memory):
        self.started_ns, self.ended_ns = started_ns, ended_ns
        self.events, self.memory = events, memory

    def times(self, name, stage=None):
        return [e["t_ns"] for e in self.events if e["event"] == name
                and (stage is None or e["stage"] == stage)]

    def seconds(self, first, last):
        return (last - first) / 1e9

    def first_offer(self):
        return self.times("granted")[0]

    def moved(self):
        """First offer to the last seal, the source hashed as well."""
        last = max(self.times("sealed", "transfer") + self.times("drained"))
        return self.seconds(self.first_offer(), last)

    def sealed(self):
        return self.seconds(self.first_offer(),
                            max(self.times("sealed", "transfer")))

    def from_plan(self):
        last = max(self.times("sealed", "transfer") + self.times("drained"))
        return self.seconds(self.times("planned")[0], last)

    def total(self):
        return self.seconds(self.started_ns, self.ended_ns)

    def summary(self):
        return [e for e in self.events if e["event"] == "summary"][-1]


def rss_anon(pid, field="RssAnon"):
    """Bytes; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as f:
            return f.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(c) for c in f.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


class Bench:
    """The scratch directories, processes and rows of one table."""

    def __init__(self, args):
        self.quick, self.keep, self.wanted = args.quick, args.keep, args.rounds
        self.build = os.path.abspath(args.build)
        self.rows, self.engines = [], []

    def __enter__(self):
        # Sockets must fit 107 bytes: a short name.  Stores and the run
        # directory are in memory, sources and the registry on the disk.
        self.dir = tempfile.mkdtemp(prefix="weir-b.", dir="/dev/shm")
        self.disk = tempfile.mkdtemp(prefix="weir-b.",
                                     dir=os.environ.get("TMPDIR", "/var/tmp"))
        os.mkdir(f"{self.dir}/run", 0o700)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=f"{self.dir}/run",
                        PATH=f"{self.build}:{os.environ['PATH']}")
        for name in ("WEIR_RUN", "WEIR_REGISTRY", "WEIR_SUPERVISOR_FD"):
            self.env.pop(name, None)
        self.registry = f"{self.disk}/registry"
        return self

    def __exit__(self, *_):
        self.stop_engines()
        if not self.keep:
            shutil.rmtree(self.dir, ignore_errors=True)
            shutil.rmtree(self.disk, ignore_errors=True)

    def rounds(self, usual, quick=1):
        return self.wanted or (quick if self.quick else usual)

    def program(self, name):
        path = os.path.join(self.build, name)
        if not os.path.exists(path):
            raise Failed(f"{path} is not built")
        return path

    def say(self, text):
        print(f"  {text}", file=sys.stderr, flush=True)

    # ---- checkpoints ----

    def checkpoint(self, name, size, shards=4, seed=0, finite=False):
        """A model's names and shapes; warm, since it was just written."""
        path = f"{self.disk}/{name}"
        subprocess.run([sys.executable, MKCKPT, "--size", f"{size >> 20}MiB",
                        "--shards", str(shards), "--seed", str(seed),
                        *(["--finite"] if finite else []), path],
                       check=True, stderr=subprocess.DEVNULL)
        for name in os.listdir(path):
            self.write_again(f"{path}/{name}")
        self.settle()
        return path

    @staticmethod
    def write_again(path):
        """In as few writes as the writers of safetensors use: the page cache
        keeps a file in pieces as large as its writes."""
        with open(path, "rb") as f:
            data = f.read()
        os.unlink(path)
        with open(path, "wb", buffering=0) as f:
            view = memoryview(data)
            while view:
                view = view[f.write(view):]

    def many(self, name, tensors, size, shards=1):
        """So many tensors of so many bytes."""
        path = f"{self.disk}/{name}"
        os.mkdir(path)
        names, each = {}, tensors // shards
        for s in range(shards):
            file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
            self.many_shard(f"{path}/{file}", s, each, size, names)
        with open(f"{path}/model.safetensors.index.json", "w",
                  encoding="ascii") as f:
            json.dump({"metadata": {"total_size": each * shards * size},
                       "weight_map": names}, f)
        with open(f"{path}/config.json", "w", encoding="ascii") as f:
            json.dump({"model_type": "bench"}, f)
        self.settle()
        return path

    @staticmethod
    def many_shard(path, shard, n, size, names):
        head = {}
        for i in range(n):
            name = f"model.layers.{shard}.experts.{i}.w"
            names[name] = os.path.basename(path)
            head[name] = {"dtype": "BF16", "shape": [size // 2],
                          "data_offsets": [i * size, (i + 1) * size]}
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.write(os.urandom(size) * n)

    def settle(self):
        """What was written must not be written back while we measure."""
        fd = os.open(self.disk, os.O_RDONLY | os.O_DIRECTORY)
        os.sync()
        os.close(fd)

    # ---- engines ----

    def start_engines(self, n, on=None, options=()):
        base = on or self.dir
        self.engines = [Engine(self, f"e{i}", f"{base}/e{i}", options)
                        for i in range(n)]
        with open(f"{self.dir}/fleet.yaml", "w", encoding="ascii") as f:
            f.write("model: bench\nengines:\n")
            for e in self.engines:
                f.write(f"  - name: {e.name}\n    workers: "
                        f"[{{endpoint: \"{e.endpoint}\"}}]\n")

    def stop_engines(self, drop=False):
        for e in self.engines:
            e.stop()
            if drop:
                shutil.rmtree(e.store, ignore_errors=True)
        self.engines = []

    # ---- pushes ----

    def push(self, source, *options, sample=False):
        run = tempfile.mkdtemp(prefix="r", dir=f"{self.dir}/run")
        os.chmod(run, 0o700)
        before = time.monotonic_ns()
        p = subprocess.Popen(
            [self.program("weir-push"), "--source", source, "--fleet",
             f"{self.dir}/fleet.yaml", "--registry", self.registry,
             "--run", run, "--quiet", *options],
            env=self.env, stdout=subprocess.DEVNULL)
        memory = self.watch(p) if sample else {}
        code = p.wait()
        after = time.monotonic_ns()
        if code != 0:
            raise Failed(f"weir-push exited with {code}")
        with open(f"{run}/events", encoding="utf-8") as f:
            events = [json.loads(line) for line in f]
        shutil.rmtree(run)
        return Push(before, after, events, memory)

    def watch(self, p):
        """The largest RssAnon of each stage and engine, by name."""
        peak = {}
        while p.poll() is None:
            pids = [(c, name_of(c)) for c in children(p.pid)]
            pids += [(e.process.pid, e.name) for e in self.engines]
            for pid, name in pids:
                peak[name] = max(peak.get(name, 0), rss_anon(pid))
            time.sleep(SAMPLE_S)
        return peak

    # ---- rows ----

    def row(self, what, value, beside, reference, bound=None, at_least=False,
            ratio=None):
        """bound: of the ratio value/reference; at_least: of its inverse."""
        if reference is None:
            self.rows.append((what, value, beside, "not measured", "", "", ""))
            return
        if ratio is None and reference:
            ratio = reference / value if at_least else value / reference
        sign = ">=" if at_least else "<="
        good = None
        if bound is not None:
            good = ratio >= bound if at_least else ratio <= bound
        self.rows.append((what, value, beside, reference,
                          "" if ratio is None else f"{ratio:.2f}",
                          "" if bound is None else f"{sign} {bound:g}",
                          "" if good is None else ("ok" if good else "NOT")))

    def is_good(self):
        return all(r[6] != "NOT" for r in self.rows)

    def title(self, name, doc):
        print(f"\n## {name}: {doc.splitlines()[0]}\n", flush=True)
        for line in doc.splitlines()[2:]:
            print(line)
        self.load = os.getloadavg()[0]

    def report(self):
        if self.rows:
            self.print_table(("what", "median", "beside", "median", "ratio",
                              "bound", ""),
                             [tuple(show(c) for c in r) for r in self.rows])
        print(f"\n{os.cpu_count()} cores, load {self.load:.1f} before, "
              f"{os.getloadavg()[0]:.1f} after"
              + (", --quick: no result" if self.quick else ""), flush=True)

    @staticmethod
    def print_table(head, rows):
        rows = [tuple(str(c) for c in r) for r in [head, *rows]]
        width = [max(len(r[i]) for r in rows) for i in range(len(head))]
        for i, r in enumerate(rows):
            print("| " + " | ".join(c.ljust(w) for c, w in zip(r, width))
                  + " |")
            if i == 0:
                print("|" + "|".join("-" * (w + 2) for w in width) + "|")


def show(cell):
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
