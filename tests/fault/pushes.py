"""Pushes in which something fails, by all transports, and what recovers."""

import os
import shutil

from trials import FAULT, SMALL, Trial
from world import Broken, ENGINES

STAGES = ("plan", "admit", "transfer", "commit")
UNKNOWN = 75


class Push(Trial):
    """A version after the other, to both engines."""

    programs = STAGES + ("engine", "push")
    places = ("registry", "run", "store")
    codes = {0, 1, 2, 3, 69, 71, 74, UNKNOWN}  # 0 and 3 after the decision
    is_watched = True

    def __init__(self, world, fault):
        super().__init__(world, fault)
        self.old = max(world.serving(e) for e in ENGINES)
        self.new = self.old + 1

    def act(self):
        """How the engine ended, if it did."""
        env = self.fault.environment(self.w)
        if self.fault.is_at_engine():
            return self.act_at_engine(env)
        if self.fault.kind == SMALL:
            self.w.resize(self.fault.where, self.fault.n)
        self.result = self.tell(**env)
        self.w.enlarge(self.fault.where)
        return None

    def act_at_engine(self, env):
        """The engine is started with the fault."""
        self.w.end_engine("a")
        self.w.forget_said("a")
        if self.fault.kind == SMALL:
            self.w.resize("store", self.fault.n)
        died = self.w.start_engine("a", **env)
        if died is not None:
            del self.w.procs["a"]
            self.w.enlarge("store")
            self.w.start_engines()
        self.result = self.tell()
        if died is None:
            died = self.w.ended("a")
        self.w.enlarge("store")
        return died

    def tell(self, **env):
        return self.w.push(self.new, **env)

    def check(self, died):
        self.check_code()
        if died is not None:
            self.check_died(died)
        if self.fault.is_at_engine() and self.w.procs.get("a") is None:
            self.w.start_engines()
        self.check_fleet(self.result.code)
        self.w.check_registry()
        if self.result.code >= 0:
            self.check_rests(())

    def check_fleet(self, code):
        decided = self.w.decided(self.new)
        if code in (0, 3) and not decided:
            raise Broken(f"ends with {code}, and nothing is decided")
        if code not in (0, 3, UNKNOWN) and decided and code > 0:
            raise Broken(f"ends with {code}, and it is decided")
        allowed = self.before() | ({self.new} if decided else set())
        for name in ENGINES:
            self.w.check_serving(name,
                                 {self.new} if code == 0 else allowed)

    def before(self):
        """What an engine may serve that has not got the new version."""
        return {self.old}

    def check_died(self, code):
        if code < 0 and self.foreign:
            return
        if code not in (71, 74):
            raise Broken(f"the engine ends with {code}: "
                         + self.w.said_by("a"))
        if " error " not in self.w.said_by("a"):
            raise Broken("the engine does not say why it ends: "
                         + self.w.said_by("a"))

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


class Rollback(Push):
    """The version before, under a new number; engines keep it."""

    programs = STAGES + ("engine", "rollback")

    @classmethod
    def begin(cls, world):
        super().begin(world)
        world.must(world.push(2))

    def tell(self, **env):
        return self.w.rollback(self.new, **env)


class Join(Push):
    """--only: the published version to an engine that has nothing."""

    is_watched = False  # it has a version anew each time

    def __init__(self, world, fault):
        super().__init__(world, fault)
        self.new = self.old

    def prepare(self):
        self.w.end_engine("a")
        self.w.empty("a")
        self.w.start_engines()

    def tell(self, **env):
        return self.w.push_only("a", **env)

    def check_fleet(self, code):
        self.w.check_serving("a", {self.new} if code == 0 else {0, self.new})
        self.w.check_serving("b", {self.new})

    def heal(self):
        if self.fault.is_at_engine():
            self.w.end_engine("a")
            self.w.start_engines()
        again = self.w.push_only("a")
        if again.code:
            raise Broken(f"the next --only ends with\n{again}")
        for name in ENGINES:
            self.w.check_serving(name, {self.new})
        if os.path.exists(self.w.path("registry", "open")):
            raise Broken("the next --only leaves it open")
        self.check_rests(ENGINES)


class Disk(Push):
    """A version directory that the engines load."""

    places = Push.places + ("disk",)
    transport = "disk"

    @classmethod
    def furnish(cls, world):
        world.by(cls.transport)

    def rests(self, stores):
        """What retention could not remove, the next push's does."""
        lines = super().rests(stores)
        return lines if stores else [l for l in lines if not
                                     l.startswith(self.w.place("disk"))]

    def check(self, died):
        super().check(died)
        self.w.check_disk()

    def heal(self):
        super().heal()
        self.w.check_disk_is_tidy()


class Delta(Disk):
    """The same, of what changed."""

    transport = "delta"


class Forward(Push):
    """What an earlier commit decided is finished first; that one was killed
    when it had linked the decision, and nothing had swapped."""

    programs = ("commit", "engine", "push")
    dies = ("rename", "4")
    is_decided = True

    def prepare(self):
        kind, n = self.dies
        self.old = max(self.w.serving(e) for e in ENGINES)
        self.killed = self.old + 1
        before = self.w.runs()
        self.w.push_by_hand(self.killed, LD_PRELOAD=FAULT,
                            FAULT_PROC="weir-commit", FAULT_KIND=kind,
                            FAULT_N=n, FAULT_SIGNAL="9")
        if not os.path.exists(self.w.path("registry", "open")):
            raise Broken("nothing was left open")
        if self.w.decided(self.killed) != self.is_decided:
            raise Broken("the commit before did not die where it should")
        if max(self.w.serving(e) for e in ENGINES) != self.old:
            raise Broken("it swapped")
        self.new = self.killed + 1
        self.dead = self.w.runs() - before

    def act(self):
        died = super().act()
        for run in self.dead:
            shutil.rmtree(run)
        return died

    def before(self):
        return {self.old} | ({self.killed} if self.is_decided else set())


class Backward(Forward):
    """An earlier run is aborted first; its commit was killed just before it
    would have linked the decision."""

    dies = ("link", "4")
    is_decided = False


class Device(Push):
    """Versions in device memory, over the stand-in of CUDA."""

    programs = ("engine", "engine.move-slot")
    places = ("store",)
    needs = "weir-move-slot"

    @classmethod
    def furnish(cls, world):
        world.over_stand_ins()
        world.engine_options = ("--device", "0")

    def check_died(self, code):
        # What ends with its mover.
        if code == 69:
            code = 71
        super().check_died(code)


class Nccl(Push):
    """A broadcast, over the stand-ins of CUDA and NCCL."""

    programs = ("transfer", "move-nccl", "engine", "engine.move-nccl")
    places = ()
    needs = "weir-move-nccl"
    transport = "nccl"

    @classmethod
    def furnish(cls, world):
        world.over_stand_ins()
        world.options = ("--transport", cls.transport)
        # Each has a device, and so has the source.
        for device, name in enumerate(ENGINES, 1):
            world.own[name] = {"CUDA_VISIBLE_DEVICES": str(device)}


class Ipc(Nccl):
    """Device buffers shared by handle."""

    programs = ("transfer", "move-ipc", "engine", "engine.move-ipc")
    needs = "weir-move-ipc"
    transport = "cuda-ipc"

    @classmethod
    def furnish(cls, world):
        super().furnish(world)
        world.own = {}


class DeviceSource(Push):
    """From a trainer's device memory, over the stand-in of CUDA."""

    programs = ("plan", "transfer", "move-source")
    places = ()
    needs = "weir-move-source"

    @classmethod
    def furnish(cls, world):
        world.over_stand_ins()
        for seed, name in enumerate(("one", "two"), 1):
            world.train(name, seed)

    @classmethod
    def begin(cls, world):
        """What the first two pushes bring is what such ones bring."""
        world.start_engines()
        for version in (1, 2):
            world.must(world.push(version))
            shutil.rmtree(world.source(version))
            shutil.copytree(world.path("a", "current"), world.source(version))


class Http(Push):
    """Engine a is an SGLang server (a stand-in), loaded from its store."""

    programs = ("commit",)
    places = ()

    @classmethod
    def furnish(cls, world):
        world.serve_http()

    def check_fleet(self, code):
        super().check_fleet(code)
        label = self.w.label("a")
        if label not in {self.old} | ({self.new} if self.w.decided(self.new)
                                      else set()):
            raise Broken(f"the server says that it has {label}")

    def heal(self):
        super().heal()
        if self.w.label("a") != self.w.serving("a"):
            raise Broken("the server has another version than its store")
