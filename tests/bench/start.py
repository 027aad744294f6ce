"""weir push to its first offer, in milliseconds

Beside it: four empty processes, started and ended.  The engine runs already;
the registry is on the disk, the run directory in memory.
"""

import os
import shutil
import time

import bench

EMPTY = shutil.which("true")


def four_empty():
    before = time.monotonic_ns()
    pids = [os.posix_spawn(EMPTY, [EMPTY], os.environ) for _ in range(4)]
    for pid in pids:
        os.waitpid(pid, 0)
    return (time.monotonic_ns() - before) / 1e6


def table(b):
    source = b.checkpoint("small", 4 * bench.MIB)
    b.start_engines(1)
    offer, planned, opened, empty = [], [], [], []
    for _ in range(b.rounds(25, 5)):
        empty.append(four_empty())
        p = b.push(source)
        offer.append(p.seconds(p.started_ns, p.first_offer()) * 1e3)
        planned.append(p.seconds(p.started_ns, p.times("planned")[0]) * 1e3)
        opened.append(p.seconds(p.started_ns,
                                p.times("opened", "commit")[0]) * 1e3)
    base = bench.median(empty)
    b.row("to the first offer", bench.median(offer), "four empty processes",
          base, 10)
    b.row("to the plan", bench.median(planned), "four empty processes", base)
    b.row("to opened", bench.median(opened), "four empty processes", base)
