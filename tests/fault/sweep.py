#!/usr/bin/env python3
"""Lets each call of each kind fail once, in each program of each story.

sweep.py [--stories S,...] [--kinds K,...] [--procs P,...] [--stride N] ...

For n = 1, 2, 3 ...: a push (or what else the story is: pushes.py, tools.py) in which
the n-th such call of one program fails (fault.c), until one passes untouched.
After each: the exit code is one of those that such a failure may have, stderr
has a clear line, each engine serves the old version or exactly the new one,
the registry can be read, what is decided is what the code says, nothing is
left behind, and the next push publishes.  A reader looks at engines and
registry all the while (tests/kill/history.py).  Prints a table: calls that
failed, by outcome.
"""

import argparse
import collections
import concurrent.futures
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from types import SimpleNamespace

import pushes
import tools
from trials import DISKS, Fault, SMALL, is_of_disk
from world import BUILD, Broken, ENGINES, SRC, World

sys.path.append(os.path.join(SRC, "tests/kill"))
import history  # pylint: disable=wrong-import-position

STORIES = {
    "push": pushes.Push, "rollback": pushes.Rollback, "only": pushes.Join,
    "disk": pushes.Disk, "delta": pushes.Delta, "forward": pushes.Forward,
    "backward": pushes.Backward, "device": pushes.Device,
    "nccl": pushes.Nccl, "ipc": pushes.Ipc,
    "device-source": pushes.DeviceSource, "http": pushes.Http, "watch": tools.Watch,
    "status": tools.Status, "dump": tools.Dump,
    "dump-ledger": tools.DumpLedger, "diff": tools.Diff,
    "apply": tools.Apply, "apply-to": tools.ApplyTo,
    "verify": tools.Verify, "inspect": tools.Inspect}
# A "+": the call is done all the same, and then said to have failed.
KINDS = ("malloc", "open", "read", "write", "space", "fsync", "fsync+",
         "rename", "rename+", "link", "link+", "mkdir", "sendmsg", "mmap",
         *DISKS, SMALL)
TRIED = 20000  # calls of one kind; then something counts for ever
BROKEN_MAX = 10  # of one row; then what is next breaks the same
ENOUGH = 8     # pages more, and nothing is said: then there is room for all
# What once broke something, and one of each other kind.
FEW = (("push", "fsync", "commit", 1), ("push", "fsync", "commit", 15),
       ("push", "fsync+", "engine", 16), ("push", "rename", "commit", 4),
       ("push", "link+", "commit", 3), ("push", "link+", "commit", 5),
       ("push", "malloc", "engine", 41), ("push", "malloc", "transfer", 36),
       ("push", "malloc", "transfer", 60), ("push", "malloc", "engine", 256),
       ("push", "malloc", "push", 100), ("push", "write", "transfer", 3),
       ("push", "space", "engine", 1), ("push", "sendmsg", "transfer", 20),
       ("push", "full", "run", 9), ("push", "full", "registry", 14),
       ("push", "broken", "store", 8), ("apply", "read", "delta", 10),
       ("apply", "broken", "delta", 3),
       ("verify", "read", "delta", 1),
       ("device", "write", "engine.move-slot", 1))


def called_by(mark):
    with open(mark, encoding="utf8") as f:
        return f.read()


def reader_of(world):
    """Writes down what engines and registry show, until it is stopped."""
    stores = [SimpleNamespace(store=world.path(name)) for name in ENGINES]
    return history.Reader(SimpleNamespace(
        dir=world.top, registry=world.path("registry"), engines=stores,
        servers=[]))


class Worker:
    """A world of its own; tries what it is given."""

    def __init__(self, top):
        self.top = top
        self.world = self.reader = self.suits = None
        self.looks = self.broken = 0
        self.serial = itertools.count()

    def set_up(self, story, fault):
        """Unless it has a world in which such things are tried."""
        suits = (story, fault.where if fault.kind == SMALL else None)
        if self.suits != suits:
            self.done()
        if self.world:
            return
        self.suits = suits
        self.world = World(os.path.join(self.top, f"w{next(self.serial)}"))
        if fault.kind == SMALL:
            self.world.mount(fault.where)
        STORIES[story].furnish(self.world)
        STORIES[story].begin(self.world)
        if STORIES[story].is_watched:
            self.reader = reader_of(self.world)

    def tear_down(self):
        """After something broke, nothing of it is a good start."""
        world, self.world = self.world, None
        reader, self.reader = self.reader, None
        if reader:
            reader.stop()
        if world:
            for name in list(world.procs):
                world.end_engine(name, signal.SIGKILL)
            world.unmount()
        try:
            self.looks += reader.check() if reader else 0
        finally:
            if world:
                shutil.rmtree(world.top, ignore_errors=True)

    def attempt(self, story, fault):
        """A word for what came of it, None: it passed untouched."""
        trial = None
        try:
            self.set_up(story, fault)
            trial = STORIES[story](self.world, fault)
            return trial.run()
        except Exception as e:
            self.complain(f"{story}: {fault}: {e}\n", e, trial)
            self.done()
            return "BROKEN"

    def complain(self, text, e, trial=None):
        if not isinstance(e, Broken):
            text += traceback.format_exc()
        if trial and trial.result:
            text += f"{trial.result}\n"
        if trial and os.path.exists(trial.mark):
            text += called_by(trial.mark)
        if self.world:
            text += "".join(f"left: {r}\n" for r in self.world.rests())
        self.broken += 1
        print(f"# {text}", file=sys.stderr, flush=True)

    def done(self):
        """Readers may have seen in it what may not be seen."""
        try:
            self.tear_down()
        except Exception as e:
            self.complain(f"{self.suits[0]}: {e}\n", e)


class Sweep:
    def __init__(self, args, workers):
        self.args, self.workers = args, workers
        self.table = {}

    def sweep(self, worker, story, kind, where):
        """n = first, first + stride, ...: outcomes."""
        seen = collections.Counter()
        untouched = 0
        for n in self.numbers(story, kind, where):
            outcome = worker.attempt(story, Fault(kind, where, n))
            untouched = untouched + 1 if outcome is None else 0
            if untouched == (ENOUGH if kind == SMALL else 1):
                break
            if outcome is not None:
                seen[outcome] += 1
            if seen["BROKEN"] == BROKEN_MAX:
                break
        return seen

    def numbers(self, *row):
        if self.args.few:
            return [n for *few, n in FEW if tuple(few) == row]
        # No page more is a try, too.
        first = self.args.first - (row[1] == SMALL)
        return range(first, TRIED, self.args.stride)

    def part(self, row):
        worker = self.workers.pop()
        try:
            return row, self.sweep(worker, *row)
        finally:
            self.workers.append(worker)

    def run(self):
        rows = [r for r in rows_of(self.args) if self.numbers(*r)]
        random.Random(self.args.seed).shuffle(rows)
        rows.sort(key=lambda row: list(STORIES).index(row[0]))
        with concurrent.futures.ThreadPoolExecutor(len(self.workers)) as p:
            done = [p.submit(self.part, row) for row in rows]
            for part in concurrent.futures.as_completed(done):
                row, seen = part.result()
                self.table[row] = seen
                show(row, seen)


def rows_of(args):
    """A program for what fails once, a place for a disk."""
    for name in args.stories:
        story = STORIES[name]
        if story.needs and not os.path.exists(os.path.join(BUILD,
                                                           story.needs)):
            print(f"{name}: not built: {story.needs}")
            continue
        for kind in args.kinds:
            for where in (story.places if is_of_disk(kind)
                          else story.programs):
                if where in (args.procs or [where]):
                    yield name, kind, where


def show(row, seen):
    words = ", ".join(f"{n} {what}" for what, n in sorted(seen.items()))
    print(f"{row[0]:11} {row[1]:8} {row[2]:16} {sum(seen.values()):5} "
          f"failed: {words or '-'}", flush=True)


def total(table, looks):
    seen = sum(table.values(), collections.Counter())
    words = ", ".join(f"{n} {what}" for what, n in sorted(seen.items()))
    print(f"{sum(seen.values())} calls failed: {words}; {looks} looks of "
          "readers")


def listed(known):
    def parse(text):
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"not one of {known}")
        return words
    return parse


def options():
    args = argparse.ArgumentParser(description=__doc__)
    where = {w for s in STORIES.values() for w in s.programs + s.places}
    args.add_argument("--stories", type=listed(tuple(STORIES)),
                      default=tuple(STORIES))
    args.add_argument("--kinds", type=listed(KINDS), default=KINDS)
    args.add_argument("--procs", type=listed(sorted(where)), default=())
    args.add_argument("--first", type=int, default=1)
    args.add_argument("--stride", type=int, default=1)
    args.add_argument("--few", action="store_true",
                      help="only those that once broke something")
    args.add_argument("--jobs", type=int, default=2)
    args.add_argument("--seed", type=int, default=0, help="of the order")
    return args.parse_args()


def with_mounts(kinds):
    """In a namespace where each place may be a file system of its own."""
    inside = "WEIR_FAULT_MOUNTS"
    if SMALL not in kinds or os.environ.pop(inside, None):
        return list(kinds)
    if os.system("unshare -m true 2>/dev/null"):
        print(f"{SMALL}: no mount namespaces here")
        return [k for k in kinds if k != SMALL]
    os.execvpe("unshare", ["unshare", "-m", sys.executable, *sys.argv],
               {**os.environ, inside: "1"})
    return None


def main():
    a = options()
    if not a.few:
        a.kinds = with_mounts(a.kinds)
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = tempfile.mkdtemp(prefix="weir-fault.", dir=place)
    workers = [Worker(os.path.join(top, str(i))) for i in range(a.jobs)]
    try:
        sweep = Sweep(a, workers[:])
        sweep.run()
    finally:
        for worker in workers:
            worker.done()
        shutil.rmtree(top, ignore_errors=True)
    total(sweep.table, sum(w.looks for w in workers))
    return 1 if any(w.broken for w in workers) else 0


if __name__ == "__main__":
    sys.exit(main())
