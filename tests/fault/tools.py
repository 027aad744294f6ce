"""Programs that run alone, in which something fails."""

import filecmp
import json
import os
import shutil

from trials import Trial
from world import Broken, ENGINES


class Tool(Trial):
    """One that only reads: it says what it says without a fault, or why
    not."""

    def act(self):
        self.said = self.call().out
        self.result = self.call(**self.fault.environment(self.w))

    def call(self, **env):
        return self.w.call(*self.words(), **env)

    def check(self, died):
        self.check_code()
        if self.result.code == 0 and self.result.out != self.said:
            raise Broken(f"says {self.result.out}")

    def heal(self):
        again = self.call()
        if again.code or again.out != self.said:
            raise Broken(f"the next one ends with\n{again}\n{again.out}")
        self.check_rests(ENGINES)


class Dump(Tool):
    programs = ("dump",)

    def words(self):
        return ("weir-dump", self.w.path("registry/versions/000001/plan"))


class DumpLedger(Tool):
    programs = ("dump",)

    def words(self):
        return ("weir-dump", self.w.path("registry/ledger"))


class Status(Tool):
    """It says of an engine that could not be asked that it lags (3)."""

    programs = ("status",)
    codes = Tool.codes | {3}

    def words(self):
        return ("weir-status", "--registry", self.w.path("registry"))

    def check_code(self):
        if self.result.code != 3:
            super().check_code()
        elif self.result.out == self.said:
            raise Broken("ends with 3, and does not say why")


class Watch(Trial):
    """Each version once; its state file is old or new.  While a registry
    cannot be read at all, it is waited for."""

    programs = ("watch",)

    def prepare(self):
        with open(self.w.path("registry", "id"), encoding="ascii") as f:
            self.id = f.read().strip()
        with open(self.w.path("seen"), "w", encoding="ascii") as f:
            f.write(f"{self.id} 0\n")

    def act(self):
        self.result = self.watch(**self.fault.environment(self.w))

    def watch(self, **env):
        return self.w.call("weir-watch", "--once", "--registry",
                           self.w.path("registry"), "--state",
                           self.w.path("seen"), **env)

    def seen(self):
        with open(self.w.path("seen"), encoding="ascii") as f:
            found, number = f.read().split()
        if found != self.id:
            raise Broken(f"the state names registry {found}")
        return int(number)

    def check(self, died):
        self.check_code()
        self.check_told(self.result)

    def check_told(self, result):
        told = [json.loads(line)["version"]
                for line in result.out.splitlines()]
        if told not in ([], [1]) or (result.code == 0 and told != [1]):
            raise Broken(f"told {told}")
        if self.seen() == 1 and told != [1]:
            raise Broken("the state says 1, and it was not told")
        if self.seen() == 0 and result.code == 0:
            raise Broken("ends with 0, and the state says 0")

    def heal(self):
        if self.seen() == 0:
            again = self.watch()
            self.check_told(again)
            if again.code:
                raise Broken(f"the next watch ends with\n{again}")
        self.check_rests(ENGINES)


def is_same(a, b, but=()):
    """Two directories, all other names and bytes; no directory is like
    none."""
    if not os.path.isdir(a):
        return not os.path.exists(b)
    names = set(os.listdir(a)) - set(but)
    if not os.path.isdir(b) or names != set(os.listdir(b)) - set(but):
        return False
    return not any(filecmp.cmpfiles(a, b, names, False)[1:])


class DeltaTool(Trial):
    """What it makes is there whole or not at all."""

    programs = ("delta",)
    places = ("delta",)

    @classmethod
    def begin(cls, world):
        os.makedirs(world.place("delta"))
        world.must(world.diff("diff"))

    def prepare(self):
        self.dir = self.w.place("delta")
        shutil.rmtree(self.dir)
        os.mkdir(self.dir)
        self.start()

    def start(self):
        pass

    def act(self):
        self.result = self.call(**self.fault.environment(self.w))

    def call(self, **env):
        return self.w.call("weir-delta", "-q", *self.words(), **env)

    def at(self, name):
        return os.path.join(self.dir, name)

    def check(self, died):
        self.check_code()
        if self.state() == "new":
            return
        if self.state() != "old" or self.result.code == 0:
            raise Broken(f"{self.result.code}: {self.state()}, "
                         f"{os.listdir(self.dir)}")

    def heal(self):
        again = self.again()
        if again.code or self.state() != "new":
            raise Broken(f"the next one ends with\n{again}")
        self.check_rests(())
        if set(os.listdir(self.dir)) - set(self.names):
            raise Broken(f"left behind: {os.listdir(self.dir)}")

    def again(self):
        return self.call()


class Diff(DeltaTool):
    names = ("new",)

    def words(self):
        return ("diff", self.w.path("one"), self.w.path("two"), "-o",
                self.at("new"), "--base-version", "1", "--weight-version",
                "2")

    def state(self):
        if is_same(self.w.path("diff"), self.at("new")):
            return "new"
        return "other" if os.path.exists(self.at("new")) else "old"

    def again(self):
        shutil.rmtree(self.at("new"), ignore_errors=True)
        return self.call()


class Apply(DeltaTool):
    """In place."""

    names = ("got",)

    def start(self):
        shutil.copytree(self.w.path("one"), self.at("got"))

    def words(self):
        return "apply", self.w.path("diff"), self.at("got")

    def state(self):
        for name, version in (("old", "one"), ("new", "two")):
            # A delta is of tensors: what else is there, stays.
            if is_same(self.w.path(version), self.at(self.names[0]),
                       (".weir-version", "config.json")):
                return name
        return "other"


class ApplyTo(Apply):
    """Beside the old one, which stays."""

    names = ("new", "got")

    def words(self):
        return super().words() + ("-o", self.at("new"))

    def state(self):
        if not is_same(self.w.path("one"), self.at("got")):
            return "other"
        if not os.path.exists(self.at("new")):
            return "old"
        return super().state()

    again = Diff.again


class Verify(Tool):
    programs = ("delta",)
    begin = DeltaTool.begin

    def words(self):
        return "weir-delta", "verify", self.w.path("diff")


class Inspect(Verify):
    def words(self):
        return "weir-delta", "inspect", self.w.path("diff")
