#!/usr/bin/env python3
"""What is left of weir below a directory: prints it, and then ends with 1.

hygiene.py DIR [--serving STORE]...

DIR is a test's own ($T): its run directories, registries, temporary files and
sockets are below it, and its processes have WEIR_TEST_DIR=DIR.  A socket is
no rest while somebody listens.  Of STORE, an engine's that is not in a run,
nothing may be staged.
"""

import argparse
import os
import socket
import stat
import sys

SHM = "/dev/shm"
RESTS = (".tmp.", ".weir-new", ".weir-fp8")


def processes(top):
    """Those of this test that have not ended, but for ourselves."""
    mark = b"WEIR_TEST_DIR=" + os.fsencode(top)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if words.strip() and int(pid) not in (os.getpid(), os.getppid()):
            yield int(pid), words


def listens(path):
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as s:
            try:
                s.connect(path)
                return True
            except OSError:
                continue
    return False


def is_rest(name, path):
    if name.endswith(".endpoint") or any(r in name for r in RESTS):
        return True
    return stat.S_ISSOCK(os.lstat(path).st_mode) and not listens(path)


def names(top):
    for at, dirs, files in os.walk(top):
        for name in dirs + files:
            path = os.path.join(at, name)
            try:
                if is_rest(name, path):
                    yield path
            except FileNotFoundError:
                continue


def staged(store):
    at = os.path.join(store, "staging")
    return [os.path.join(at, n) for n in os.listdir(at)]


def shared(before=()):
    """Shared memory, in which nothing of weir's has a name."""
    return [n for n in os.listdir(SHM) if "weir" in n and n not in before]


def descriptors(pid):
    """What a process has open, by name: numbers and inodes come and go."""
    at = f"/proc/{pid}/fd"
    found = []
    for fd in os.listdir(at):
        try:
            target = os.readlink(os.path.join(at, fd))
        except OSError:
            continue
        found.append(target.split(":[")[0])
    return sorted(found)


def rests(top, stores=(), living=()):
    """All of it, in words."""
    found = [f"process {pid} {words}" for pid, words in processes(top)
             if pid not in living]
    found += names(top)
    for store in stores:
        found += staged(store)
    return found


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("directory")
    args.add_argument("--serving", action="append", default=[])
    a = args.parse_args()
    found = rests(a.directory, a.serving)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
