"""A stage is killed while buckets move: until the next one is held, in ms

From SIGKILL to the first acknowledged bucket that the stage's next instance
has offered (transfer) or granted (admit), started again by weir push.  Beside
it: that program started, only to tell its version, and one round trip on a
bare ZeroMQ ipc link.  The bound is ten times their sum, and one bucket.
"""

import collections
import json
import os
import signal
import subprocess
import tempfile
import time

import bench

KILLS = 200
BUCKETS = 1500
BUCKET_BYTES = 64 << 10
STAGES = ("transfer", "admit")
LOOK_S = 0.0005     # between two looks at the events of a run


class Events:
    """Of a run that goes on, one after the other."""

    def __init__(self, run):
        self.path, self.file = f"{run}/events", None
        self.rest, self.lines = b"", collections.deque()

    def next(self):
        """None: no new one yet."""
        if not self.lines:
            self.read()
        return json.loads(self.lines.popleft()) if self.lines else None

    def read(self):
        if not self.file and os.path.exists(self.path):
            self.file = open(self.path, "rb")
        text = self.rest + (self.file.read() if self.file else b"")
        *lines, self.rest = text.split(b"\n")
        self.lines.extend(lines)


def pid_of(push, stage):
    for pid in bench.children(push.pid):
        if bench.name_of(pid) == f"weir-{stage}":
            return pid
    raise bench.Failed(f"no weir-{stage} runs")


class Recovery:
    """One push, in which each stage is killed once."""

    def __init__(self, b, source):
        self.run = tempfile.mkdtemp(prefix="r", dir=f"{b.dir}/run")
        self.push = subprocess.Popen(
            [b.program("weir-push"), "--source", source, "--fleet",
             f"{b.dir}/fleet.yaml", "--registry", b.registry, "--run",
             self.run, "--bucket-size", str(BUCKET_BYTES),
             "--max-inflight-buckets", "4", "--json", "-q"],
            env=b.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.events = Events(self.run)
        self.acked = []

    def look(self, found):
        """At events, up to the first for which found(event)."""
        end = time.monotonic() + bench.SETTLE_S
        while time.monotonic() < end:
            ended = self.push.poll() is not None
            e = self.events.next()
            if e is None and ended:
                break
            if e is None:
                time.sleep(LOOK_S)
                continue
            if e["event"] == "acked":
                self.acked.append(e["t_ns"])
            if found(e):
                return
        raise bench.Failed("the push ended, or stands still")

    def kill(self, stage, at):
        """Milliseconds until a bucket of the next instance is held."""
        self.look(lambda e: len(self.acked) >= at)
        pid = pid_of(self.push, stage)
        before = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        first = "acked" if stage == "transfer" else "granted"
        self.look(lambda e: e["event"] == first and e["stage"] == stage
                  and e["instance"] > 1)
        if stage == "admit":
            self.look(lambda e: e["event"] == "acked")
        return (self.acked[-1] - before) / 1e6

    def end(self):
        if self.push.wait() != 0:
            raise bench.Failed(f"weir-push exited with {self.push.returncode}")


def version(b, stage):
    before = time.monotonic_ns()
    subprocess.run([b.program(f"weir-{stage}"), "--version"], check=True,
                   stdout=subprocess.DEVNULL)
    return (time.monotonic_ns() - before) / 1e6


def round_trip(b):
    out = subprocess.run([b.program("tests/bench/hops"), "-n", "1000", b.disk],
                         check=True, text=True, stdout=subprocess.PIPE).stdout
    return 2 * float(out.split()[1]) / 1e3


def table(b):
    n = b.rounds(KILLS, 4)
    source = b.many("small", BUCKETS, BUCKET_BYTES)
    b.start_engines(1)
    b.push(source)
    took = {stage: [] for stage in STAGES}
    start = {stage: [] for stage in STAGES}
    trips, buckets = [], []
    for _ in range((n + 1) // 2):
        r = Recovery(b, source)
        for i, stage in enumerate(STAGES):
            took[stage].append(r.kill(stage, BUCKETS // 20 * (1 + 2 * i)))
            start[stage].append(version(b, stage))
        r.end()
        buckets.append(bench.median([y - x for x, y in
                                     zip(r.acked, r.acked[1:])]) / 1e6)
        trips.append(round_trip(b))
    for stage in STAGES:
        base = bench.median(start[stage]) + bench.median(trips)
        row(b, stage, took[stage], base, bench.median(buckets))


def row(b, stage, took, base, bucket):
    beside = f"weir-{stage} --version, a round trip, 1/10 bucket"
    base += bucket / 10
    b.row(f"{stage} killed: p50", bench.median(took), beside, base)
    b.row(f"{stage} killed: p99", bench.percentile(took, 0.99), beside, base,
          10)
    b.say(f"{len(took)} kills of {stage}")
