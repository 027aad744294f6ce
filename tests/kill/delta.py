"""weir-delta killed while it makes a delta, and while it applies one

In each encoding; at random times, and just before and just after each point
that it meets (point.c).  Afterwards the place holds exactly what it held
before or exactly what it was to hold, the next try succeeds, and nothing is
left beside it.
"""

import filecmp
import os
import random
import shutil
import subprocess
import threading
import time
from collections import Counter

import fleet as f

ENCODINGS = ("xor", "overwrite", "sparse", "auto")
VERBS = ("diff", "apply", "apply-out")
SIZE = "6MiB"
FEW = 60            # kills, of which nothing is said about the average


def is_like(a, b):
    """The same files with the same bytes?"""
    names = sorted(os.listdir(b))
    return (os.path.isdir(a) and sorted(os.listdir(a)) == names and
            all(filecmp.cmp(f"{a}/{n}", f"{b}/{n}", shallow=False)
                for n in names))


class Work:
    """One directory, in which one after the other is killed."""

    def __init__(self, args, base):
        self.base, self.build = base, args.build
        self.old = f.checkpoint(f"{base}/old", SIZE, 1, shards=2)
        self.new = f.change(self.old, f"{base}/new")
        self.place = f"{base}/work/place/it"    # as points name it
        self.took = {}

    def want(self, verb, encoding):
        """What is made, undisturbed."""
        path = f"{self.base}/{verb}-{encoding}"
        if (verb, encoding) not in self.took:
            words = self.words(verb, encoding, path)
            start = time.monotonic()
            self.run(verb, path, words)
            self.took[verb, encoding] = time.monotonic() - start
        return path

    def words(self, verb, encoding, place):
        if verb == "diff":
            return ["diff", self.old, self.new, "-o", place, "--base-version",
                    "1", "--weight-version", "2", "--delta-encoding", encoding]
        delta = self.want("diff", encoding)
        if verb == "apply":
            return ["apply", delta, place]
        return ["apply", delta, self.old, "-o", place]

    def start(self, words, env):
        name = "tests/kill/weir-delta" if env else "weir-delta"
        return subprocess.Popen(
            [f"{self.build}/{name}", "--quiet", "--threads", "2", *words],
            env=dict(os.environ, **env), stderr=subprocess.PIPE)

    def run(self, verb, place, words, env=None):
        """To its end: did it die?  What is changed in place is made first."""
        if verb == "apply" and not os.path.exists(place):
            shutil.copytree(self.old, place)
        p = self.start(words, env or {})
        said = p.communicate(timeout=f.WAIT_S)[1].decode()
        f.expect(p.returncode in (0, -f.KILL), f"exit {p.returncode}: {said}")
        return p.returncode != 0

    def prepare(self, verb, encoding):
        want = self.want(verb, encoding)
        os.makedirs(os.path.dirname(self.place), exist_ok=True)
        if verb == "apply":
            shutil.copytree(self.old, self.place)
        return want, self.words(verb, encoding, self.place)

    def judge(self, verb, want, words):
        is_old = (is_like(self.place, self.old) if verb == "apply" else
                  not os.path.exists(self.place))
        f.expect(is_old or is_like(self.place, want), "neither old nor new")
        f.expect(not self.run(verb, self.place, words), "it died again")
        f.expect(is_like(self.place, want), "it is not what it is to be")
        top = os.path.dirname(self.place)
        f.expect(os.listdir(top) == ["it"], f"beside: {os.listdir(top)}")
        shutil.rmtree(top)

    def at_chance(self, r):
        """(verb, inside)"""
        verb, encoding = r.choice(VERBS), r.choice(ENCODINGS)
        want, words = self.prepare(verb, encoding)
        p = self.start(words, {})
        time.sleep(r.random() * self.took[verb, encoding])
        p.kill()
        p.communicate()
        self.judge(verb, want, words)
        return verb, p.returncode == -f.KILL

    def points(self, verb, encoding):
        path = f"{self.base}/names"
        open(path, "w", encoding="ascii").close()
        want, words = self.prepare(verb, encoding)
        self.run(verb, self.place, words, {"KILL_NAMES": path})
        self.judge(verb, want, words)
        with open(path, encoding="ascii") as names:
            return list(dict.fromkeys(n.strip() for n in names))

    def at_point(self, verb, encoding, edge):
        at = f"{self.base}/at"
        want, words = self.prepare(verb, encoding)
        with open(at, "w", encoding="ascii") as out:
            out.write(edge)
        f.expect(self.run(verb, self.place, words, {"KILL_AT": at}),
                 "it was not met again")
        self.judge(verb, want, words)


def edges(args, work):
    """(verb, encoding, edge); in short, of one encoding."""
    encodings = ENCODINGS[args.seed % len(ENCODINGS):][:1] if args.short \
        else ENCODINGS
    return [(verb, encoding, f"{when} {name}")
            for encoding in encodings for verb in VERBS
            for name in work.points(verb, encoding)
            for when in ("before", "after")]


class Tally:
    def __init__(self):
        self.lock = threading.Lock()
        self.at, self.by_chance, self.inside = Counter(), Counter(), Counter()
        self.broken = []


def kill_one(work, job, tally):
    if isinstance(job, int):
        verb, inside = work.at_chance(random.Random(job))
        with tally.lock:
            tally.by_chance[verb] += 1
            tally.inside[verb] += inside
    else:
        work.at_point(*job)
        with tally.lock:
            tally.at[job[0]] += 1


def worker(args, base, jobs, tally):
    work = None
    while True:
        with tally.lock:
            if not jobs:
                return
            job = jobs.pop(0)
        try:
            base += "x" if work is None else ""
            work = work or Work(args, base)
            kill_one(work, job, tally)
        except Exception as e:      # told, and the others go on
            tally.broken.append(f"{job}: {type(e).__name__}: {e}")
            work = None


def sample(args, jobs):
    step = max(1, len(jobs) // args.kills) if args.short else 1
    return jobs[args.seed % step::step]


def main(args):
    args.kills = args.kills or 200
    tally = Tally()
    work = Work(args, f"{args.dir}/first")
    jobs = sample(args, edges(args, work))
    f.expect(jobs, "no points")
    jobs += range(args.seed, args.seed + args.kills)
    total = len(jobs)
    threads = [threading.Thread(target=worker, args=(
        args, f"{args.dir}/w{n}", jobs, tally)) for n in range(args.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print("  verb       points  by chance  inside")
    for verb in VERBS:
        print(f"  {verb:10}{tally.at[verb]:7}{tally.by_chance[verb]:11}"
              f"{tally.inside[verb]:8}")
    for text in tally.broken:
        print(f"  BROKEN {text}")
    inside = sum(tally.inside.values())
    print(f"delta: {total} kills from seed {args.seed}, {inside} of "
          f"{args.kills} by chance inside, {len(tally.broken)} broken")
    f.expect(inside * 5 >= args.kills * 2 or args.kills < FEW,
             "too few landed inside")
    return 1 if tally.broken else 0
