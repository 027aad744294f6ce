"""a plan of many tensors, in seconds of weir-plan -o FILE

Beside it: the headers of the same shards, read and checked by a strict JSON
reader that keeps nothing.  The plan is written to memory, where run directories
are.
"""

import os
import subprocess
import time

import bench

SHARDS = 200


def seconds(args, env):
    before = time.monotonic()
    subprocess.run(args, check=True, env=env)
    return time.monotonic() - before


def table(b):
    n = 100000 if b.quick else 1000000
    source = b.many("many", n, 2, shards=SHARDS)
    out = f"{b.dir}/plan.weir"
    plan = [b.program("weir-plan"), "--source", source, "--engine",
            f"ipc://{b.dir}/none.sock", "-o", out]
    took, bare = [], []
    for _ in range(b.rounds(7)):
        took.append(seconds(plan, b.env))
        bare.append(seconds([b.program("tests/bench/headers"), source], b.env))
    b.row(f"plan, {n} tensors in {SHARDS} shards", bench.median(took),
          "headers alone", bench.median(bare), 3)
    b.row("plan's file, MiB", os.path.getsize(out) / bench.MIB, "MiB", None)
