"""bytes to engines on one host, in seconds

The source is a directory of safetensors on the disk, in the page cache; each
engine's store is on tmpfs.  Weir's time is from the first offer to when the
last engine has sealed and the source is hashed too: copy_limit does the same
work in one process with all cores (mapped: files are opened and mapped within
the time; prefaulted: before it).  Larger ratios are better: beside / weir.

With one engine weir misses its bound: the limit's threads hash and copy each
block while it is in the cache that they share, weir's source hash and copy
are two processes that meet there by chance.  "weir's byte path alone" is
that copy and that hash without control: what is left to it is control.
"""

import os
import shutil
import subprocess

import bench
import gloo_ranks

ENGINES = (1, 4)
BUCKETS = ("--bucket-size", "64MiB", "--split-tensors",
           "--max-inflight-buckets", "4")
WARM_AFTER = 3      # pushes; slots are reused from then on


def copy_limit(b, source, dests, *options):
    """Seconds by variant."""
    out = subprocess.run([b.program("tests/bench/copy_limit"), "-r", "1",
                          *options, source, *dests], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return {line.split()[0]: float(line.split()[2])
            for line in out.splitlines()}


def cp(b, source, dests):
    """All at once, onto files that are there."""
    script = ('for d; do for f in "$src"/*; do dd if="$f" of="$d/${f##*/}" '
              'bs=1M conv=notrunc status=none; done & done; wait')
    before = bench.time.monotonic()
    subprocess.run(["sh", "-c", script, "cp", *dests], check=True,
                   env=dict(b.env, src=source))
    return bench.time.monotonic() - before


def note(times, name, seconds):
    times.setdefault(name, []).append(seconds)


def first_pushes(b, sources, n, times):
    for i in range(b.rounds(3)):
        b.start_engines(n)
        note(times, "first", b.push(sources[i % 2], *BUCKETS).from_plan())
        b.stop_engines(drop=True)
        dests = [f"{b.dir}/fresh{k}" for k in range(n)]
        for d in dests:
            os.mkdir(d)
        note(times, "fresh", copy_limit(b, sources[i % 2], dests,
                                        "-f")["fresh"])
        for d in dests:
            shutil.rmtree(d)


def warm_pushes(b, sources, n, times):
    b.start_engines(n)
    dests = [f"{b.dir}/limit{k}" for k in range(n)]
    for d in dests:
        os.mkdir(d)
    for i in range(WARM_AFTER):
        b.push(sources[i % 2], *BUCKETS)
    copy_limit(b, sources[0], dests)
    gloo = gloo_ranks.Gloo(b, n, os.path.join(b.dir, "gloo"))
    for i in range(b.rounds(9)):
        source = sources[(WARM_AFTER + i) % 2]
        p = b.push(source, *BUCKETS)
        note(times, "weir", p.moved())
        note(times, "sealed", p.sealed())
        note(times, "all", p.total())
        for name, seconds in copy_limit(b, source, dests).items():
            note(times, name, seconds)
        note(times, "cp", cp(b, source, dests))
        if gloo.works:
            note(times, "gloo", gloo.broadcast())
    gloo.close()
    b.stop_engines(drop=True)
    for d in dests:
        shutil.rmtree(d)


def report(b, n, times):
    t = {name: bench.median(v) for name, v in times.items()}
    of = f"{n} engine" + ("s" if n > 1 else "")
    bound = 0.90 if n == 1 else 0.85
    b.row(f"{of}, first push, plan to seal", t["first"],
          "one process, fresh pages", t["fresh"], at_least=True)
    b.row(f"{of}, slots warm", t["weir"], "one process, mapped",
          t["mapped"], bound, at_least=True)
    b.row(f"{of}, slots warm", t["weir"], "one process, prefaulted",
          t["prefaulted"], at_least=True)
    b.row(f"{of}, slots warm", t["weir"], "weir's byte path alone",
          t["apart"], at_least=True)
    b.row(f"{of}, slots warm, to last seal", t["sealed"],
          "one process, mapped", t["mapped"], at_least=True)
    b.row(f"{of}, slots warm", t["weir"], "cp onto existing files",
          t["cp"], at_least=True)
    b.row(f"{of}, slots warm", t["weir"], "Gloo broadcast",
          t.get("gloo"), 1.0, at_least=True)
    b.row(f"{of}, weir push, start to exit", t["all"],
          "one process, mapped", t["mapped"], at_least=True)


def table(b):
    size = 64 * bench.MIB if b.quick else 512 * bench.MIB
    sources = [b.checkpoint(f"v{i}", size, seed=i) for i in (1, 2)]
    b.bytes = size
    for n in ENGINES:
        times = {}
        first_pushes(b, sources, n, times)
        warm_pushes(b, sources, n, times)
        report(b, n, times)
