"""What goes on while a process is killed at one of its points

Each is a fleet in which the same is done again and again.  `steady` is a push
over an older version; what the others change of it, they say.
"""

import os
import subprocess

import fleet as f
import history
import servers

TRIES = 3       # for points that a run does not always meet
SIZE = "192KiB"
WAVES = ("--max-inflight-engine-groups", "1")
CREDIT = ("--max-inflight-buckets", "2", *WAVES)
PUSH = ("--bucket-size", "64KiB", *CREDIT)
PUSH_WHOLE = ("--keep", "2", *WAVES)


class Steady:
    runs = 3                # of which each meets some of its points
    by_hand = True          # its stages may be started by hand, too
    push = f.Push
    first_options = options = PUSH
    heal_options = ()       # of the push that must work afterwards
    shards = 2
    engine_options = ("--keep", "1")

    def __init__(self, args, worker):
        self.args = args
        self.name = type(self).__name__.lower()
        self.base = f"{args.dir}/{self.name[:3]}{worker}"
        self.n = 0
        self.fleet = self.reader = None
        self.died = False       # in the last run, at a point

    # ---- the fleet ----

    def checkpoint(self, n):
        return f.checkpoint(f"{self.base}/c{n}", SIZE, n, shards=self.shards)

    def sources(self):
        return [self.checkpoint(1), self.checkpoint(2)]

    def env(self):
        return {}

    def add_engines(self):
        self.fleet.engines = [f.Engine(self.fleet, name, self.engine_options)
                              for name in ("a", "b")]

    def set_up(self, names=""):
        """Engines run, and serve a first version."""
        if self.fleet:
            return
        if not self.n:
            os.makedirs(self.base)
            self.two = self.sources()
        self.n += 1
        env = {"KILL_AT": f"{self.base}/at", "KILL_NAMES": names, **self.env()}
        self.fleet = f.Fleet(f"{self.base}/{self.n}/fleet", self.args.build,
                             (), "tests/kill", env)
        self.add_engines()
        self.begin()

    def begin(self):
        self.start()
        for source in self.two:
            run = f.Push(self.fleet, source, self.first_options,
                         self.fleet.engines)
            run.finish()
            self.fleet.judge(run)
        f.expect(len(self.fleet.decided()) == len(self.two), run.said())

    def start(self):
        self.fleet.start()
        if not self.reader:
            self.reader = history.Reader(self.fleet)

    def tear_down(self):
        if not self.fleet:
            return
        self.fleet.stop()
        if self.reader:
            self.reader.stop()
            self.args.polls += self.reader.check()
        self.fleet = self.reader = None

    # ---- what is told ----

    def before(self):
        """What each run finds is made."""

    def next_source(self):
        return self.two[self.fleet.runs % 2]

    def tell(self, how):
        self.start()
        run = how(self.fleet, self.next_source(), self.options,
                  list(self.fleet.engines))
        self.go_on(run)
        return run

    def go_on(self, run):
        run.finish()

    def names(self):
        """Points that it meets, in order, each once."""
        path = f"{self.args.dir}/{self.name}.names"
        self.set_up(path)
        met = {}
        for _ in range(self.runs):
            self.before()
            open(path, "w", encoding="ascii").close()
            run = self.tell(self.push)
            with open(path, encoding="ascii") as names:
                met |= dict.fromkeys(self.of_interest(names.read().split("\n")))
            os.unlink(path)
            self.judge(run)
        self.tear_down()
        return list(met)

    def of_interest(self, names):
        """Of a run's."""
        return filter(None, names)

    def is_own(self, point, seen):
        """Others have met those that are seen."""
        return point not in seen

    def kill_at(self, text):
        with open(f"{self.base}/at", "w", encoding="ascii") as out:
            out.write(text)

    def was_killed(self):
        return not os.path.exists(f"{self.base}/at")

    def kill(self, when, point, how):
        """True if the process died there."""
        for _ in range(TRIES):
            self.set_up()
            self.before()
            self.kill_at(f"{when} {point}")
            run = self.tell(how)
            self.died = self.was_killed()
            if not self.died:
                os.unlink(f"{self.base}/at")
            self.judge(run)
            if self.died:
                return True
        return False

    # ---- what is true after it ----

    def judge(self, run):
        codes = set(run.codes())
        try:
            self.fleet.judge(run, -f.KILL in codes)
            self.judge_codes(run, codes)
            self.let_go()
            if codes != {0} or self.fleet.is_open():
                self.fleet.heal(run, self.heal_options)
            self.fleet.end_guests()
            self.fleet.is_clean(run)
        except f.Broken as e:
            raise f.Broken(f"{e}\n{run.said()}") from None
        for e in self.fleet.engines:
            e.deaths = 0

    def judge_codes(self, run, codes):
        """A stage's death costs nothing, an engine's its run at most."""
        died = any(e.deaths for e in self.fleet.engines)
        if not (died or -f.KILL in codes or run.ended_unread()):
            f.expect(codes == {0}, f"the run ended with {codes}")

    def let_go(self):
        """Of what was there for this run alone."""


class Fresh(Steady):
    """The first push ever, with the start of its engines."""

    runs = 1
    by_hand = False

    def set_up(self, names=""):
        self.tear_down()
        super().set_up(names)

    def begin(self):
        pass


class Window(Steady):
    """The source is read once."""

    options = (*PUSH, "--order", "window")


class Whole(Steady):
    """Version directories, by a transport without credit."""

    def begin(self):
        by = self.fleet.by(self.name)
        self.first_options = self.options = PUSH_WHOLE + by
        super().begin()


class Disk(Whole):
    pass


class Delta(Whole):
    def sources(self):
        one = self.checkpoint(1)
        return [one, f.change(one, f"{self.base}/c2")]


class WithOneMore(Steady):
    """A third engine in each run, new in it, and not in the next one's
    fleet; it is there when that recovers."""

    runs = 1
    by_hand = False
    more_options = ()

    def before(self):
        self.fleet.engines.append(f.Engine(
            self.fleet, f"z{self.fleet.runs}",
            (*self.engine_options, *self.more_options)))

    def let_go(self):
        self.fleet.guests.append(self.fleet.engines.pop())


class Abort(WithOneMore):
    """It cannot load."""

    more_options = ("--post-load", "false")

    def judge_codes(self, run, codes):
        f.expect(not codes & {0, 3}, f"published: {codes}")


class Quit(WithOneMore):
    """It loads for ever, and then SIGTERM comes."""

    def before(self):
        self.held = f"{self.base}/held"
        self.more_options = ("--post-load", f": >{self.held}; exec sleep 600")
        super().before()

    def go_on(self, run):
        run.failures = (*run.failures, 128 + f.TERM)
        f.wait_until(lambda: run.tend() or os.path.exists(self.held) or
                     run.is_over(), "the post-load")
        run.end()
        run.finish()

    def let_go(self):
        super().let_go()
        if os.path.exists(self.held):
            os.unlink(self.held)

    def judge_codes(self, run, codes):
        f.expect(not codes & {0, 3}, f"published: {codes}")
        f.expect(self.died or codes == {128 + f.TERM}, f"after SIGTERM: {codes}")


class Joining(f.Push):
    decides = False

    def what(self):
        return ["--only", self.engines[-1].name, "--fleet", self.file]


class Join(WithOneMore):
    """It is brought to the version that the others serve."""

    options = CREDIT
    push = Joining

    def next_source(self):
        return self.fleet.source[max(self.fleet.source)]


class GoingBack(f.Push):
    def what(self):
        """To the last one that has the source's content."""
        to = max(n for n, source in self.fleet.source.items()
                 if source == self.source)
        return ["--to", str(to)]


class Rollback(Steady):
    """Engines keep what they go back to."""

    by_hand = False
    options = CREDIT
    push = GoingBack
    engine_options = ("--keep", "4")

    def next_source(self):
        last = self.fleet.source[max(self.fleet.source)]
        return self.two[1 - self.two.index(last)]


class Return(Rollback):
    """They do not, and get it from its source."""

    engine_options = ("--keep", "1")


LEFT = ("stop-after commit: commit load drained -> receipt",
        "stop-before commit: commit decide agreed -> swap")


class Recover(Steady):
    """A push left a run open, undecided and decided in turn.  It ends that
    first; the points are those up to then."""

    runs = 4
    by_hand = False
    done = "commit: commit recover recovered -> probe"

    def before(self):
        self.kill_at(LEFT[self.fleet.runs % 2])
        self.start()
        run = f.Push(self.fleet, self.next_source(), PUSH,
                     list(self.fleet.engines))
        f.wait_until(lambda: self.was_killed() or run.is_over(), "its stop")
        f.expect(not run.is_over(), "it did not stop there")
        run.process.kill()
        f.wait_until(lambda: not self.fleet.kill_stages() and
                     run.is_over(), "its end")
        run.finish()
        self.fleet.judge(run, True)
        f.expect(self.fleet.is_open(), "no open is left")
        self.left = run

    def let_go(self):
        self.left.drop()    # by then nobody looks whether it goes on

    def of_interest(self, names):
        return (n for n in names[:names.index(self.done) + 1]
                if n.startswith("commit:"))

    def is_own(self, point, seen):
        return True


class Path(Steady):
    """Servers that load from the stores beside them."""

    shards = 1
    host = None             # of the servers
    engine_names = ("a", "s", "v")
    server_kinds = {"s": "sglang", "v": "vllm"}
    server_options = ()
    content_of = staticmethod(servers.loaded_from)

    def add_engines(self):
        of = {name: f.Engine(self.fleet, name, self.engine_options)
              for name in self.engine_names}
        self.fleet.engines = list(of.values())
        self.host = servers.Servers(self.fleet, self.content_of)
        for name, kind in self.server_kinds.items():
            self.host.add(name, kind, of.get(name), self.server_options)

    def tear_down(self):
        super().tear_down()
        if self.host:
            self.host.stop()
        self.host = None


class Alone(Path):
    """Servers with a url alone, which load the source itself."""

    engine_names = ("a",)
    heal_options = ("--accept-proof", "sampled")
    first_options = options = (*PUSH, *heal_options)


class OverDevices(Steady):
    """By a mover, whose death may cost the run; CUDA and NCCL are
    stand-ins."""

    def env(self):
        standin = f"{self.args.build}/tests/standin"
        return {"LD_LIBRARY_PATH": standin, "WEIR_STANDIN": standin,
                "CUDA_VISIBLE_DEVICES": "0"}

    def names(self):
        if not os.path.exists(f"{self.args.build}/tests/kill/weir-move-nccl"):
            print(f"  {self.name}: built without CUDA and NCCL")
            return []
        return super().names()

    may_fail = False

    def kill(self, when, point, how):
        self.may_fail = point.startswith("move-")
        return super().kill(when, point, how)

    def judge_codes(self, run, codes):
        if not self.may_fail:
            super().judge_codes(run, codes)


class Nccl(OverDevices):
    options = (*PUSH, "--transport", "nccl")

    def add_engines(self):
        self.fleet.engines = [
            f.Engine(self.fleet, name, self.engine_options,
                     {"CUDA_VISIBLE_DEVICES": str(1 + i)})
            for i, name in enumerate(("a", "b"))]


class Ipc(OverDevices):
    options = (*PUSH, "--transport", "cuda-ipc")


class Device(OverDevices):
    """Engines that have their versions on a device, too."""

    engine_options = ("--keep", "1", "--device", "0")

    def judge(self, run):
        super().judge(run)
        for e in self.fleet.engines:
            self.is_offered(e)

    def is_offered(self, e):
        done = subprocess.run(
            [f"{self.args.build}/tests/devclient", e.store], input=b"map\n",
            env=self.fleet.env, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, check=False)
        want = b"ok %d" % f.number_of(f"{e.store}/current")
        f.expect(want in done.stdout.splitlines(),
                 f"{e.name}: its consumer has {done.stdout}, not {want}")


class Cast(OverDevices, Path):
    """Servers that weights are broadcast to."""

    engine_names = ()
    options = ("--transport", "nccl", "--bucket-size", "64KiB",
               "--keep-together", "none", "--accept-proof", "sampled", *WAVES)
    first_options = heal_options = options
    server_options = ("--cast",)
    content_of = staticmethod(servers.broadcast_from)


ALL = {s.__name__.lower(): s for s in (
    Steady, Abort, Fresh, Disk, Delta, Window, Rollback, Return, Join, Quit,
    Recover, Path, Alone, Nccl, Cast, Ipc, Device)}
