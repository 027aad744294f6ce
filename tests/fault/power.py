#!/usr/bin/env python3
"""Cuts the power after each step of a publication and of a recovery.

power.py [--stories S,...] [--models M,...] [--stride N]

record.c writes down every change to names and every fsync of registry and
stores, in order.  Here each beginning of that list is played again, and what
was not synced is lost: content is that of the file's last fsync, or nothing;
names are, by model,

	journal	those up to the last change of a directory that was synced
	each	of each directory those of its own last fsync; a rename counts
		for both of its own
	kept	all (a rename without fsync shows an empty file)

On each state that differs from those before, engines start and the next push
publishes.  Each engine serves the old version or exactly the new one, the new
one only if its decision is there.  The run directory is gone, as after a boot.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from world import BUILD, Broken, ENGINES, World

RECORD = os.path.join(BUILD, "tests/fault/record.so")
FAULT = os.path.join(BUILD, "tests/fault/fault.so")
MODELS = ("journal", "each", "kept")
DURABLE = ("registry", "disk") + ENGINES
FEW = 3  # states of each story that check looks at
# A run that is open is waited for as long as its stages may live.
World.stage_timeout = "3s"
UP, AT = os.path.dirname, os.path.basename


class Node:
    """A file (bytes now known to be durable), link or directory."""

    def __init__(self, kind, data=b""):
        self.kind, self.data = kind, data
        self.names = {}		# of a directory: as they are
        self.synced = {}	# as its own last fsync found them


def put(names, name, node):
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class Disk:
    """Names as they are, and what a power cut would leave of them."""

    def __init__(self, top):
        self.root = self.load(top)
        self.undo = []		# changes that a journal may lose
        self.unsynced = []	# those that their directories may lose

    def load(self, path):
        """What is there at the start is durable."""
        if os.path.islink(path):
            return Node("link", os.readlink(path).encode())
        if not os.path.isdir(path):
            if not os.path.isfile(path):
                return Node("other")
            with open(path, "rb") as f:
                return Node("file", f.read())
        node = Node("dir")
        for name in os.listdir(path):
            node.names[name] = self.load(os.path.join(path, name))
        node.synced = dict(node.names)
        return node

    def find(self, path):
        node = self.root
        for name in filter(None, path.split("/")):
            node = node.names[name]
        return node

    def change(self, changes):
        """Names of directories: path -> node or None, at once."""
        before, after = [], []
        for path, node in changes:
            at = self.find(UP(path))
            before.append((at, AT(path), at.names.get(AT(path))))
            after.append((at, AT(path), node))
        for at, name, node in after:
            put(at.names, name, node)
        self.undo.append(before)
        self.unsynced.append(after)

    def play(self, line, blobs):
        what, path, other = line
        if what == "create":
            self.change([(path, Node("file"))])
        elif what == "mkdir":
            self.change([(path, Node("dir"))])
        elif what == "symlink":
            self.change([(path, Node("link", other.encode()))])
        elif what == "link":
            self.change([(path, self.find(other))])
        elif what == "rename":
            self.change([(path, self.find(other)), (other, None)])
        elif what == "exchange":
            self.change([(path, self.find(other)), (other, self.find(path))])
        elif what == "unlink":
            self.change([(path, None)])
        elif what == "sync":
            with open(os.path.join(blobs, AT(other)), "rb") as f:
                self.find(path).data = f.read()
        elif what == "syncdir":
            self.sync_dir(path)
        else:
            raise Broken(f"no such call: {what}")

    def sync_dir(self, path):
        """A rename is one change, whichever of its directories is synced."""
        this = self.find(path)
        for i in reversed(range(len(self.undo))):
            if any(at is this for at, _, _ in self.undo[i]):
                del self.undo[:i + 1]
                break
        for change in self.unsynced[:]:
            if any(at is this for at, _, _ in change):
                self.unsynced.remove(change)
                for at, name, node in change:
                    put(at.synced, name, node)

    def names_of(self, node, model):
        return node.synced if model == "each" else node.names

    def left(self, model):
        """What the cut leaves, as [(path, kind, data, node)], parents
        first."""
        again = self.take_back() if model == "journal" else []
        found = []
        self.list(self.root, "", model, found)
        for at, name, node in reversed(again):
            put(at.names, name, node)
        return found

    def take_back(self):
        """All names that are not durable; how to bring them again."""
        again = []
        for before in reversed(self.undo):
            for at, name, node in reversed(before):
                again.append((at, name, at.names.get(name)))
                put(at.names, name, node)
        return again

    def list(self, node, path, model, found):
        names = self.names_of(node, model)
        for name in sorted(names):
            at = f"{path}/{name}" if path else name
            if not path and name not in DURABLE:
                continue
            child = names[name]
            found.append((at, child.kind, child.data, id(child)))
            if child.kind == "dir":
                self.list(child, at, model, found)


def build(top, found):
    """The state on disk; a file of two names stays one file."""
    made = {}
    for path, kind, data, node in found:
        at = os.path.join(top, path)
        if kind == "dir":
            os.mkdir(at, 0o700)
        elif kind == "link":
            os.symlink(data.decode(), at)
        elif kind == "file" and node in made:
            os.link(made[node], at)
        elif kind == "file":
            made[node] = at
            with open(at, "wb") as f:
                f.write(data)


def environment(world, log):
    return {"LD_PRELOAD": RECORD, "RECORD_TOP": world.top, "RECORD_LOG": log}


class Story:
    """What happens up to the cuts; last is the highest number it may give."""

    transport = None
    catches_up = True  # who is in an open run, once the next one is over

    def __init__(self, world, log):
        self.w, self.log = world, log
        self.old, self.last = 2, 3

    def prepare(self):
        if self.transport:
            self.w.by(self.transport)
        self.w.start_engines()
        for version in (1, 2):
            self.w.must(self.w.push(version))

    def recorded_engines(self):
        for name in ENGINES:
            self.w.end_engine(name)
        self.disk = Disk(self.w.top)
        for name in ENGINES:
            if self.w.start_engine(name, **environment(self.w, self.log)):
                raise Broken("an engine does not start again")

    def end(self):
        for name in ENGINES:
            self.w.end_engine(name)


class Publication(Story):
    """A push with nothing in its way."""

    def tell(self):
        self.prepare()
        self.recorded_engines()
        self.w.must(self.publish(**environment(self.w, self.log)))
        self.end()

    def publish(self, **env):
        return self.w.push(self.last, **env)


class ByDisk(Publication):
    transport = "disk"


class ByDelta(Publication):
    transport = "delta"


class Rollback(Publication):
    """The content of 1 again."""

    def publish(self, **env):
        return self.w.rollback(self.last, **env)


class Join(Publication):
    """Of an engine that has nothing."""

    catches_up = False

    def prepare(self):
        super().prepare()
        self.w.end_engine("a")
        self.w.empty("a")
        self.w.start_engines()

    def publish(self, **env):
        return self.w.push_only("a", **env)


class Recovery(Story):
    """A run that died is ended by the next one, which publishes too."""

    is_decided = False

    def tell(self):
        self.prepare()
        killed = self.last
        self.last += 1
        self.w.push_by_hand(killed, LD_PRELOAD=FAULT,
                            FAULT_PROC="weir-commit", FAULT_KIND=self.KIND,
                            FAULT_N=str(self.N), FAULT_SIGNAL="9")
        if not os.path.exists(self.w.path("registry", "open")):
            raise Broken("nothing was left open")
        if self.w.decided(killed) != self.is_decided:
            raise Broken("commit did not die where it should")
        for name in ENGINES:
            self.w.end_engine(name, signal.SIGKILL)
        self.recorded_engines()
        self.w.must(self.w.push(self.last,
                                **environment(self.w, self.log)))
        self.end()


class Forward(Recovery):
    """It died when the decision was linked, and nothing swapped."""

    KIND, N = "rename", 4
    is_decided = True


class Backward(Recovery):
    """It died just before it would have linked the decision."""

    KIND, N = "link", 4


class DeltaForward(Forward):
    transport = "delta"


class DeltaBackward(Backward):
    transport = "delta"


STORIES = {"publication": Publication, "forward": Forward,
           "backward": Backward, "disk": ByDisk, "delta": ByDelta,
           "delta-forward": DeltaForward, "delta-backward": DeltaBackward,
           "rollback": Rollback, "join": Join}


class Cut:
    """The machine is on again after a cut in that state: all is where it was,
    for the registry knows where its engines listen.  The next push may be of
    some engines only: what is open it finishes at all that it names."""

    def __init__(self, story, found, sources, engines):
        self.w = World(story.w.top, sources)
        build(self.w.top, found)
        if story.transport:
            self.w.by(story.transport)
        self.story, self.engines = story, engines

    def check(self):
        try:
            self.look()
        finally:
            self.w.close()

    def look(self):
        highest = self.w.highest()
        self.w.start_engines()
        for name in ENGINES:
            version = self.w.serving(name)
            if version > highest:
                raise Broken(f"{name} serves {version}, decided is {highest}")
            self.w.check_serving(name, range(highest + 1))
        self.w.check_registry()
        if self.story.transport:
            self.w.check_disk()
        caught_up = self.story.catches_up and os.path.exists(
            self.w.path("registry", "open"))
        self.publish()
        for name in set(ENGINES) - set(self.engines):
            self.w.check_serving(name, (highest,) if caught_up
                                 else range(highest + 1))

    def publish(self):
        """Whatever the state, the next push works."""
        version = self.story.last + 1
        self.w.write_fleet(self.engines)
        result = self.w.push(version)
        if result.code:
            raise Broken(f"the next push ends with\n{result}")
        for name in self.engines:
            self.w.check_serving(name, (version,))
        if os.path.exists(self.w.path("registry", "open")):
            raise Broken("the next push leaves it open")
        if self.story.transport:
            self.w.check_disk()
            self.w.check_disk_is_tidy()
        rests = self.w.rests(self.engines)
        if rests:
            raise Broken(f"left behind: {rests}")


def read_log(path):
    with open(path, encoding="utf8") as f:
        return [line.rstrip("\n").split("\t") for line in f]


class Cuts:
    def __init__(self, top, args):
        self.top, self.args = top, args
        self.states = self.broken = 0

    def story(self, name):
        place = os.path.join(self.top, name)
        os.mkdir(place)
        story = STORIES[name](World(os.path.join(place, "w")),
                              os.path.join(place, "log"))
        story.tell()
        lines = read_log(story.log)
        shutil.move(story.w.top, os.path.join(place, "before"))
        states = list(self.distinct(story.disk, lines, place))
        stride = len(states) // FEW if self.args.few else self.args.stride
        looked_at = states[::stride]
        for n, model, found in looked_at:
            self.cut(place, name, n, model, found, story)
        print(f"{name}: {len(lines)} calls, {len(states)} states, "
              f"{len(looked_at)} looked at", flush=True)

    def distinct(self, disk, lines, blobs):
        seen = set()
        for n in range(len(lines) + 1):
            if n:
                disk.play(lines[n - 1], blobs)
            for model in self.args.models:
                found = disk.left(model)
                key = tuple(f[:3] for f in found)
                if key not in seen:
                    seen.add(key)
                    yield n, model, found

    def cut(self, place, name, n, model, found, story):
        top = story.w.top
        try:
            self.states += 1
            Cut(story, found, os.path.join(place, "before"),
                ENGINES if self.states % 2 else ENGINES[1:]).check()
        except Broken as e:
            self.broken += 1
            print(f"# {name} cut after {n} calls, names {model}: {e}",
                  file=sys.stderr, flush=True)
            if self.args.keep:
                os.rename(top, f"{top}.{n}.{model}")
        shutil.rmtree(top, ignore_errors=True)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--stories", type=lambda t: t.split(","),
                      default=STORIES)
    args.add_argument("--models", type=lambda t: t.split(","),
                      default=MODELS)
    args.add_argument("--stride", type=int, default=1)
    args.add_argument("--few", action="store_true",
                      help="a few states of each story")
    args.add_argument("--keep", action="store_true",
                      help="what broke stays, to look at")
    a = args.parse_args()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    top = tempfile.mkdtemp(prefix="weir-power.", dir=place)
    cuts = Cuts(top, a)
    try:
        for name in a.stories:
            cuts.story(name)
    finally:
        if not a.keep:
            shutil.rmtree(top, ignore_errors=True)
    print(f"{cuts.states} states, {cuts.broken} broken")
    return 1 if cuts.broken else 0


if __name__ == "__main__":
    sys.exit(main())
