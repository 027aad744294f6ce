"""A small fleet with its registry, and what must be true of it at any time.

Two engines, a and b, two checkpoints that are pushed in turn.  Everything is
below one directory, which is also what tests/leftovers looks at.
"""

import filecmp
import os
import re
import signal
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SRC = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.abspath(os.environ.get("BUILD", os.path.join(SRC, "build")))
WAIT_S = 240  # for anything; a bound, not a pace
ENGINES = ("a", "b")
TENSORS = ("x:U8:40000", "y:BF16:64,64", "z:F32:8", "w:U8:3")
PROGRAM = re.compile(r"^weir-\w+\[\d+\] ")


class Broken(Exception):
    """Something that must be true is not."""


def wait_for(what, condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise Broken(f"waited {WAIT_S} s for {what}")
        time.sleep(0.005)


def listens(path):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
            return True
        except OSError:
            return False


class Result:
    """How a program ended: its code, and its lines on stderr."""

    def __init__(self, code, err):
        self.code = code
        self.lines = err.splitlines()

    def errors(self):
        return [l for l in self.lines if " error " in l
                and PROGRAM.match(l)]

    def __str__(self):
        return "\n".join([f"code {self.code}"] + self.lines)


class World:

    stage_timeout = "60s"

    def __init__(self, top, sources=None):
        self.top = top
        self.sources = sources or top
        self.procs = {}
        for name in ("run", "state", "tmp", "home"):
            os.makedirs(self.path(name), mode=0o700)
        self.env = {
            **{k: v for k, v in os.environ.items()
               if not k.startswith(("WEIR_", "FAULT_"))},
            "PATH": BUILD + ":" + os.environ["PATH"], "LC_ALL": "C",
            "WEIR_TEST_DIR": top, "HOME": self.path("home"),
            "TMPDIR": self.path("tmp"), "XDG_RUNTIME_DIR": self.path("run"),
            "XDG_STATE_HOME": self.path("state")}
        if sources is None:
            self.make_sources()
        self.write_fleet()

    def make_sources(self):
        for seed, name in enumerate(("one", "two"), 1):
            subprocess.run(
                [sys.executable, f"{SRC}/tests/fixtures/mktensors.py",
                 "--seed", str(seed), self.path(name), *TENSORS],
                check=True, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)

    def path(self, *names):
        return os.path.join(self.top, *names)

    def write_fleet(self, engines=ENGINES):
        with open(self.path("fleet.yaml"), "w", encoding="utf8") as f:
            f.write("model: test\nengines:\n")
            for name in engines:
                f.write(f"  - name: {name}\n    workers: [{{endpoint: "
                        f"\"ipc://{self.path(name)}.sock\"}}]\n")

    def source(self, version):
        return os.path.join(self.sources,
                            "two" if version % 2 == 0 else "one")

    # ---- engines ----

    def start_engine(self, name, **env):
        """Listening, or ended already: then its code."""
        ready, told = os.pipe()
        err = open(self.path(name + ".err"), "ab")
        proc = subprocess.Popen(
            ["weir-engine", "--name", name, "--store", self.path(name),
             "--listen", f"ipc://{self.path(name)}.sock",
             "--ready-fd", str(told)],
            env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=err, stderr=err, pass_fds=(told,))
        os.close(told)
        err.close()
        self.procs[name] = proc
        got = os.read(ready, 1)
        os.close(ready)
        if not got:
            # That could be the call that failed.
            wait_for(f"engine {name}", lambda: proc.poll() is not None
                     or listens(self.path(name) + ".sock"))
        return proc.poll()

    def start_engines(self):
        for name in ENGINES:
            if self.procs.get(name) is None:
                code = self.start_engine(name)
                if code is not None:
                    raise Broken(f"engine {name} ends with {code}: "
                                 + self.said_by(name))

    def said_by(self, name):
        with open(self.path(name + ".err"), encoding="utf8",
                  errors="replace") as f:
            return f.read()

    def forget_said(self, name):
        with open(self.path(name + ".err"), "wb"):
            pass

    def end_engine(self, name, signo=signal.SIGTERM):
        proc = self.procs.pop(name, None)
        if proc is None:
            return None
        if proc.poll() is None:
            proc.send_signal(signo)
        return proc.wait(WAIT_S)

    def ended(self, name):
        """The code of an engine that has ended by itself, else None."""
        code = self.procs[name].poll()
        if code is not None:
            del self.procs[name]
        return code

    def close(self):
        for name in list(self.procs):
            self.end_engine(name)

    # ---- pushes ----

    def push(self, version, *options, **env):
        proc = subprocess.Popen(
            ["weir-push", "--source", self.source(version),
             "--fleet", self.path("fleet.yaml"),
             "--registry", self.path("registry"),
             "--weight-version", str(version), "--bucket-size", "24KiB",
             "--stage-timeout", self.stage_timeout, "--engine-timeout", "30s",
             "--split-tensors", "-q", *options],
            env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, err = proc.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            proc.kill()
            _, err = proc.communicate()
            raise Broken("push hangs:\n"
                         + err.decode(errors="replace")) from None
        return Result(proc.returncode, err.decode(errors="replace"))

    def push_by_hand(self, version, **env):
        """A pipeline in which commit dies, and all others then."""
        stages = [
            ["weir-plan", "--source", self.source(version),
             "--fleet", self.path("fleet.yaml"), "--bucket-size", "24KiB",
             "--split-tensors"],
            ["weir-admit"], ["weir-transfer"],
            ["weir-commit", "--registry", self.path("registry"),
             "--weight-version", str(version)]]
        procs, before = [], subprocess.DEVNULL
        for words in stages:
            last = words is stages[-1]
            procs.append(subprocess.Popen(
                [*words, "--stage-timeout", self.stage_timeout, "-q"],
                env={**self.env, **env}, stdin=before,
                stdout=subprocess.DEVNULL if last else subprocess.PIPE,
                stderr=subprocess.DEVNULL))
            if before != subprocess.DEVNULL:
                before.close()
            before = procs[-1].stdout
        procs[-1].wait(WAIT_S)
        for proc in procs:
            proc.kill()
            proc.wait(WAIT_S)

    # ---- what is true ----

    def decided(self, version):
        return os.path.exists(self.path("registry", "versions",
                                        f"{version:06d}", "decision"))

    def serving(self, name):
        try:
            link = os.readlink(self.path(name, "current"))
        except FileNotFoundError:
            return 0
        return int(os.path.basename(link))

    def holds(self, name, version):
        names = os.listdir(self.source(version))
        _, differ, errors = filecmp.cmpfiles(
            self.source(version), self.path(name, "current"), names, False)
        return not differ and not errors

    def check_serving(self, name, allowed):
        """One of these versions, with exactly its bytes."""
        version = self.serving(name)
        if version not in allowed:
            raise Broken(f"{name} serves {version}, not one of {allowed}")
        if version and not self.holds(name, version):
            raise Broken(f"{name} serves other bytes than {version}'s")
        return version

    def check_registry(self):
        """Whoever reads it finds what it says."""
        reg = self.path("registry")
        if not os.path.exists(os.path.join(reg, "id")):
            return
        done = [int(n) for n in os.listdir(os.path.join(reg, "versions"))
                if os.path.exists(os.path.join(reg, "versions", n,
                                               "decision"))]
        for version in done:
            for part in ("plan", "receipts", "decision"):
                at = os.path.join(reg, "versions", f"{version:06d}", part)
                if not os.path.getsize(at):
                    raise Broken(f"{at} is empty")
        for name in ("epoch", "ledger", "open", "attention"):
            self.check_dump(os.path.join(reg, name))
        if done:
            self.check_dump(os.path.join(reg, "versions",
                                         f"{max(done):06d}", "decision"))

    def check_dump(self, path):
        if not os.path.exists(path):
            return
        with open(path, "rb") as f:
            head = f.read(1)
        if path.endswith(("epoch",)):
            if not head.isdigit():
                raise Broken(f"{path} is no number")
            return
        done = subprocess.run(["weir-dump", path], env=self.env,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        if done.returncode:
            raise Broken(f"{path}: {done.stderr.decode()}")

    def rests(self, stores=()):
        """What is left of it, but for the engines, in words."""
        words = [os.path.join(BUILD, "tests/leftovers"), self.top]
        for store in stores:
            words += ["--serving", self.path(store)]
        for proc in self.procs.values():
            words += ["--living", str(proc.pid)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
        return done.stdout.decode(errors="replace").splitlines()
