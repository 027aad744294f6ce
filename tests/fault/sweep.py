#!/usr/bin/env python3
"""Lets each call of each kind fail once, in each program of a push.

sweep.py [--kinds K,...] [--procs P,...] [--stride N] [--jobs N] ...

For n = 1, 2, 3 ...: a push in which the n-th such call of one program fails
(fault.c), until a push passes untouched.  After each: the exit code is one of
those that such a failure may have, stderr has a clear line, each engine
serves the old version or exactly the new one, the registry can be read, what
is decided is what the code says, nothing is left behind, and the next push
publishes.  Prints a table: calls that failed, by outcome.
"""

import argparse
import collections
import concurrent.futures
import errno
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback

from world import BUILD, Broken, ENGINES, World, wait_for

FAULT = os.path.join(BUILD, "tests/fault/fault.so")
PROCS = ("plan", "admit", "transfer", "commit", "engine", "push")
# A "+": the call is done all the same, and then said to have failed.
KINDS = ("malloc", "open", "read", "write", "space", "fsync", "fsync+",
         "rename", "rename+", "link", "link+", "mkdir", "sendmsg", "mmap")
# A disk on which, from the n-th call on, nothing works until the push is over;
# instead of a program it has a place.
WRITES = "write,space,create,mkdir,link,rename"
DISKS = {"full": (WRITES, errno.ENOSPC),
         "broken": (WRITES + ",read,fsync", errno.EIO)}
PLACES = {"registry": "registry", "run": "run", "store": "a"}
UNKNOWN = 75
ATTENTION = "goes into the registry's attention"
# What a failure of ours may end a push with; 0 and 3 after the decision.
CODES = {0, 1, 2, 3, 69, 71, 74, UNKNOWN}
# Between a caller and its call.
BENEATH = ("fault.so", "libc.so", "ld-linux")
TRIED = 20000  # calls of one kind; then something counts for ever
# What once broke something, and one of each other kind.
FEW = (("fsync", "commit", 1), ("fsync", "commit", 15),
       ("fsync+", "engine", 16), ("rename", "commit", 4),
       ("link+", "commit", 3), ("link+", "commit", 5),
       ("malloc", "engine", 41), ("malloc", "transfer", 36),
       ("malloc", "transfer", 60), ("malloc", "engine", 256),
       ("malloc", "push", 100), ("write", "transfer", 3),
       ("space", "engine", 1), ("sendmsg", "transfer", 20),
       ("full", "run", 9), ("full", "registry", 14), ("broken", "store", 8))


class Fault:
    def __init__(self, kind, proc, n):
        self.kind, self.proc, self.n = kind, proc, n

    def __str__(self):
        return f"{self.kind} {self.n} of {self.proc}"

    def is_at_engine(self):
        return self.proc in ("engine", "store")

    def environment(self, world):
        return {"LD_PRELOAD": FAULT, "FAULT_N": str(self.n),
                "FAULT_MARK": world.path("mark"),
                **(self.of_disk(world) if self.kind in DISKS
                   else self.of_program())}

    def of_disk(self, world):
        kinds, number = DISKS[self.kind]
        return {"FAULT_KIND": kinds, "FAULT_ERRNO": str(number),
                "FAULT_ALWAYS": "1",
                "FAULT_UNDER": world.path(PLACES[self.proc]) + "/"}

    def of_program(self):
        env = {"FAULT_PROC": "weir-" + self.proc,
               "FAULT_KIND": self.kind.rstrip("+")}
        if self.kind.endswith("+"):
            env["FAULT_DONE"] = "1"
        return env


def in_library(mark):
    """Did a foreign library make the call?  Then what it does with the
    failure is its own."""
    with open(mark, encoding="utf8") as f:
        for line in f:
            name = os.path.basename(line.split("(")[0])
            if not name.startswith(BENEATH):
                return not name.startswith("weir-")
    return False


def called_by(mark):
    with open(mark, encoding="utf8") as f:
        return f.read()


class Trial:
    """One push with a fault, and all that must hold after it."""

    def __init__(self, world, fault):
        self.w, self.fault = world, fault
        self.mark = world.path("mark")
        self.old = max(world.serving(e) for e in ENGINES)
        self.new = self.old + 1

    @property
    def foreign(self):
        return os.path.exists(self.mark) and in_library(self.mark)

    def run(self):
        """A word for the outcome; None: the push passed untouched."""
        if os.path.exists(self.mark):
            os.unlink(self.mark)
        env = self.fault.environment(self.w)
        died = None
        if self.fault.is_at_engine():
            died = self.push_at_engine(env)
        else:
            self.result = self.w.push(self.new, **env)
        hit = os.path.exists(self.mark)
        if not hit and self.result.code:
            raise Broken(f"untouched, and ends with\n{self.result}")
        if hit:
            self.check(died)
        self.heal()
        return self.outcome(died) if hit else None

    def push_at_engine(self, env):
        """The engine is started with the fault; how it ended, if it did."""
        self.w.end_engine("a")
        self.w.forget_said("a")
        died = self.w.start_engine("a", **env)
        if died is not None:
            del self.w.procs["a"]
            self.w.start_engines()
        self.result = self.w.push(self.new)
        if died is None:
            died = self.w.ended("a")
        else:
            self.check_died(died)
        return died

    def outcome(self, died):
        code = self.result.code if died is None else died
        if code < 0:
            return f"signal {-code}"
        return f"ends with {code}" if code else "copes"

    def check(self, died):
        self.check_code()
        if died is not None:
            self.check_died(died)
        if self.fault.is_at_engine() and self.w.procs.get("a") is None:
            self.w.start_engines()
        decided = self.w.decided(self.new)
        code = self.result.code
        if code in (0, 3) and not decided:
            raise Broken(f"ends with {code}, and nothing is decided")
        if code not in (0, 3, UNKNOWN) and decided and code > 0:
            raise Broken(f"ends with {code}, and it is decided")
        allowed = (self.old, self.new) if decided else (self.old,)
        for name in ENGINES:
            self.w.check_serving(name,
                                 (self.new,) if code == 0 else allowed)
        self.w.check_registry()
        if code >= 0:
            self.check_rests(())

    def check_code(self):
        code = self.result.code
        if code < 0 and self.foreign:
            return
        if code not in CODES:
            raise Broken("this code may not be")
        if code and not self.result.errors() and not self.foreign:
            raise Broken("no line that says why")
        # Where an engine that is left behind is recorded is no second reason.
        errors = [e for e in self.result.errors() if ATTENTION not in e]
        # On a bad disk more than one thing fails; each is said once.
        if len(errors) > (len(set(errors)) if self.fault.kind in DISKS
                          else 1):
            raise Broken("more than one line that says why")

    def check_died(self, code):
        if code < 0 and self.foreign:
            return
        if code not in (71, 74):
            raise Broken(f"the engine ends with {code}: "
                         + self.w.said_by("a"))
        if " error " not in self.w.said_by("a"):
            raise Broken("the engine does not say why it ends")

    def check_rests(self, stores):
        # Processes of the run may need a moment to see that it is over.
        wait_for("what is left", lambda: not self.w.rests(stores))

    def heal(self):
        if self.fault.is_at_engine():
            self.w.end_engine("a")
            self.w.start_engines()
        version = self.new + (1 if self.w.decided(self.new) else 0)
        again = self.w.push(version)
        if again.code:
            raise Broken(f"the next push ends with\n{again}")
        for name in ENGINES:
            self.w.check_serving(name, (version,))
        if os.path.exists(self.w.path("registry", "open")):
            raise Broken("the next push leaves it open")
        self.check_rests(ENGINES)


class Worker:
    """A world of its own; tries what it is given."""

    def __init__(self, top):
        self.top = top
        self.world = None
        self.serial = itertools.count()

    def fresh(self):
        if self.world is None:
            self.world = World(os.path.join(self.top,
                                            f"w{next(self.serial)}"))
            self.world.start_engines()
            first = self.world.push(1)
            if first.code:
                raise Broken(f"the first push ends with\n{first}")
        return self.world

    def discard(self):
        """After something broke, nothing of it is a good start."""
        world, self.world = self.world, None
        if world:
            for name in list(world.procs):
                world.end_engine(name, signal.SIGKILL)
            shutil.rmtree(world.top, ignore_errors=True)

    def attempt(self, fault):
        """(outcome or None, complaint or None)"""
        trial = None
        try:
            trial = Trial(self.fresh(), fault)
            return trial.run(), None
        except Exception as e:
            text = f"{fault}: {e}\n"
            if not isinstance(e, Broken):
                text += traceback.format_exc()
            if trial and hasattr(trial, "result"):
                text += f"{trial.result}\n"
            if trial and os.path.exists(trial.mark):
                text += called_by(trial.mark)
            if self.world:
                text += "".join(f"left: {r}\n" for r in self.world.rests())
            self.discard()
            return "BROKEN", text


class Sweep:
    def __init__(self, args, workers):
        self.args, self.workers = args, workers
        self.table = {}
        self.broken = 0

    def sweep(self, worker, kind, proc):
        """n = first, first + stride, ...: outcomes."""
        seen = collections.Counter()
        a = self.args
        for n in self.numbers(kind, proc):
            outcome, complaint = worker.attempt(Fault(kind, proc, n))
            if complaint:
                print(f"# {complaint}", file=sys.stderr, flush=True)
            if outcome is None:
                seen["untouched"] += 1
                break
            seen[outcome] += 1
        return seen

    def numbers(self, kind, proc):
        if self.args.few:
            return [n for *pair, n in FEW if pair == [kind, proc]]
        return range(self.args.first, TRIED, self.args.stride)

    def part(self, pair):
        worker = self.workers.pop()
        try:
            return pair, self.sweep(worker, *pair)
        finally:
            self.workers.append(worker)

    def run(self):
        pairs = [p for p in pairs_of(self.args) if self.numbers(*p)]
        random.Random(self.args.seed).shuffle(pairs)
        with concurrent.futures.ThreadPoolExecutor(len(self.workers)) as p:
            for pair, seen in p.map(self.part, pairs):
                self.table[pair] = seen
                show(pair, seen)
        return sum(seen["BROKEN"] for seen in self.table.values())


def pairs_of(args):
    """A program for what fails once, a place for a disk."""
    for kind in args.kinds:
        for where in PLACES if kind in DISKS else PROCS:
            if where in (args.procs or [where]):
                yield kind, where


def show(pair, seen):
    seen.pop("untouched", 0)
    words = ", ".join(f"{n} {what}" for what, n in sorted(seen.items()))
    print(f"{pair[0]:8} {pair[1]:9} {sum(seen.values()):5} failed: "
          f"{words or '-'}", flush=True)


def total(table):
    seen = sum(table.values(), collections.Counter())
    words = ", ".join(f"{n} {what}" for what, n in sorted(seen.items()))
    print(f"{sum(seen.values())} calls failed: {words}")


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
    kinds, places = KINDS + tuple(DISKS), PROCS + tuple(PLACES)
    args.add_argument("--kinds", type=listed(kinds), default=kinds)
    args.add_argument("--procs", type=listed(places), default=())
    args.add_argument("--first", type=int, default=1)
    args.add_argument("--stride", type=int, default=1)
    args.add_argument("--few", action="store_true",
                      help="only those that once broke something")
    args.add_argument("--jobs", type=int, default=2)
    args.add_argument("--seed", type=int, default=0, help="of the order")
    return args.parse_args()


def main():
    a = options()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = tempfile.mkdtemp(prefix="weir-fault.", dir=place)
    workers = [Worker(os.path.join(top, str(i))) for i in range(a.jobs)]
    try:
        sweep = Sweep(a, workers[:])
        broken = sweep.run()
        total(sweep.table)
        return 1 if broken else 0
    finally:
        for worker in workers:
            worker.discard()
        shutil.rmtree(top, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
