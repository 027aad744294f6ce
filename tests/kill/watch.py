"""weir-watch killed just before and just after each of its named points

It tells versions by a command, and remembers the last one in a file.  Started
again it goes on: none is missed, in order, and only the one that was being
told is told again; the file is whole, and nothing is left beside it.
"""

import os
import shutil
import subprocess

import fleet as f

VERSIONS = 3
EXEC = 'echo "$WEIR_VERSION" >>"$TOLD"'


class Work:
    def __init__(self, args):
        self.args, self.base = args, f"{args.dir}/watch"
        self.fleet = f.Fleet(f"{self.base}/fleet", args.build, ("a",))
        self.fleet.start()
        for n in range(VERSIONS):
            source = f.checkpoint(f"{self.base}/c{n}", "128KiB", n)
            run = f.Push(self.fleet, source, (), self.fleet.engines)
            run.finish()
            f.expect(run.codes() == [0], run.said())
        self.fleet.stop()
        self.place, self.told = f"{self.base}/place", f"{self.base}/told"

    def numbers(self):
        if not os.path.exists(self.told):
            return []
        with open(self.told, encoding="ascii") as told:
            return [int(n) for n in told.read().split()]

    def is_done(self):
        with open(f"{self.place}/seen", encoding="ascii") as seen:
            return seen.read().split()[1] == str(VERSIONS)

    def run(self, env):
        """Until it has told all, or has died: did it?"""
        p = subprocess.Popen(
            [self.fleet.program("tests/kill/weir-watch"), "--registry",
             self.fleet.registry, "--since", "0", "--state",
             f"{self.place}/seen", "--exec", EXEC],
            env=dict(self.fleet.env, TOLD=self.told, **env),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        f.wait_until(lambda: p.poll() is not None or
                     os.path.exists(f"{self.place}/seen") and self.is_done(),
                     "weir-watch")
        p.terminate()
        said = p.communicate(timeout=f.WAIT_S)[1].decode()
        f.expect(p.returncode in (-f.KILL, 128 + f.TERM),
                 f"exit {p.returncode}: {said}")
        return p.returncode == -f.KILL

    def clear(self):
        shutil.rmtree(self.place, ignore_errors=True)
        os.mkdir(self.place)
        if os.path.exists(self.told):
            os.unlink(self.told)

    def points(self):
        path = f"{self.base}/names"
        open(path, "w", encoding="ascii").close()
        self.clear()
        self.run({"KILL_NAMES": path})
        with open(path, encoding="ascii") as names:
            return list(dict.fromkeys(n.strip() for n in names))

    def kill(self, edge):
        at = f"{self.base}/at"
        with open(at, "w", encoding="ascii") as out:
            out.write(edge)
        self.clear()
        died = self.run({"KILL_AT": at})
        f.expect(not os.path.exists(at), "it was not met again")
        f.expect(not (died and self.run({})), "it died again")
        told = self.numbers()
        f.expect(list(dict.fromkeys(told)) == list(range(1, VERSIONS + 1)) and
                 told == sorted(told), f"told: {told}")
        f.expect(len(told) <= VERSIONS + 1, f"told too often: {told}")
        f.expect(os.listdir(self.place) == ["seen"],
                 f"beside: {os.listdir(self.place)}")


def main(args):
    work = Work(args)
    edges = [f"{when} {point}" for point in work.points()
             for when in ("before", "after")]
    f.expect(edges, "no points")
    broken = 0
    for edge in edges:
        try:
            work.kill(edge)
        except f.Broken as e:
            broken += 1
            print(f"  BROKEN {edge}: {e}")
    print(f"watch: {len(edges)} kills, {broken} broken")
    return 1 if broken else 0
