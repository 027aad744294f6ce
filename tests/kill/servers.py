"""Stand-ins of SGLang's and vLLM's servers (fakehttp.py), of one fleet.

One that is not paused serves what it has loaded, under the number that it
tells: that number is decided, and that is its content.
"""

import json
import os
import socket
import subprocess
import sys

import fleet as f

FAKEHTTP = os.path.join(f.HERE, "..", "fakehttp.py")
FAKECAST = os.path.join(f.HERE, "..", "fakecast.py")


def ask(port, line):
    """One line of its control socket; the answer."""
    with socket.create_connection(("127.0.0.1", int(port))) as s, \
            s.makefile("rw", encoding="utf-8") as out:
        out.write(line + "\n")
        out.flush()
        return out.readline().rstrip("\n")


def loaded_from(checkpoint):
    """What one tells of it that has loaded it from its directory."""
    with open(f"{checkpoint}/model.safetensors", "rb") as shard:
        return str({"w": shard.read().hex()[-64:]})


def broadcast_from(checkpoint):
    """The same, of one that it was broadcast to."""
    done = subprocess.run([sys.executable, FAKECAST, checkpoint], check=True,
                          stdout=subprocess.PIPE, encoding="utf-8")
    return str(done.stdout.splitlines())


class Servers:
    """The process that all of them live in; new for each fleet."""

    living = set()

    def __init__(self, fleet, content_of):
        self.fleet, self.content_of = fleet, content_of
        self.content = {}       # of sources
        file = f"{fleet.dir}/port"
        with open(f"{fleet.dir}/servers.err", "wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, FAKEHTTP, file], stdin=subprocess.DEVNULL,
                stdout=err, stderr=err, env=self.env(fleet))
        f.wait_until(lambda: os.path.exists(file), "servers")
        with open(file, encoding="ascii") as port:
            self.port = int(port.read())
        self.living.add(self)

    @staticmethod
    def env(fleet):
        """Not a process of the fleet's, and on a device of its own."""
        env = dict(fleet.env, CUDA_VISIBLE_DEVICES="1")
        del env["WEIR_TEST_DIR"]
        return env

    def add(self, name, kind, engine=None, options=()):
        self.fleet.servers.append(Server(self, name, kind, engine, options))

    def content_from(self, source):
        if source not in self.content:
            self.content[source] = self.content_of(source)
        return self.content[source]

    def stop(self):
        self.living.discard(self)
        self.process.kill()
        self.process.wait()

    @classmethod
    def stop_all(cls):
        for servers in list(cls.living):
            servers.stop()


class Server:
    """engine: what has the store beside it; None: it has a url alone."""

    def __init__(self, servers, name, kind, engine, options):
        self.servers, self.fleet = servers, servers.fleet
        self.name, self.kind, self.engine = name, kind, engine
        if engine:
            engine.server = self
        self.url = self.tell("new", "--kind", kind, *options)
        self.first = self.state()

    def tell(self, verb, *words):
        return ask(self.servers.port,
                   " ".join((verb, "--dir", self.fleet.dir, "--name",
                             self.name, *words)))

    def state(self):
        return json.loads(self.tell("state"))

    def place(self):
        """For history.py."""
        return f"{self.servers.port}:{self.name}:{self.fleet.dir}"

    def where(self):
        return f"    kind: {self.kind}\n    url: \"{self.url}\"\n"

    def entry(self):
        return f"  - name: {self.name}\n{self.where()}"

    def serving(self):
        """0: it is paused, or serves no version."""
        seen = self.state()
        return 0 if seen["paused"] or not seen["label"].isdigit() else \
            int(seen["label"])

    def serves_decided(self):
        seen = self.state()
        if seen["paused"]:
            return
        if seen["label"] == self.first["label"]:
            want = self.first["loaded"]
        else:
            n = int(seen["label"])
            f.expect(n in self.fleet.decided(),
                     f"{self.name} serves {n}, undecided")
            want = self.servers.content_from(self.fleet.source[n])
        f.expect(seen["loaded"] == want,
                 f"{self.name} serves another content as {seen['label']}")
