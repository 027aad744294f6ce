"""Each process killed at random times of random pushes

One seed makes the plan of one push: its source, engines, limits, order, who
is killed and when, and who starts it again.  The time is a part of what such
pushes took so far.  A kill lands inside if its process ran, and the run had
no verdict yet.
"""

import os
import random
import threading
import time
from collections import Counter

import fleet as f
import history

VICTIMS = ("plan", "admit", "transfer", "transfer", "commit", "commit",
           "engine", "push")
SIZES = ("128KiB", "512KiB", "2MiB", "6MiB")
ENGINES = ("a", "b", "c")
TRANSPORTS = ("host", "host", "disk", "delta")
FEW = 100           # kills, of which nothing is said about the average
REMEMBERED = 8      # durations that say how long a push takes


class Plan:
    """What one seed says."""

    def __init__(self, seed):
        r = random.Random(seed)
        self.seed = seed
        self.source = r.randrange(len(SIZES))
        self.engines = r.sample(range(len(ENGINES)), r.randint(1, 3))
        self.transport = r.choice(TRANSPORTS)
        self.options = []
        for option, values in (
                ("--bucket-size", ("32KiB", "128KiB", "512KiB")),
                ("--max-inflight-buckets", ("0", "1", "2", "4")),
                ("--max-inflight-bytes", ("0", "5MiB", "8MiB")),
                ("--max-inflight-engine-groups", ("0", "1", "2")),
                ("--order", ("wave", "window"))):
            value = r.choice(values)
            if self.transport == "host" or option.endswith("groups"):
                self.options += [option, value]
        encoding = r.choice(("xor", "overwrite", "auto"))
        if self.transport == "delta":
            self.options += ["--delta-encoding", encoding]
        self.victim = r.choice(VICTIMS)
        self.by_hand = self.victim != "push" and r.random() < 0.3
        self.when = r.random()
        self.which = r.random()

    def __str__(self):
        how = "by hand" if self.by_hand else "weir-push"
        return (f"seed {self.seed}: {self.victim} at {self.when:.3f}, {how}, "
                f"engines {[ENGINES[i] for i in self.engines]}, "
                f"{SIZES[self.source]}, {self.transport} "
                f"{' '.join(self.options)}")


class Chance:
    """One fleet; pushes and kills, one after the other."""

    def __init__(self, args, worker):
        self.fleet = f.Fleet(f"{args.dir}/{worker}/fleet", args.build, ENGINES)
        self.sources = [f.checkpoint(f"{args.dir}/{worker}/c{i}", size, i,
                                     shards=1 + i % 2)
                        for i, size in enumerate(SIZES)]
        twins = [f.change(s, f"{s}x") for s in self.sources]
        self.twin = dict(zip(self.sources + twins, twins + self.sources))
        self.fleet.start()
        self.reader = history.Reader(self.fleet)
        self.took = []
        for source in self.sources:
            run = f.Push(self.fleet, source, (), self.fleet.engines)
            self.wait(run)
            self.fleet.judge(run)

    def wait(self, run):
        start = time.monotonic()
        run.finish()
        self.took = (self.took + [time.monotonic() - start])[-REMEMBERED:]

    def kill(self, plan):
        """(inside a run, bytes sent again)"""
        engines = [self.fleet.engines[i] for i in plan.engines]
        how = f.Hand if plan.by_hand else f.Push
        run = how(self.fleet, self.source(plan), self.options(plan), engines)
        wait = plan.when * sorted(self.took)[len(self.took) // 2]
        end = time.monotonic() + wait
        while time.monotonic() < end and not run.is_over():
            time.sleep(f.LOOK_S)
        inside = self.strike(run, plan)
        self.wait(run)
        try:
            self.judge(run, plan, inside)
        except f.Broken as e:
            raise f.Broken(f"{e}\n{run.said()}") from None
        again = self.resent(run) if run.codes()[0] == 0 else 0
        run.drop()
        return inside, again

    def source(self, plan):
        """For a delta, of what is published, a little is changed."""
        last = self.fleet.source[max(self.fleet.source)]
        return self.twin[last] if plan.transport == "delta" else \
            self.sources[plan.source]

    def options(self, plan):
        return plan.options if plan.transport == "host" else \
            [*plan.options, *self.fleet.by(plan.transport)]

    def strike(self, run, plan):
        engine = None
        if plan.victim == "engine":
            engine = run.engines[int(plan.which * len(run.engines))].process
            pid = engine.pid
        else:
            pid = run.pid(plan.victim)
        inside = pid is not None and not run.has_verdict()
        if pid:
            try:
                os.kill(pid, f.KILL)
            except ProcessLookupError:
                inside = False
        if engine:
            engine.wait()
        return inside

    @staticmethod
    def resent(run):
        again, credit = run.resent()
        f.expect(again <= credit,
                 f"{again} bytes were sent again, credit was {credit}")
        return again

    def judge(self, run, plan, inside):
        codes = set(run.codes())
        self.fleet.judge(run, plan.victim == "push")
        if plan.victim in f.STAGES and not run.ended_unread():
            f.expect(codes == {0}, f"the run ended with {codes}")
        if not inside:
            f.expect(codes <= {0, -f.KILL} or plan.victim == "engine" or
                     run.ended_unread(), f"no kill, but {codes}")
        if codes != {0} or self.fleet.is_open():
            self.fleet.heal(run)
        self.fleet.is_clean(run)

    def end(self):
        self.fleet.stop()
        self.reader.stop()
        return self.reader.check()


class Work:
    def __init__(self, args):
        self.args = args
        self.seeds = list(range(args.seed, args.seed + args.kills))
        self.done, self.inside = Counter(), Counter()
        self.broken, self.again, self.lock = [], 0, threading.Lock()

    def note(self, plan, inside, again):
        with self.lock:
            self.done[plan.victim] += 1
            self.inside[plan.victim] += inside
            self.again = max(self.again, again)

    def worker(self, n):
        chance = None
        while True:
            with self.lock:
                if not self.seeds:
                    break
                plan = Plan(self.seeds.pop(0))
            try:
                chance = chance or Chance(self.args, f"w{n}-{plan.seed}")
                self.note(plan, *chance.kill(plan))
            except Exception as e:      # told, and the others go on
                self.broken.append(f"{plan}: {type(e).__name__}: {e}")
                print(f"  BROKEN {self.broken[-1]}", flush=True)
                chance = None
        try:
            self.args.polls += chance.end() if chance else 0
        except Exception as e:      # a thread's end tells nobody
            self.broken.append(f"{type(e).__name__}: {e}")
            print(f"  BROKEN {self.broken[-1]}", flush=True)

    def run(self):
        threads = [threading.Thread(target=self.worker, args=(n,))
                   for n in range(self.args.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main(args):
    args.kills = args.kills or 500
    work = Work(args)
    work.run()
    print("  victim    kills  inside a run")
    for who, n in sorted(work.done.items()):
        print(f"  {who:9}{n:6}{work.inside[who]:8}")
    inside = sum(work.inside.values())
    print(f"chance: {sum(work.done.values())} kills from seed {args.seed}, "
          f"{inside} inside a run, {len(work.broken)} broken, at most "
          f"{work.again} bytes sent again, {args.polls} looks of readers")
    f.expect(inside * 5 >= args.kills * 2 or args.kills < FEW,
             "too few landed inside a run")
    return 1 if work.broken else 0
