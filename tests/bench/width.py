"""eight engines on one host, beside two

All of them receive at once.  A push in seconds, start to exit, with slots that
are warm; and what the publisher's processes (push and its four stages) spend
on each bucket for each engine more: microseconds of all cores.
"""

import resource

import bench

FEW, MANY = 2, 8
BUCKETS = 1000
BUCKET = 64 << 10
WARM_AFTER = 2      # pushes: --keep 1 reuses slots from then on
CPU_BOUND_US = 20.0


def publisher_cpu():
    """Of all pushes that have ended; engines are still running."""
    u = resource.getrusage(resource.RUSAGE_CHILDREN)
    return u.ru_utime + u.ru_stime


def pushes(b, source, n, rounds):
    """Seconds, and seconds of CPU, of each."""
    b.start_engines(n, options=["--keep", "1"])
    options = ("--bucket-size", str(BUCKET), "--max-inflight-buckets", "64")
    took, cpu = [], []
    for i in range(WARM_AFTER + rounds):
        before = publisher_cpu()
        p = b.push(source, *options)
        if i >= WARM_AFTER:
            took.append(p.total())
            cpu.append(publisher_cpu() - before)
    b.stop_engines(drop=True)
    return took, cpu


def table(b):
    buckets = BUCKETS // 10 if b.quick else BUCKETS
    source = b.many("many", buckets, BUCKET)
    took = {FEW: [], MANY: []}
    cpu = {FEW: [], MANY: []}
    for _ in range(b.rounds(3)):
        for n in took:
            t, c = pushes(b, source, n, 3)
            took[n] += t
            cpu[n] += c
    few, many = (bench.median(took[n]) for n in (FEW, MANY))
    b.row(f"a push to {MANY} engines", many, f"to {FEW} engines", few,
          MANY / FEW)
    more = bench.median(cpu[MANY]) - bench.median(cpu[FEW])
    b.row("publisher, an engine and bucket, us",
          more * 1e6 / (buckets * (MANY - FEW)), "us", CPU_BOUND_US, 1)
