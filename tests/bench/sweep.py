"""waves and windows: what they cost, and what a reader feels

Four engines on tmpfs, slots warm, buckets of 16 MiB.  A process reads its
engine's served weights, 1 MiB at a time, in a loop; its 99th percentile is
of one read.  Memory is the largest RssAnon of all stages and engines
together.  Medians; rounds are interleaved.  Beside the first row: ratios.
"""

import os
import subprocess
import sys

import bench

ENGINES = 4
WAVES = (0, 1, 2)
WINDOWS = {"0/0": (), "2 buckets": ("--max-inflight-buckets", "2"),
           "4 buckets": ("--max-inflight-buckets", "4"),
           "8 buckets": ("--max-inflight-buckets", "8"),
           "64 MiB": ("--max-inflight-bytes", "64MiB"),
           "256 MiB": ("--max-inflight-bytes", "256MiB")}
HERE = os.path.dirname(os.path.abspath(__file__))


class Reader:
    """Reads until it is told to stop; gives its latencies then."""

    def __init__(self, current):
        self.p = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "reader.py"), current],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.p.stdout.readline()

    def stop(self):
        out, _ = self.p.communicate("\n")
        return [float(x) for x in out.split()]


def one(b, source, waves, window):
    reader = Reader(f"{b.engines[0].store}/current")
    p = b.push(source, "--bucket-size", "16MiB", "--split-tensors",
               "--max-inflight-engine-groups", str(waves), *WINDOWS[window],
               sample=True)
    latencies = reader.stop()
    if not latencies:
        raise bench.Failed("the reader has read nothing")
    return (p.total() * 1e3, sum(p.memory.values()) / bench.MIB,
            bench.percentile(latencies, 0.99) * 1e3)


def table(b):
    size = 64 * bench.MIB if b.quick else 512 * bench.MIB
    sources = [b.checkpoint(f"v{i}", size, seed=i) for i in (1, 2)]
    b.start_engines(ENGINES)
    for i in range(3):
        b.push(sources[i % 2])
    cases = [(w, c) for w in WAVES for c in WINDOWS]
    took = {case: [] for case in cases}
    for i in range(b.rounds(5)):
        for case in cases:
            took[case].append(one(b, sources[i % 2], *case))
    rows, base = [], None
    for case in cases:
        m = [bench.median(v) for v in zip(*took[case])]
        base = base or m
        rows.append((str(case[0] or "all"), case[1],
                     *(f"{x:.4g} ({x / y:.2f})" for x, y in zip(m, base))))
    b.print_table(("waves of", "window", "push, ms", "peak memory, MiB",
                   "p99 of a read, ms"), rows)
