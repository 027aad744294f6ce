"""--post-load fp8: a version quantised, in seconds

Shards in BF16 on tmpfs, received and mapped; the time ends when the new ones
stand in their place.  Beside it: bare loops that convert the same tensors in
one pass with the same kernel and all cores, and make no header, index or
config (fp8_limit): into maps of new files, by pwrite, and, to inform, into
pages that are touched already, so that nothing is stored.  A ratio is the bare
loop's time / weir's; the bound is for the fastest that stores its result.
A received shard's pages are used for the next one, which a single shard has
not: all its pages are fresh, and the received ones are given back meanwhile.
"""

import os
import shutil
import subprocess

import bench


def fp8_limit(b, source, rounds):
    scratch = f"{b.dir}/{os.path.basename(source)}"
    os.mkdir(scratch)
    out = subprocess.run([b.program("tests/bench/fp8_limit"), "-r",
                          str(rounds), source, scratch], check=True,
                         text=True, stdout=subprocess.PIPE).stdout
    shutil.rmtree(scratch)
    return {line.split()[0]: float(line.split()[1])
            for line in out.splitlines()}


def rows(b, name, t, bound):
    bare = min(t["mapped"], t["written"])
    b.row(name, t["weir"], "the faster bare loop", bare, bound, at_least=True)
    for variant, what in (("mapped", "a bare loop, mapped"),
                          ("written", "a bare loop, written"),
                          ("warm", "a bare loop, nothing stored")):
        b.row(name, t["weir"], what, t[variant], at_least=True)


def table(b):
    size = (64 if b.quick else 1024) * bench.MIB
    for shards, bound in ((4, 0.8), (1, None)):
        source = b.checkpoint(f"v{shards}", size, shards, finite=True)
        rows(b, f"{shards} shard" + ("s" if shards > 1 else ""),
             fp8_limit(b, source, b.rounds(9, 3)), bound)
