"""Engines, servers, checkpoints and runs, for tests that kill them.

What holds after any run is Fleet.judge(): a decision exists if and only if
the exit code says so, every engine serves a decided version byte for byte,
and nothing is left behind.
"""

import filecmp
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MKCKPT = os.path.join(HERE, "..", "fixtures", "mkckpt.py")
STAGES = ("plan", "admit", "transfer", "commit")
KILL = signal.SIGKILL
TERM = signal.SIGTERM
WAIT_S = 240        # bound on any wait for a process of ours
LOOK_S = 0.002      # between two looks at one
CHANGED = 64        # bytes from one that changes to the next
ALWAYS = ("--stage-timeout", "60s", "--engine-timeout", "60s",
          "--expect", "any")
OPTION_OF = {       # whose option is it, by hand
    "--bucket-size": "plan", "--max-inflight-buckets": "admit",
    "--max-inflight-bytes": "admit", "--max-inflight-engine-groups": "admit",
    "--order": "admit", "--min-engines": "commit",
    "--engine-timeout": "commit", "--expect": "commit",
    "--transport": "plan", "--disk-dir": "plan", "--keep": "commit",
    "--delta-encoding": "transfer", "--keep-together": "plan",
    "--accept-proof": "commit"}


class Broken(Exception):
    """Something that must hold does not."""


def expect(holds, text):
    if not holds:
        raise Broken(text)


def wait_until(fn, what):
    end = time.monotonic() + WAIT_S
    while not fn():
        expect(time.monotonic() < end, f"waited {WAIT_S} s for {what}")
        time.sleep(LOOK_S)


def number_of(path):
    """The number that a `current` names, 0 if there is none."""
    try:
        return int(os.path.basename(os.readlink(path)))
    except FileNotFoundError:
        return 0


def checkpoint(path, size, seed, shards=1):
    subprocess.run([sys.executable, MKCKPT, "--size", size, "--seed",
                    str(seed), "--shards", str(shards), "--layers", "4", path],
                   check=True, stderr=subprocess.DEVNULL)
    # What says at a glance whose content it is.
    with open(f"{path}/config.json", encoding="utf-8") as f:
        config = json.load(f)
    config["marker"] = os.path.basename(path)
    with open(f"{path}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f)
    return path


def change(old, new):
    """A copy with a byte here and there changed, of all tensors."""
    shutil.copytree(old, new)
    for name in filter(lambda n: n.endswith(".safetensors"), os.listdir(new)):
        with open(f"{new}/{name}", "r+b") as shard:
            data = bytearray(shard.read())
            start = 8 + int.from_bytes(data[:8], "little")
            for i in range(start, len(data), CHANGED):
                data[i] ^= 1 + i % 3
            shard.seek(0)
            shard.write(data)
    return new


class Engine:
    """A weir-engine; alive again, and listening, after ensure()."""

    def __init__(self, fleet, name, options=("--keep", "1"), env=None):
        self.fleet, self.name = fleet, name
        self.options, self.env = options, env or {}
        self.server = None      # of the same name, for which it has the store
        self.store = f"{fleet.dir}/{name}/store"
        os.mkdir(f"{fleet.dir}/{name}")
        self.endpoint = f"ipc://{fleet.dir}/{name}.sock"
        self.process = None
        self.deaths = 0

    def ensure(self):
        while self.process is None or self.process.poll() is not None:
            if self.process is not None:
                self.deaths += 1
            self.start()

    def start(self):
        ready, told = os.pipe()
        with open(f"{self.fleet.dir}/{self.name}.err", "ab") as err:
            self.process = subprocess.Popen(
                [self.fleet.program("weir-engine"), "--name", self.name,
                 "--store", self.store, "--listen", self.endpoint,
                 "-v", "--ready-fd", str(told), *self.options],
                pass_fds=[told], env={**self.fleet.env, **self.env},
                stderr=err, stdout=subprocess.DEVNULL)
        os.close(told)
        os.read(ready, 1)       # the end, if it died before it listened
        os.close(ready)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WAIT_S)

    def entry(self):
        """In the fleet file."""
        where = self.server.where() if self.server else ""
        return (f"  - name: {self.name}\n{where}    workers: "
                f"[{{endpoint: \"{self.endpoint}\"}}]\n")


class Run:
    """One attempt to publish; by weir-push, or by a pipeline and --run."""

    decides = True      # or it brings engines to what is decided
    failures = (1, 2, 69, 75)

    def __init__(self, fleet, source, options, engines):
        self.fleet, self.source, self.options = fleet, source, options
        self.engines = engines
        self.before = fleet.decided()
        fleet.runs += 1
        self.dir = f"{fleet.env['XDG_RUNTIME_DIR']}/r{fleet.runs}"
        os.mkdir(self.dir, 0o700)
        self.file = f"{self.dir}.yaml"
        fleet.write_fleet(self.file, engines)
        self.err = open(f"{self.dir}.err", "ab")

    def what(self):
        return ["--source", self.source, "--fleet", self.file]

    def has_verdict(self):
        return os.path.exists(f"{self.dir}/verdict")

    def said(self):
        with open(f"{self.dir}.err", encoding="utf-8") as f:
            return f.read()

    def resent(self):
        """Bytes sent again and the largest credit, of the summary."""
        with open(f"{self.dir}/events", encoding="utf-8") as f:
            last = [json.loads(line) for line in f
                    if '"event":"summary"' in line][-1]
        return last["resent_bytes"], last["peak_credit_bytes"]

    def is_over(self):
        raise NotImplementedError

    def ended_unread(self):
        """In a pipe that nobody supervises, a stage whose reader died before
        it was in the run gives up: nobody is there to start it again."""
        return False

    def tend(self):
        """Engines that died are started again, as a service manager does."""
        for e in self.engines:
            e.ensure()

    def finish(self):
        wait_until(lambda: self.tend() or self.is_over(),
                   f"the end of {self.dir}")
        self.tend()
        self.err.close()

    def drop(self):
        shutil.rmtree(self.dir)


class Push(Run):
    def __init__(self, *args):
        super().__init__(*args)
        self.process = subprocess.Popen(
            [self.fleet.program("weir-push"), *self.what(), "--registry",
             self.fleet.registry, "--run", self.dir, *ALWAYS, *self.options],
            env=self.fleet.env, stderr=self.err, stdout=subprocess.DEVNULL)
        self.last = {}

    def pid(self, who):
        """Of a stage that runs, or of push itself; None if it does not."""
        if who == "push":
            return self.process.pid if self.process.poll() is None else None
        for pid in children(self.process.pid):
            name = name_of(pid)
            if name.startswith("weir-"):
                self.last[name] = pid
            if name == f"weir-{who}":
                return pid
        return None

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(TERM)

    def codes(self):
        return [self.process.returncode]

    def is_over(self):
        # Its stages end by themselves when it was killed.
        return self.process.poll() is not None and not self.fleet.stages()


class Hand(Run):
    """plan | admit | transfer | commit; who dies is started with --run."""

    def __init__(self, *args):
        super().__init__(*args)
        self.stage, self.code = {}, {}
        into = subprocess.DEVNULL
        for name in STAGES:
            last = name == "commit"
            out = subprocess.DEVNULL if last else subprocess.PIPE
            run = [] if name != "plan" else ["--run", self.dir]
            self.start(name, run, into, out)
            if into != subprocess.DEVNULL:
                into.close()
            into = self.stage[name].stdout

    def words(self, name):
        own = {"plan": self.what(),
               "commit": ["--registry", self.fleet.registry]}.get(name, [])
        options = [*ALWAYS, *self.options]
        for option, value in zip(options[::2], options[1::2]):
            if OPTION_OF.get(option, name) == name:
                own += [option, value]
        return own

    def start(self, name, run, into, out):
        self.stage[name] = subprocess.Popen(
            [self.fleet.program(f"weir-{name}"), *run, *self.words(name)],
            env=self.fleet.env, stdin=into, stdout=out, stderr=self.err)

    def pid(self, who):
        p = self.stage.get(who)
        return p.pid if p and p.poll() is None else None

    def codes(self):
        return [self.code[name] for name in STAGES]

    def ended_unread(self):
        return "nobody reads the hand-off" in self.said()

    def is_over(self):
        for name in STAGES:
            code = self.stage[name].poll()
            if code is None:
                continue
            self.code[name] = code
            if code < 0 or (code in (75, 76) and not self.has_verdict()):
                self.start(name, ["--run", self.dir], subprocess.DEVNULL,
                           subprocess.DEVNULL)
        return all(self.stage[n].poll() is not None and self.code.get(n, -1)
                   == self.stage[n].poll() for n in STAGES)


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(c) for c in f.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as f:
            return f.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def family(pid):
    """It, and the groups of its children: their own watch over them."""
    groups = {group_of(child) for child in children(pid)} - {os.getpgrp()}
    return [pid] + [int(p) for p in filter(str.isdigit, os.listdir("/proc"))
                    if group_of(p) in groups]


def group_of(pid):
    try:
        return os.getpgid(int(pid))
    except ProcessLookupError:
        return None


def state_of(pid):
    """"R", "T" ...; one that is gone is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def processes_of(path):
    """weir's own that were started for fleets below a directory: pids."""
    mark, found = f"WEIR_TEST_DIR={path}".encode(), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if not name_of(pid).startswith("weir-") or state_of(pid) == "Z":
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                env = f.read()
        except OSError:
            continue
        if mark in env:
            found.append(int(pid))
    return found


def end_all(path):
    kill_all(processes_of(path))


def kill_all(pids):
    for pid in pids:
        try:
            os.kill(pid, KILL)
        except ProcessLookupError:
            pass


class Fleet:
    def __init__(self, path, build, names, programs="", env=None):
        self.dir, self.runs, self.disk = path, 0, None
        self.build, self.programs = build, programs
        for name in ("run", "tmp", "src"):
            os.makedirs(f"{path}/{name}", 0o700)
        self.registry = f"{path}/registry"
        self.env = dict(os.environ, XDG_RUNTIME_DIR=f"{path}/run",
                        XDG_STATE_HOME=path, TMPDIR=f"{path}/tmp",
                        WEIR_TEST_DIR=path, **(env or {}))
        for name in ("WEIR_RUN", "WEIR_REGISTRY", "WEIR_SUPERVISOR_FD"):
            self.env.pop(name, None)
        self.source = {}        # number -> where its bytes came from
        self.engines = [Engine(self, n) for n in names]
        self.guests = []        # engines that no further push is for
        self.servers = []       # servers.Server

    def program(self, name):
        return os.path.join(self.build, self.programs, name)

    def by(self, transport):
        """Options: with version directories of this fleet's own."""
        self.disk = f"{self.dir}/disk"
        os.makedirs(self.disk, exist_ok=True)
        return ("--transport", transport, "--disk-dir", self.disk)

    def start(self):
        for e in self.engines:
            e.ensure()

    def stop(self):
        for e in [*self.engines, *self.guests]:
            e.stop()

    def end_guests(self):
        for e in self.guests:
            e.stop()
        self.guests = []

    def write_fleet(self, path, engines):
        alone = [s for s in self.servers if not s.engine]
        with open(path, "w", encoding="ascii") as f:
            f.write("model: test\nengines:\n")
            f.writelines(e.entry() for e in [*engines, *alone])

    def decided(self):
        try:
            names = os.listdir(f"{self.registry}/versions")
        except FileNotFoundError:
            return set()
        return {int(n) for n in names if
                os.path.exists(f"{self.registry}/versions/{n}/decision")}

    def stages(self):
        """Stages of this fleet that run: pids."""
        return [pid for pid in processes_of(self.dir)
                if name_of(pid)[5:] in STAGES]

    def kill_stages(self):
        """Those that still run."""
        pids = self.stages()
        kill_all(pids)
        return pids

    # ---- what must hold ----

    def judge(self, run, may_be_unknown=False):
        """The run is over: is everything as its exit codes say?"""
        new = self.decided() - run.before
        codes = set(run.codes())
        expect(len(new) <= run.decides, f"one run decided {sorted(new)}")
        for n in new:
            self.source[n] = run.source
        if run.ended_unread():
            expect(codes <= {75, 76} and not new, f"{codes}, decided: {new}")
            may_be_unknown = True
        elif may_be_unknown:
            codes -= {-KILL}
        else:
            expect(len(codes) == 1, f"exit codes differ: {run.codes()}")
        for code in codes:
            if code in (0, 3):
                expect(new or not run.decides,
                       f"exit {code}, but nothing is decided")
            elif not may_be_unknown:
                expect(code in run.failures, f"exit {code}")
                expect(not new, f"exit {code}, but {new} is decided")
        for e in self.engines:
            self.serves_decided(e)
        for s in self.servers:
            s.serves_decided()
        if codes == {0}:
            self.all_serve(run, new or {max(run.before)})
        return new

    def all_serve(self, run, new):
        serving = {e.name: number_of(f"{e.store}/current")
                   for e in run.engines}
        serving |= {s.name: s.serving() for s in self.servers}
        expect(set(serving.values()) == new,
               f"exit 0 and {new}, but they serve {serving}")

    def serves_decided(self, e):
        n = number_of(f"{e.store}/current")
        if n == 0:
            return
        expect(n in self.decided(), f"{e.name} serves {n}, undecided")
        for name in os.listdir(self.source[n]):
            expect(filecmp.cmp(f"{self.source[n]}/{name}",
                               f"{e.store}/current/{name}", shallow=False),
                   f"{e.name}: {name} of {n} has other bytes")

    def is_clean(self, run):
        """Of a run that came to its end, or of which a later one knows."""
        rests = self.rests(run.engines)
        expect(not rests, f"left behind: {rests}")
        expect(not self.is_open(), "open is left")
        self.has_decided_only()
        for e in run.engines:
            expect(not os.path.exists(f"{e.store}/paused"),
                   f"{e.name} is paused")

    def rests(self, engines):
        """What is left of it but its engines, in words."""
        words = [f"{self.build}/tests/leftovers", self.dir]
        for e in engines:
            words += ["--serving", e.store]
        for e in [*self.engines, *self.guests]:
            for pid in family(e.process.pid):
                words += ["--living", str(pid)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
        expect(done.returncode in (0, 1), f"{words[0]}: {done.returncode}")
        half = [f"{self.disk}/{n}" for n in self.half_removed()]
        return [line for line in
                done.stdout.decode(errors="replace").splitlines()
                if line not in half]

    def half_removed(self):
        """Of a version directory whose remover was killed behind the verdict
        the next push by that transport removes the rest."""
        names = os.listdir(self.disk) if self.disk else []
        return [n for n in names if n.startswith(".")]

    def has_decided_only(self):
        """In version directories."""
        names = os.listdir(self.disk) if self.disk else []
        hidden = self.half_removed()
        expect(len(hidden) < 2, f"{self.disk} has {hidden}")
        for name in set(names) - set(hidden):
            expect(name.startswith("weight_v") and
                   int(name[8:]) in self.decided(),
                   f"{self.disk}/{name} was left behind")

    def is_open(self):
        """Killed behind the verdict: the next commit finishes it again."""
        return os.path.exists(f"{self.registry}/open")

    def heal(self, run, options=()):
        """The next push works, whatever became of this one."""
        again = Push(self, run.source, options, self.engines)
        again.finish()
        expect(again.codes() == [0],
               f"the next push ended with {again.codes()}: {again.said()}")
        self.judge(again)
        self.is_clean(again)
        return again
