"""memory, in MiB (plan: bytes a tensor)

Plan: the largest resident set of weir-plan with many tensors over that with
one.  The others: the largest RssAnon while so much is pushed in buckets of
32 MiB with 128 MiB under way, beside that credit and 32 MiB more.
"""

import os
import subprocess
import time

import bench

CREDIT = 128 * bench.MIB
SLACK = 32 * bench.MIB


def plan_peak(b, source):
    """VmHWM only rises: the last look before the end is the one."""
    plan = f"{b.dir}/plan.weir"
    p = subprocess.Popen(
        [b.program("weir-plan"), "--source", source, "--engine",
         f"ipc://{b.dir}/none.sock", "-o", plan], env=b.env)
    peak = 0
    while p.poll() is None:
        peak = max(peak, bench.rss_anon(p.pid, "VmHWM"))
        time.sleep(0.001)
    if p.returncode != 0:
        raise bench.Failed(f"weir-plan exited with {p.returncode}")
    os.unlink(plan)
    return peak


def plan_rows(b):
    n = 200000 if b.quick else 1000000
    many = b.many("many", n, 2, shards=10)
    one = b.many("one", 1, 2)
    took, base = [], []
    for _ in range(b.rounds(3)):
        took.append(plan_peak(b, many))
        base.append(plan_peak(b, one))
    over = (bench.median(took) - bench.median(base)) / n
    b.row(f"plan, {n} tensors, a tensor", over, "bytes", 1.0, 400)


def push_rows(b):
    size = bench.GIB if b.quick else 4 * bench.GIB
    source = b.checkpoint("large", size)
    b.start_engines(1)
    peaks = [b.push(source, "--bucket-size", "32MiB", "--split-tensors",
                    "--max-inflight-bytes", f"{CREDIT >> 20}MiB",
                    sample=True).memory for _ in range(b.rounds(3))]
    for name in ("weir-plan", "weir-admit", "weir-transfer", "weir-commit",
                 "weir-engine"):
        key = b.engines[0].name if name == "weir-engine" else name
        took = bench.median([p.get(key, 0) for p in peaks]) / bench.MIB
        limit = (CREDIT + SLACK) / bench.MIB
        is_bound = name in ("weir-transfer", "weir-engine")
        b.row(f"{name}, {size >> 20} MiB pushed", took,
              "credit and 32 MiB", limit, 1 if is_bound else None)


def table(b):
    plan_rows(b)
    push_rows(b)
