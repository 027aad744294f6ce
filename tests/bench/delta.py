"""deltas: made and applied, beside the slowest part of the same work

A bf16 checkpoint and one in which so much of the elements changed.  All in
memory (tmpfs, where a sync does nothing, for either side); sources are in the
page cache.  "On the disk" only what applying makes is there, synced, and what
the limit writes as well.  The limit is the slowest of reading, zstd level 1,
XXH3 and writing, each timed alone over the same bytes with the same threads
(delta_limit.c); beside apply, the Python reader of the same files with as
many threads, which patches in place and syncs nothing.  Medians; rounds are
interleaved.

What can be had.  In memory every part is work of the same cores, and so they
add up: reading both versions, hashing, comparing and packing cannot take less
than "its parts in turn" shows, where each is timed alone with all cores and
nothing is read twice.  diff and apply read and write each byte once, in pieces
that stay in the L2 cache; what of the sum is left over is comparing, xor and
what the cache does not hide.  The bound of the slowest part can be met where
one part is most of the sum: nothing or all changed, xor.  Nor can apply be
twice as fast as a reader that patches in place: that writes the pages that
change, apply writes every page of a new file, since the base is not touched,
and writing, or with many changes unpacking, which both must do, takes more
than half of the reader's time.  Beside "with a copy" the reader's base
survives as well.  "Copying the base" reads it and writes it to fresh files in
the same pieces, and does nothing else: apply cannot be faster, whatever the
delta says.

Unchanged: on a disk a time tells that nobody wrote (still.h), and nothing is
read: what is left is what any push costs, and a version of a megabyte costs
the same.  In memory no time tells, and all is read.
"""

import json
import os
import shutil
import struct
import subprocess
import time

import bench

PARTS = (0, 0.001, 0.01, 0.1, 1)
FILE = 256 << 20    # bytes: then diff begins the next one
SMALL = 8192        # bytes: mark, manifest and index of nothing
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def python():
    for p in ("/usr/bin/python3", "python3"):
        if subprocess.run([p, "-c", "import numpy, xxhash, zstandard"],
                          stderr=subprocess.DEVNULL).returncode == 0:
            return p
    raise bench.Failed("no python with numpy, xxhash and zstandard")


def timed(b, *argv):
    """Seconds, what it printed, and the most bytes that it had."""
    before = time.monotonic()
    with subprocess.Popen(argv, env=b.env, stdout=subprocess.PIPE,
                          text=True) as p:
        text = p.stdout.read()
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        raise bench.Failed(f"{argv} exited with {p.returncode}")
    return time.monotonic() - before, text, used.ru_maxrss << 10


def limits(b, old, new, delta, top):
    out = f"{top}/limit"
    os.mkdir(out)
    text = timed(b, b.program("tests/bench/delta_limit"), old, new, delta,
                 out, str(os.cpu_count()))[1]
    shutil.rmtree(out)
    return {k: float(v) for k, v in map(str.split, text.splitlines())}


def size_of(directory):
    return sum(os.path.getsize(f"{directory}/{n}")
               for n in os.listdir(directory) if n.endswith(".safetensors"))


def largest_tensor(directory):
    """Bytes."""
    most = 0
    for name in os.listdir(directory):
        if name.endswith(".safetensors"):
            with open(f"{directory}/{name}", "rb") as f:
                (n,) = struct.unpack("<Q", f.read(8))
                head = json.loads(f.read(n))
            head.pop("__metadata__", None)
            most = max(most, *(t["data_offsets"][1] - t["data_offsets"][0]
                               for t in head.values()))
    return most


def reader(b, py, delta, old):
    """Seconds of the Python reader without its start; and of the copy."""
    got, before = f"{b.dir}/py", time.monotonic()
    shutil.copytree(old, got)
    copy = time.monotonic() - before
    code = ("import sys, time; sys.path.insert(0, sys.argv[1]); "
            "import slimedelta; t = time.monotonic(); "
            "slimedelta.apply(*sys.argv[2:]); print(time.monotonic() - t)")
    text = timed(b, py, "-c", code, TESTS, delta, got, str(os.cpu_count()))[1]
    shutil.rmtree(got)
    return float(text), copy


class Case:
    def __init__(self, b, py, old, part, encoding, on_disk=False):
        self.name = f"{100 * part:g} % {encoding}"
        self.name += ", on the disk" if on_disk else ""
        self.b, self.py, self.old, self.encoding = b, py, old, encoding
        self.top, self.on_disk = b.disk if on_disk else b.dir, on_disk
        self.part, self.new = part, f"{b.dir}/new{part}"
        if not os.path.exists(self.new):
            timed(b, py, f"{TESTS}/fixtures/mkstep.py", "--part", str(part),
                  old, self.new)
        self.took = {k: [] for k in ("diff", "apply", "python", "copied",
                                     "pack", "packs", "unpack", "unpacks",
                                     "copy")}

    def make(self, out):
        took, _, self.peak = timed(
            self.b, self.b.program("weir-delta"), "diff", self.old, self.new,
            "-o", out, "--base-version", "1", "--weight-version", "2",
            "--delta-encoding", self.encoding)
        return took

    def round(self):
        b, d, got = self.b, f"{self.b.dir}/d", f"{self.top}/got"
        self.took["diff"].append(self.make(d))
        self.stored = size_of(d)
        t = limits(b, self.old, self.new, d, self.top)
        self.took["pack"].append(max(t["read"], t["pack"], t["hash"]))
        self.took["packs"].append(t["read"] + t["pack"] + t["hash"])
        self.took["unpack"].append(max(t["old"], t["unpack"], t["hash"],
                                       t["write"]))
        self.took["unpacks"].append(t["old"] + t["unpack"] + 2 * t["hash"] +
                                    t["write"])
        self.took["copy"].append(t["copy"])
        self.took["apply"].append(timed(
            b, b.program("weir-delta"), "apply", d, self.old, "-o", got)[0])
        shutil.rmtree(got)
        if self.encoding != "auto" and self.stored and not self.on_disk:
            took, copy = reader(b, self.py, d, self.old)
            self.took["python"].append(took)
            self.took["copied"].append(took + copy)
        shutil.rmtree(d)

    def described(self):
        """Bytes of the description's encoder.  Once: they stay the same."""
        out = f"{self.b.dir}/py-d"
        timed(self.b, self.py, f"{TESTS}/slimedelta.py", "diff", self.old,
              self.new, out, "1", "2", self.encoding)
        n = size_of(out)
        shutil.rmtree(out)
        return n

    def rows(self):
        m = {k: bench.median(v) for k, v in self.took.items() if v}
        b = self.b
        if not self.on_disk:
            b.row(f"diff {self.name}, s", m["diff"], "slowest part",
                  m["pack"], 0.85, at_least=True)
            b.row(f"diff {self.name}, s", m["diff"], "its parts in turn",
                  m["packs"], at_least=True)
        b.row(f"apply {self.name}, s", m["apply"], "slowest part",
              m["unpack"], 0.85, at_least=True)
        b.row(f"apply {self.name}, s", m["apply"], "its parts in turn",
              m["unpacks"], at_least=True)
        b.row(f"apply {self.name}, s", m["apply"], "copying the base",
              m["copy"], at_least=True)
        if "python" in m:
            b.row(f"apply {self.name}, s", m["apply"], "Python reader",
                  m["python"], 2, at_least=True)
            b.row(f"apply {self.name}, s", m["apply"],
                  "Python reader with a copy", m["copied"], at_least=True)
            b.row(f"bytes {self.name}", self.stored, "the description's",
                  self.described(), 1.02)
        if self.part == 1:
            b.row(f"memory of diff {self.name}, bytes", self.peak,
                  "threads × largest tensor, and a file",
                  os.cpu_count() * largest_tensor(self.old) + FILE, 1)


def unchanged(b, source, top):
    """Seconds of pushes of what is published already, under new numbers; of
    reading it once; and the bytes of the last directory."""
    place = f"{top}/versions"
    by = ("--transport", "delta", "--disk-dir", place)
    took, read = [], []
    os.mkdir(place)
    b.start_engines(1, on=top)
    # The second is read by the engine, which learns what it may link.
    b.push(source, *by)
    b.push(source, *by)
    for n in range(b.rounds(5, 3)):
        took.append(b.push(source, *by).total())
        read.append(timed(b, b.program("weir-delta"), "verify",
                          f"{place}/weight_v000001")[0])
    b.stop_engines(drop=True)
    made = f"{place}/weight_v{n + 3:06}"
    size = sum(e.stat().st_size for e in os.scandir(made))
    shutil.rmtree(place)
    shutil.rmtree(b.registry)
    return bench.median(took), bench.median(read), size


def rows_of_unchanged(b, size, in_memory):
    large, small = b.checkpoint("large", size), b.checkpoint("small",
                                                             bench.MIB)
    took, read, made = unchanged(b, large, b.disk)
    least = unchanged(b, small, b.disk)[0]
    b.row("push by delta, unchanged, s", took, "the same of 1 MiB", least, 1.5)
    b.row("push by delta, unchanged, s", took, "reading it once", read)
    b.row("its bytes", made, "bytes allowed", SMALL, 1)
    shutil.rmtree(large)
    took, read, _ = unchanged(b, in_memory, b.dir)
    b.row("push by delta, unchanged, in memory, s", took, "reading it once",
          read)


def table(b):
    size = 64 * bench.MIB if b.quick else 2 * bench.GIB
    py, old = python(), f"{b.dir}/old"
    subprocess.run([py, bench.MKCKPT, "--size", f"{size >> 20}MiB",
                    "--shards", "4", old], check=True,
                   stderr=subprocess.DEVNULL)
    rows_of_unchanged(b, size, old)
    for part in PARTS:
        cases = [Case(b, py, old, part, e)
                 for e in ("xor", "overwrite", "auto")
                 if e == "xor" or 0 < part < 1]
        if part == 0.01:
            cases.append(Case(b, py, old, part, "xor", True))
        for _ in range(b.rounds(2)):
            for c in cases:
                c.round()
        for c in cases:
            c.rows()
        shutil.rmtree(cases[0].new)
