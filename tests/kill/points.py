"""Each process killed just before and just after each of its named points

The names are those that the programs meet (tests/kill/point.c): rows of their
machines' tables, and durable moves.  Stories: `steady`, a push over an older
version; `abort`, one that fails at its last engine; `fresh`, the first one
ever, with the start of its engines; `disk` and `delta`, steady ones by these
transports.  A name belongs to the first story that meets it.  Started again
by weir-push, or by hand.
"""

import os
import re
import threading
from collections import Counter

import fleet as f
import history

STORIES = ("steady", "abort", "fresh", "disk", "delta")
STEADY = ("steady", "disk", "delta")
TRIES = 3       # for points that a run does not always meet
SIZE = "192KiB"
PUSH = ("--bucket-size", "64KiB", "--max-inflight-buckets", "2",
        "--max-inflight-engine-groups", "1")
PUSH_WHOLE = ("--keep", "2", "--max-inflight-engine-groups", "1")


class Story:
    """A fleet in which one story is told again and again."""

    def __init__(self, args, name, worker):
        self.args, self.name = args, name
        self.base = f"{args.dir}/{name[:2]}{worker}"
        self.n = 0
        self.fleet = self.reader = None
        self.options = PUSH

    def sources(self):
        one = f.checkpoint(f"{self.base}/c1", SIZE, 1, shards=2)
        if self.name == "delta":
            return [one, f.change(one, f"{self.base}/c2")]
        return [one, f.checkpoint(f"{self.base}/c2", SIZE, 2, shards=2)]

    def set_up(self, names=None):
        """Engines run, and serve a first version."""
        if not self.fleet:
            os.makedirs(self.base, exist_ok=True)
            self.two = self.sources()
        elif self.name == "fresh":
            self.tear_down()
        if not self.fleet:
            self.n += 1
            env = {"KILL_AT": f"{self.base}/at", "KILL_NAMES": names or ""}
            self.fleet = f.Fleet(f"{self.base}/{self.n}/fleet", self.args.build,
                                 ("a", "b"), "tests/kill", env)
            if self.name in ("disk", "delta"):
                self.options = PUSH_WHOLE + self.fleet.by(self.name)
            if self.name != "fresh":
                self.begin()

    def begin(self):
        self.fleet.start()
        self.reader = history.Reader(self.fleet)
        for source in self.two:
            self.fleet.judge(self.tell(f.Push, source, ()))
        if self.name == "abort":
            self.add_failing()

    def add_failing(self):
        """It cannot load: who joins it to the fleet aborts."""
        e = f.Engine(self.fleet, f"z{self.fleet.runs}")
        e.options = ("--post-load", "false")
        self.fleet.engines.append(e)

    def tell(self, how, source, options=None):
        self.fleet.start()
        if not self.reader:
            self.reader = history.Reader(self.fleet)
        run = how(self.fleet, source, self.options if options is None
                  else options, list(self.fleet.engines))
        run.finish()
        return run

    def next_source(self):
        return self.two[self.fleet.runs % 2]

    def names(self):
        path = f"{self.args.dir}/{self.name}.names"
        self.set_up(path)
        met = {}
        for _ in range(3 if self.name in STEADY else 1):
            open(path, "w", encoding="ascii").close()
            run = self.tell(f.Push, self.next_source())
            with open(path, encoding="ascii") as names:
                met |= dict.fromkeys(n.strip() for n in names)
            os.unlink(path)
            self.judge(run)
        self.tear_down()
        return list(met)

    def kill(self, when, point, how):
        """True if the process died there."""
        for _ in range(TRIES):
            self.set_up()
            at = f"{self.base}/at"
            with open(at, "w", encoding="ascii") as out:
                out.write(f"{when} {point}")
            run = self.tell(how, self.next_source())
            died = not os.path.exists(at)
            if not died:
                os.unlink(at)
            self.judge(run)
            if died:
                return True
        return False

    def judge(self, run):
        codes = set(run.codes())
        engine_died = any(e.deaths for e in self.fleet.engines)
        try:
            self.fleet.judge(run, -f.KILL in codes)
            if self.name == "abort":
                f.expect(not codes & {0, 3}, f"published: {codes}")
                self.fleet.engines.pop().stop()
            elif not (engine_died or -f.KILL in codes or run.ended_unread()):
                f.expect(codes == {0}, f"the run ended with {codes}")
            if codes != {0} or self.fleet.is_open():
                self.fleet.heal(run)
            self.fleet.is_clean(run)
        except f.Broken as e:
            raise f.Broken(f"{e}\n{run.said()}") from None
        if self.name == "abort":
            self.add_failing()
        for e in self.fleet.engines:
            e.deaths = 0

    def tear_down(self):
        if not self.fleet:
            return
        self.fleet.stop()
        if self.reader:
            self.reader.stop()
            self.args.polls += self.reader.check()
        self.fleet = self.reader = None


def job_list(args):
    """(story, when, point, how), each name in the first story it is met."""
    seen, jobs = set(), []
    for name in args.stories:
        for point in Story(args, name, "n").names():
            if point in seen or not re.search(args.only, point):
                continue
            seen.add(point)
            ways = ways_of(args, name, point, len(seen))
            jobs += [(name, when, point, how)
                     for when, hows in ways for how in hows]
    return jobs


def ways_of(args, story, point, n):
    """All by both ways, or, in short, each edge by one of them in turn."""
    by_hand = story in STEADY and point.partition(":")[0] in f.STAGES
    if not by_hand:
        return [("before", [f.Push]), ("after", [f.Push])]
    if not args.short:
        return [("before", [f.Push, f.Hand]), ("after", [f.Push, f.Hand])]
    two = [f.Push, f.Hand]
    return [("before", [two[n % 2]]), ("after", [two[1 - n % 2]])]


def sample(args, jobs):
    """Every so manieth of each story, the first one by the seed."""
    if not args.kills:
        return jobs
    step = max(1, len(jobs) // args.kills)
    return jobs[args.seed % step::step]


class Work:
    def __init__(self, args, jobs):
        self.args, self.jobs = args, jobs
        self.lock = threading.Lock()
        self.count, self.broken, self.missed = Counter(), [], []

    def take(self, name):
        with self.lock:
            for i, job in enumerate(self.jobs):
                if job[0] == name:
                    return self.jobs.pop(i)
        return None

    def tell_story(self, name, worker):
        story = Story(self.args, name, worker)
        while job := self.take(name):
            _, when, point, how = job
            text = f"{name}: {when} {point} ({how.__name__.lower()})"
            try:
                if story.kill(when, point, how):
                    self.count[point.partition(":")[0]] += 1
                else:
                    self.missed.append(text)
            except Exception as e:      # told, and the others go on
                self.broken.append(f"{text}: {e}")
                story = Story(self.args, name, f"{worker}x{len(self.broken)}")
        try:
            story.tear_down()
        except f.Broken as e:
            self.broken.append(f"{name}: {e}")

    def worker(self, n):
        for name in self.args.stories:
            self.tell_story(name, n)

    def run(self):
        threads = [threading.Thread(target=self.worker, args=(n,))
                   for n in range(self.args.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main(args):
    jobs = sample(args, job_list(args))
    f.expect(jobs, "no points")
    total = len(jobs)
    work = Work(args, jobs)
    work.run()
    for who, n in sorted(work.count.items()):
        print(f"  {who:9}{n:5} killed at its points")
    for text in work.missed:
        print(f"  not met again: {text}")
    for text in work.broken:
        print(f"  BROKEN {text}")
    print(f"points: {total - len(work.missed)} of {total} kills, "
          f"{len(work.broken)} broken, {args.polls} looks of readers")
    f.expect(len(work.missed) <= max(3, total // 20),
             "too many points were not met")
    return 1 if work.broken else 0
