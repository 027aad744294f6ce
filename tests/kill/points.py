"""Each process killed just before and just after each of its named points

The names are those that the programs meet (tests/kill/point.c): rows of their
machines' tables, durable moves, and what a mover hears and says.  A name
belongs to the first story (stories.py) that meets it.  Started again by
weir-push, or by hand.
"""

import re
import threading
from collections import Counter

import fleet as f
import stories

STORIES = tuple(stories.ALL)


def points_of(args):
    """(story, its points) of each."""
    seen = set()
    for name in args.stories:
        story = stories.ALL[name](args, "n")
        own = [p for p in story.names()
               if story.is_own(p, seen) and re.search(args.only, p)]
        seen.update(own)
        yield story, own


def job_list(args):
    """(story, when, point, how)"""
    jobs = []
    for story, points in points_of(args):
        print(f"  {story.name:9}{len(points):5} points", flush=True)
        jobs += [(story.name, when, point, how)
                 for n, point in enumerate(points)
                 for when, hows in ways_of(args, story, point, n)
                 for how in hows]
    return jobs


def ways_of(args, story, point, n):
    """All by both ways, or, in short, each edge by one of them in turn."""
    if not story.by_hand or point.partition(":")[0] not in f.STAGES:
        return [("before", [story.push]), ("after", [story.push])]
    two = [story.push, f.Hand]
    if not args.short:
        return [("before", two), ("after", two)]
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
        story = stories.ALL[name](self.args, worker)
        while job := self.take(name):
            _, when, point, how = job
            text = f"{name}: {when} {point} ({how.__name__.lower()})"
            try:
                if story.kill(when, point, how):
                    self.count[name, point.partition(":")[0]] += 1
                else:
                    self.missed.append(text)
            except Exception as e:      # told, and the others go on
                self.broken.append(f"{text}: {type(e).__name__}: {e}")
                print(f"  BROKEN {self.broken[-1]}", flush=True)
                story = stories.ALL[name](
                    self.args, f"{worker}x{len(self.broken)}")
        try:
            story.tear_down()
        except Exception as e:      # a thread's end tells nobody
            self.broken.append(f"{name}: {type(e).__name__}: {e}")
            print(f"  BROKEN {self.broken[-1]}", flush=True)

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
    for (story, who), n in sorted(work.count.items()):
        print(f"  {story:9}{who:12}{n:5} killed at its points")
    for text in work.missed:
        print(f"  not met again: {text}")
    print(f"points: {total - len(work.missed)} of {total} kills, "
          f"{len(work.broken)} broken, {args.polls} looks of readers")
    f.expect(len(work.missed) <= max(3, total // 20),
             "too many points were not met")
    return 1 if work.broken else 0
