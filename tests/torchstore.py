#!/usr/bin/env python3
"""torchstore.py - torch's TCPStore client, of the torch of this interpreter.

    torchstore.py version
    torchstore.py talk HOST PORT	all that it can ask, what it is answered
    torchstore.py serve			torch's own server; until a signal
    torchstore.py record PREFIX		`talk` to torch's own server through a
					relay; PREFIX.N.in and .out are the bytes
    torchstore.py join HOST PORT N GROUP KEY
					what N workers do with their store
    torchstore.py dump PATH		an id, pickled as vLLM does

`talk` prints the same lines whoever serves.
"""
import ctypes
import datetime
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import types

import torch
from torch.distributed import PrefixStore, TCPStore


def seconds(n):
    return datetime.timedelta(seconds=n)


def say(*words):
    print(*words, flush=True)


def kind_of(error):
    """A time-out has another class in each version."""
    return "timed out" if "imeout" in str(error) else str(error)


def talk(host, port):
    store = TCPStore(host, port, 3, False, seconds(20))
    store.set("a", b"1")
    say("get", store.get("a"))
    say("add", store.add("n", 5), store.add("n", -7), store.get("n"))
    say(
        "compare_set",
        store.compare_set("c", "", "x"),
        store.compare_set("c", "x", "y"),
        store.compare_set("c", "z", "w"),
        store.compare_set("d", "z", "w"),
    )
    say("num_keys", store.num_keys())
    say("delete_key", store.delete_key("c"), store.delete_key("c"))
    prefixed = PrefixStore("g", PrefixStore("x", store))
    prefixed.set("a", b"under a prefix")
    say("prefix", prefixed.get("a"))
    store.set("big", bytes(range(256)) * 16)
    say("big", len(store.get("big")))
    store.wait(["a", "n"], seconds(5))
    try:
        store.wait(["a", "never"], datetime.timedelta(milliseconds=200))
    except Exception as error:  # of another class in each version
        say("wait", kind_of(error))
    if hasattr(store, "multi_get"):
        store.append("list", "a,")
        store.append("list", "b")
        store.multi_set(["m/0", "m/1"], [b"zero", b"one"])
        say("multi", store.multi_get(["list", "m/0", "m/1"]))
        say("check", store.check(["m/0", "m/1"]), store.check(["m/2"]))


def serve():
    store = TCPStore("127.0.0.1", 0, 3, True, seconds(60), False)
    say(store.port)
    return store


class Relay:
    """One thread for each direction of each connection; keeps the bytes."""

    def __init__(self, to):
        self.to = to
        self.said = []
        self.threads = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.to))
            both = (bytearray(), bytearray())
            self.said.append(both)
            for src, dst, kept in (
                (client, server, both[0]),
                (server, client, both[1]),
            ):
                t = threading.Thread(target=self.pump, args=(src, dst, kept))
                t.start()
                self.threads.append(t)

    @staticmethod
    def pump(src, dst, kept):
        try:
            while data := src.recv(65536):
                kept += data
                dst.sendall(data)
            dst.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def record(prefix):
    server = serve()
    relay = Relay(server.port)
    # Its own process: a client holds this one's threads up.
    subprocess.run(
        [sys.executable, __file__, "talk", "127.0.0.1", str(relay.port)],
        check=True,
        timeout=60,
    )
    for thread in relay.threads:
        thread.join(10)
    del server
    # 1.13 makes a second connection and says nothing there.
    said = [both for both in relay.said if both[0]]
    assert len(said) == 1
    for suffix, data in zip(("in", "out"), said[0]):
        with open(f"{prefix}.{suffix}", "wb") as f:
            f.write(data)


def join(host, port, n, group, key):
    """As SGLang's workers: a client, the group's prefix, then one key."""
    for rank in range(1, n + 1):
        if os.fork() > 0:
            continue
        store = TCPStore(host, port, n + 1, False, seconds(50))
        store.set_timeout(seconds(50))
        say(rank, PrefixStore(group, store).get(key).hex())
        os._exit(0)
    for _ in range(n):
        assert os.wait()[1] == 0


class ncclUniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def stand_in():
    """A class of vLLM's name, at its place."""
    place = "vllm.distributed.device_communicators.pynccl_wrapper"
    parts = place.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        sys.modules[name] = types.ModuleType(name)
    sys.modules[place].ncclUniqueId = ncclUniqueId
    ncclUniqueId.__module__ = place


def dump(path):
    """What vLLM's rank 0 puts into its store, for an id of 255, 254, ..."""
    stand_in()
    with open(path, "wb") as f:
        pickle.dump(ncclUniqueId.from_buffer_copy(bytes(range(255, 127, -1))), f)


def main(verb, *rest):
    if verb == "version":
        say(torch.__version__)
    elif verb == "talk":
        talk(rest[0], int(rest[1]))
    elif verb == "serve":
        store = serve()
        signal.pause()
        del store
    elif verb == "record":
        record(rest[0])
    elif verb == "join":
        join(rest[0], int(rest[1]), int(rest[2]), rest[3], rest[4])
    elif verb == "dump":
        dump(rest[0])
    else:
        sys.exit(64)


main(*sys.argv[1:])
