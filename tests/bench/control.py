"""10,000 buckets of 4 KiB, 64 under way: microseconds a bucket

Beside it: five hops over a bare ZeroMQ ipc link, one after the other, and one
journalled append (write and fdatasync) on the registry's disk.
"""

import subprocess

import bench

BUCKETS = 10000
WINDOW = 64
HOPS = 5


def hops(b):
    out = subprocess.run([b.program("tests/bench/hops"), b.disk], check=True,
                         text=True, stdout=subprocess.PIPE).stdout
    return {line.split()[0]: float(line.split()[1])
            for line in out.splitlines()}


def per_bucket(p, n):
    first, last = p.first_offer(), p.times("released", "admit")[-1]
    if len(p.times("released", "admit")) < n:
        raise bench.Failed("fewer buckets than tensors")
    return p.seconds(first, last) * 1e6 / n


def table(b):
    n = BUCKETS // 10 if b.quick else BUCKETS
    source = b.many("small", n, 4096)
    b.start_engines(1)
    weir, bare = [], []
    for _ in range(b.rounds(7)):
        weir.append(per_bucket(b.push(source, "--bucket-size", "4KiB",
                                      "--max-inflight-buckets", str(WINDOW)),
                               n))
        bare.append(hops(b))
    hop, stream, append = (bench.median([h[k] for h in bare])
                           for k in ("hop", "stream", "append"))
    took = bench.median(weir)
    b.row("grant to release", took, f"{HOPS} hops and an append",
          HOPS * hop + append, 3)
    b.row("grant to release", took,
          f"{HOPS} hops, {WINDOW} under way each", HOPS * stream)
