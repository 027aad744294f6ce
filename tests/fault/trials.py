"""One try in which something fails, and what must hold after any.

A Trial runs programs in a world that is made once for many; run() gives a word
for what came of it.  Of each kind of them: `programs`, each of which may be
the one whose calls fail, and `places`, whose disk may be.
"""

import os

from world import BUILD, Broken, wait_for

FAULT = os.path.join(BUILD, "tests/fault/fault.so")
# A disk on which, from the n-th call on, nothing works until the push is over;
# instead of a program it has a place.
WRITES = "write,space,create,mkdir,link,rename"
DISKS = {"full": (WRITES, "28"), "broken": (WRITES + ",read,fsync", "5")}
SMALL = "small"  # a tmpfs of its own with room for n pages more
ATTENTION = "goes into the registry's attention"
# Between a caller and its call.
BENEATH = ("fault.so", "libc.so", "ld-linux")


def is_of_disk(kind):
    return kind in DISKS or kind == SMALL


class Fault:
    """The n-th call of a kind, in a program or below a place.  A program at
    the engine is "engine", or one that it starts: "engine.move-slot"."""

    def __init__(self, kind, where, n):
        self.kind, self.where, self.n = kind, where, n

    def __str__(self):
        return f"{self.kind} {self.n} of {self.where}"

    def is_at_engine(self):
        return self.where == "store" or self.where.startswith("engine")

    def environment(self, world):
        if self.kind == SMALL:
            return {}
        return {"LD_PRELOAD": FAULT, "FAULT_N": str(self.n),
                "FAULT_MARK": world.path("mark"),
                **(self.of_disk(world) if self.kind in DISKS
                   else self.of_program())}

    def of_disk(self, world):
        kinds, number = DISKS[self.kind]
        return {"FAULT_KIND": kinds, "FAULT_ERRNO": number,
                "FAULT_ALWAYS": "1",
                "FAULT_UNDER": world.place(self.where) + "/"}

    def of_program(self):
        env = {"FAULT_PROC": "weir-" + self.where.split(".")[-1],
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


class Trial:
    """One try, and what must hold of any."""

    programs, places = (), ()
    codes = {0, 71, 74}  # that a failure of ours may end it with
    needs = None         # a program without which there is no such story
    is_watched = False   # by a reader

    def __init__(self, world, fault):
        self.w, self.fault = world, fault
        self.mark = world.path("mark")
        self.result = None

    @classmethod
    def furnish(cls, world):
        """Before its engines start."""

    @classmethod
    def begin(cls, world):
        """What each try finds there: version 1, at both engines."""
        world.start_engines()
        world.must(world.push(1))

    @property
    def foreign(self):
        return os.path.exists(self.mark) and in_library(self.mark)

    def run(self):
        """A word for the outcome; None: it passed untouched."""
        if os.path.exists(self.mark):
            os.unlink(self.mark)
        self.prepare()
        died = self.act()
        hit = self.is_hit()
        if not hit and self.result.code:
            raise Broken(f"untouched, and ends with\n{self.result}")
        if hit or self.fault.kind == SMALL:
            self.check(died)
        self.heal()
        return self.outcome(died) if hit else None

    def is_hit(self):
        if self.fault.kind == SMALL:
            return self.result.code != 0
        return os.path.exists(self.mark)

    def prepare(self):
        pass

    def outcome(self, died):
        code = self.result.code if died is None else died
        if code < 0:
            return f"signal {-code}"
        return f"ends with {code}" if code else "copes"

    def check_code(self):
        code = self.result.code
        if code < 0 and self.foreign:
            return
        if code not in self.codes:
            raise Broken("this code may not be")
        if code and not self.result.errors() and not self.foreign:
            raise Broken("no line that says why")
        # Where an engine that is left behind is recorded is no second reason.
        errors = [e for e in self.result.errors() if ATTENTION not in e]
        # On a bad disk more than one thing fails; each is said once.
        if len(errors) > (len(set(errors)) if is_of_disk(self.fault.kind)
                          else 1):
            raise Broken("more than one line that says why")

    def check_rests(self, stores):
        # Processes of the run may need a moment to see that it is over.
        wait_for("what is left", lambda: not self.rests(stores))

    def rests(self, stores):
        return self.w.rests(stores)
