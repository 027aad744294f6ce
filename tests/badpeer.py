#!/usr/bin/env python3
"""A peer that does everything wrong, at an endpoint of weir.

badpeer.py PATH ATTACK...: PATH is the socket file behind ipc://PATH.  Speaks
ZMTP itself, so that nothing but the other side's care limits what it sends.
"""

import array
import os
import random
import select
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WAIT_SECONDS = 240
MORE, LONG, COMMAND = 1, 2, 4
GREETING = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0")).ljust(64, b"\0")
ATTACKS = {}


def attack(f):
    ATTACKS[f.__name__.replace("_", "-")] = f
    return f


def golden():
    """Every message, as it is when it is right."""
    directory = os.path.join(HERE, "golden", "msg")
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as f:
            yield f.read()


def status():
    for body in golden():
        if body[:2] == b"\x92\x46":
            return body
    raise AssertionError("no status message")


def connect(path, kind=socket.SOCK_STREAM):
    """Waits while the backlog is full."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        s = socket.socket(socket.AF_UNIX, kind)
        s.settimeout(WAIT_SECONDS)
        try:
            s.connect(path)
            return s
        except (BlockingIOError, TimeoutError):
            s.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def frame(body, flags=0):
    if len(body) > 255:
        return bytes([flags | LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body


def ready(identity):
    def prop(name, value):
        return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return frame(b"\x05READY" + prop(b"Socket-Type", b"DEALER") + prop(b"Identity", identity), COMMAND)


class Peer:
    """One that has shaken hands."""

    def __init__(self, path, identity=b""):
        self.s = connect(path)
        self.s.sendall(GREETING)
        self.exact(64)
        self.s.sendall(ready(identity))
        self.receive()

    def exact(self, n):
        data = b""
        while len(data) < n:
            more = self.s.recv(n - len(data))
            if not more:
                raise ConnectionResetError("closed")
            data += more
        return data

    def receive(self):
        flags = self.exact(1)[0]
        n = struct.unpack(">Q", self.exact(8))[0] if flags & LONG else self.exact(1)[0]
        return self.exact(n)

    def send(self, body, flags=0):
        self.s.sendall(frame(body, flags))

    def close(self):
        self.s.close()


def send_all(path, bodies):
    """Reads nothing: what comes back is the kernel's to keep or to refuse."""
    peer = Peer(path)
    for body in bodies:
        try:
            peer.send(body)
        except OSError:
            peer.close()
            peer = Peer(path)
        drain(peer)
    peer.close()


def drain(peer):
    while select.select([peer.s], [], [], 0)[0]:
        if not peer.s.recv(1 << 16):
            return


def is_closed(s):
    """Within the bound."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            if select.select([s], [], [], 1)[0] and not s.recv(1 << 16):
                return True
        except OSError:
            return True
    return False


@attack
def random_frames(path):
    rng = random.Random(1)
    send_all(path, (rng.randbytes(rng.randrange(200)) for _ in range(5000)))


@attack
def mutants(path):
    """Messages in which one byte is another."""
    rng = random.Random(2)

    def spoil(body):
        at = rng.randrange(len(body))
        return body[:at] + rng.randbytes(1) + body[at + 1:]
    send_all(path, (spoil(b) for b in golden() for _ in range(100)))


@attack
def prefixes(path):
    """MP-05: every message, cut at every byte."""
    send_all(path, (b[:n] for b in golden() if len(b) < 2048 for n in range(len(b))))


@attack
def strangers(path):
    """Right messages of a run and a boot that are not."""
    send_all(path, golden())


@attack
def bombs(path):
    """MP-01, MP-02."""
    heads = [h + b"\xff\xff\xff\xff" for h in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")]
    send_all(path, heads + [b"\x91" * 10000, b"\xdc\xff\xff" * 24000])


@attack
def multipart(path):
    peer = Peer(path)
    for body in golden():
        peer.send(b"", MORE)
        peer.send(body, MORE)
        peer.send(body)
    peer.send(b"x", MORE)  # and never the rest
    peer.close()


@attack
def oversize(path):
    """A frame above the limit ends the connection before it has arrived."""
    peer = Peer(path)
    peer.s.sendall(bytes([LONG]) + struct.pack(">Q", 1 << 62))
    assert is_closed(peer.s), "a frame of 2^62 bytes is waited for"
    peer.close()
    peer = Peer(path)
    try:
        peer.send(bytes((1 << 20) + 1))
    except OSError:
        pass
    assert is_closed(peer.s), "a frame of 1 MiB + 1 is taken"
    peer.close()


@attack
def identities(path):
    """The longest ids, the same ones again, and one that is too long."""
    peers = [Peer(path, bytes([b]) * 255) for b in (1, 2, 2, 2, 255)]
    for p in peers:
        for body in golden():
            try:
                p.send(body)
            except OSError:
                break
    for p in peers:
        p.close()
    s = connect(path)
    s.sendall(GREETING + ready(b"i" * 256))
    s.close()


@attack
def greetings(path):
    """No ZMTP at all, or less than all of it."""
    rng = random.Random(3)
    for data in [GREETING[:n] for n in range(64)] + [rng.randbytes(200) for _ in range(50)] + \
            [GREETING + rng.randbytes(100) for _ in range(50)] + [b"GET / HTTP/1.1\r\n\r\n"]:
        s = connect(path)
        try:
            s.sendall(data)
        except OSError:
            pass
        s.close()


@attack
def mutes(path):
    """Asks without end and never reads."""
    peer = Peer(path)
    peer.s.settimeout(0.5)
    ask = frame(status())
    try:
        for _ in range(200):
            peer.s.sendall(ask * 1000)
    except OSError:
        pass
    print("deaf", flush=True)
    sys.stdin.read()
    peer.close()


@attack
def crowd(path):
    """More connections than there is room for, until told to go."""
    held = []
    for _ in range(400):
        held.append(connect(path))
        try:
            held[-1].sendall(GREETING)
        except OSError:
            pass  # shut already
    assert is_closed(held[-1]), "the last one is kept"
    print("crowd", flush=True)
    sys.stdin.read()
    for s in held:
        s.close()


def packet(s, body, fds):
    s.sendmsg([body], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


@attack
def descriptors(path):
    """PATH.fd: packets of every kind, with descriptors nobody asked for."""
    rng = random.Random(4)
    fd = os.open("/dev/null", os.O_RDONLY)
    bodies = [b""] + list(golden()) + [rng.randbytes(n) for n in (1, 10, 1000, 65536)]
    for body in bodies:
        for n in (0, 1, 250, 253):
            s = connect(path + ".fd", socket.SOCK_SEQPACKET)
            try:
                for _ in range(3):
                    packet(s, body, [fd] * n)
            except OSError:
                pass
            s.close()


@attack
def holders(path):
    """PATH.fd: more connections than there is room for."""
    held = []
    for _ in range(200):
        held.append(connect(path + ".fd", socket.SOCK_SEQPACKET))
    assert is_closed(held[-1]), "the last one is kept"
    for s in held:
        s.close()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        ATTACKS[name](sys.argv[1])
