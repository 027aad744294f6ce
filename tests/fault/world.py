"""A small fleet with its registry, and what must be true of it at any time.

Two engines, a and b, two checkpoints that are pushed in turn: odd numbers are
one, even ones two.  Everything is below one directory, which is also what
tests/leftovers looks at.
"""

import filecmp
import json
import os
import re
import shutil
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
PLACES = {"registry": "registry", "run": "run", "store": "a", "disk": "disk",
          "delta": "d"}  # what may fail, and its directory
PAGE = 4096
ROOM = 64 << 20  # bytes of a place of its own that is not too small
# Whose option is it, in a pipeline by hand?
OPTION_OF = {"--transport": "plan", "--disk-dir": "plan"}
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
    """How a program ended: its code, what it printed, and its lines on
    stderr."""

    def __init__(self, code, err, out=b""):
        self.code = code
        self.out = out.decode(errors="replace")
        self.lines = err.decode(errors="replace").splitlines()

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
        self.options = self.engine_options = ()
        self.has_movers = False
        self.own = {}  # of an engine's environment
        self.mounts, self.url, self.memory = [], {}, {}
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
        """Two has another value in each second byte of each tensor."""
        subprocess.run(
            [sys.executable, f"{SRC}/tests/fixtures/mktensors.py",
             "--seed", "1", self.path("one"), *TENSORS],
            check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        shutil.copytree(self.path("one"), self.path("two"))
        for name in ("one", "two"):
            with open(self.path(name, "config.json"), "w",
                      encoding="ascii") as f:
                json.dump({"marker": name}, f)
        with open(self.path("two", "model.safetensors"), "r+b") as f:
            data = bytearray(f.read())
            for i in range(8 + int.from_bytes(data[:8], "little"), len(data),
                           2):
                data[i] ^= 1
            f.seek(0)
            f.write(data)

    def path(self, *names):
        return os.path.join(self.top, *names)

    def write_fleet(self, engines=ENGINES):
        with open(self.path("fleet.yaml"), "w", encoding="utf8") as f:
            f.write("model: test\nengines:\n")
            for name in engines:
                f.write(f"  - name: {name}\n")
                if name in self.url:
                    f.write(f"    kind: sglang\n    url: {self.url[name]}\n")
                f.write("    workers: [{endpoint: "
                        f"\"ipc://{self.path(name)}.sock\"}}]\n")

    def given(self, version):
        source = self.source(version)
        return self.memory.get(source, source)

    def source(self, version):
        return os.path.join(self.sources,
                            "two" if version % 2 == 0 else "one")

    # ---- what is not as usual ----

    def place(self, where):
        return self.path(PLACES[where])

    def by(self, transport):
        """With version directories."""
        os.makedirs(self.path("disk"), exist_ok=True)
        self.options = ("--transport", transport, "--disk-dir",
                        self.path("disk"))

    def over_stand_ins(self):
        self.has_movers = True
        self.env.update(LD_LIBRARY_PATH=f"{BUILD}/tests/standin",
                        CUDA_VISIBLE_DEVICES="0")

    def serve_http(self):
        """Engine a is a server, and its store beside it."""
        self.procs["servers"] = subprocess.Popen(
            [sys.executable, f"{SRC}/tests/fakehttp.py",
             self.path("servers")], env=self.env, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("servers", lambda: os.path.exists(self.path("servers"))
                 and os.path.getsize(self.path("servers")))
        self.env["no_proxy"] = "*"
        self.url["a"] = self.tell_servers("new", "--kind", "sglang", "--name",
                                          "a")
        self.write_fleet()

    def tell_servers(self, *words):
        with open(self.path("servers"), encoding="ascii") as f:
            port = int(f.read())
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(" ".join([*words, "--dir", self.top]).encode() + b"\n")
            return s.makefile().readline().strip()

    def label(self, name):
        return int(self.tell_servers("label", "--name", name))

    def train(self, name, seed):
        """What a source is comes from device memory."""
        place = self.path(name + "-memory")
        self.procs[place] = subprocess.Popen(
            [sys.executable, f"{SRC}/tests/devtrainer.py", place, "--seed",
             str(seed), "--kib", "4"], env=self.env, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if self.procs[place].stdout.readline().strip() != b"ready":
            raise Broken("no trainer")
        self.memory[self.path(name)] = f"gpu:{place}/list.json"

    def mount(self, where):
        os.makedirs(self.place(where), exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=0700,size={ROOM}",
                        "none", self.place(where)], check=True)
        self.mounts.append(where)

    def unmount(self):
        for where in self.mounts:
            subprocess.run(["umount", "-l", self.place(where)], check=False)

    def resize(self, where, pages):
        """To what it holds, and so many pages more."""
        st = os.statvfs(self.place(where))
        self.remount(where, (st.f_blocks - st.f_bfree) * st.f_frsize
                     + pages * PAGE)

    def enlarge(self, where):
        if where in self.mounts:
            self.remount(where, ROOM)

    def remount(self, where, size):
        subprocess.run(["mount", "-o", f"remount,size={size}",
                        self.place(where)], check=True)

    # ---- engines ----

    def start_engine(self, name, **env):
        """Listening, or ended already: then its code."""
        ready, told = os.pipe()
        err = open(self.path(name + ".err"), "ab")
        proc = subprocess.Popen(
            ["weir-engine", "--name", name, "--store", self.path(name),
             "--listen", f"ipc://{self.path(name)}.sock",
             "--ready-fd", str(told), *self.engine_options],
            env={**self.env, **self.own.get(name, {}), **env}, stdin=subprocess.DEVNULL,
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

    def empty(self, name):
        """As one that was never started; it may be a file system."""
        for at in os.scandir(self.path(name)):
            if at.is_dir(follow_symlinks=False):
                shutil.rmtree(at)
            else:
                os.unlink(at)

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

    def call(self, *words, **env):
        proc = subprocess.Popen(
            words, env={**self.env, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = proc.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired:
            proc.kill()
            _, err = proc.communicate()
            raise Broken(f"{words[0]} hangs:\n"
                         + err.decode(errors="replace")) from None
        return Result(proc.returncode, err, out)

    def publish(self, program, *options, **env):
        return self.call(
            program, "--registry", self.path("registry"), "--stage-timeout",
            self.stage_timeout, "--engine-timeout", "30s", "-q", *options,
            **env)

    def push(self, version, **env):
        return self.publish(
            "weir-push", "--source", self.given(version), "--fleet",
            self.path("fleet.yaml"), "--weight-version", str(version),
            "--bucket-size", "24KiB", "--split-tensors", *self.options, **env)

    def push_only(self, name, **env):
        return self.publish("weir-push", "--only", name, *self.options, **env)

    def rollback(self, version, **env):
        return self.publish("weir-rollback", "--weight-version", str(version),
                            **env)

    def diff(self, out):
        return self.call(
            "weir-delta", "diff", "-q", self.path("one"), self.path("two"),
            "-o", self.path(out), "--base-version", "1", "--weight-version",
            "2")

    @staticmethod
    def must(result):
        if result.code:
            raise Broken(f"without a fault it ends with\n{result}")

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
                [*words, *self.options_of(words[0]), "--stage-timeout",
                 self.stage_timeout, "-q"],
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

    def runs(self):
        """Directories of runs."""
        at = self.path("run", "weir")
        return {os.path.join(at, name) for name in os.listdir(at)}

    def options_of(self, program):
        pairs = zip(self.options[::2], self.options[1::2])
        return [w for pair in pairs for w in pair
                if program == "weir-" + OPTION_OF[pair[0]]]

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

    def version_dir(self, version):
        return self.path("disk", f"weight_v{version:06d}")

    def highest(self):
        """Of those decided, 0 if there is none."""
        at = self.path("registry", "versions")
        names = os.listdir(at) if os.path.exists(at) else []
        return max((int(n) for n in names if self.decided(int(n))), default=0)

    def check_disk(self):
        """What is published is there, whole."""
        highest = self.highest()
        if not highest:
            return
        done = self.call("weir-delta", "verify", self.version_dir(highest))
        if done.code:
            raise Broken(f"version {highest}: {done}")

    def check_disk_is_tidy(self):
        """Only what is published is there."""
        for name in os.listdir(self.path("disk")):
            if not (name.startswith("weight_v")
                    and self.decided(int(name[8:]))):
                raise Broken(f"disk/{name} was left behind")

    def rests(self, stores=()):
        """What is left of it, but for the engines, in words."""
        words = [os.path.join(BUILD, "tests/leftovers"), self.top]
        for store in stores:
            words += ["--serving", self.path(store)]
        for proc in self.procs.values():
            words += ["--living", str(proc.pid)]
        done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
        lines = done.stdout.decode(errors="replace").splitlines()
        # Movers live as long as their engines; the rest are paths.
        return [l for l in lines if not self.has_movers or l[0] == "/"]
