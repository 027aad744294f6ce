"""how long an engine is paused, in milliseconds

As the engine says it, from pause applied to resume applied: one swap.  Beside
it: one fsync of a small file and a rename of it, on the store's file system;
and the smaller version's pause.

On tmpfs an fsync does nothing: that row compares a swap, with its three
syncs and two messages, with two system calls.
"""

import os
import time

import bench


def fsync_rename(directory):
    tmp, to = f"{directory}/probe.tmp", f"{directory}/probe"
    fd = os.open(tmp, os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(fd, b"version 42\n")
    before = time.monotonic_ns()
    os.fsync(fd)
    os.rename(tmp, to)
    took = time.monotonic_ns() - before
    os.close(fd)
    return took / 1e6


def pause(p):
    return max(e["pause_us"] for e in p.summary()["engines"]) / 1e3


def on_store(b, where, path, sizes):
    took = {size: [] for size in sizes}
    base = []
    sources = {s: b.checkpoint(f"{where}{s >> 20}", s) for s in sizes}
    for size in sizes:
        b.start_engines(1, on=path)
        b.push(sources[size])
        for _ in range(b.rounds(5)):
            base.append(fsync_rename(path))
            took[size].append(pause(b.push(sources[size])))
            base.append(fsync_rename(path))
        b.stop_engines(drop=True)
    small, large = (bench.median(took[s]) for s in sizes)
    names = [f"{where}, {s >> 20} MiB" for s in sizes]
    b.row(names[0], small, "fsync and rename", bench.median(base), 5)
    b.row(names[1], large, "fsync and rename", bench.median(base), 5)
    b.row(names[1], large, names[0], small, 2)


def table(b):
    sizes = (64 * bench.MIB, 256 * bench.MIB if b.quick else 2 * bench.GIB)
    on_store(b, "tmpfs", b.dir, sizes)
    on_store(b, "disk", b.disk, sizes)
