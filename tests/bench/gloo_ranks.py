"""A Gloo broadcast from one process to n, the distribution's python3-torch."""

import os
import shutil
import subprocess

PYTHON = "/usr/bin/python3"
PACKAGE = "python3-torch"
HERE = os.path.dirname(os.path.abspath(__file__))


def has_torch():
    return subprocess.run([PYTHON, "-c", "import torch.distributed"],
                          stderr=subprocess.DEVNULL, check=False
                          ).returncode == 0


def install(b):
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    b.say(f"installing {PACKAGE}, which only this benchmark needs")
    subprocess.run(["apt-get", "install", "-y", "-qq",
                    "--no-install-recommends", PACKAGE], check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Gloo:
    """n + 1 ranks that wait; one line to each of them is one broadcast."""

    def __init__(self, b, n, store):
        self.ranks = []
        if not has_torch():
            install(b)
        self.works = has_torch()
        if not self.works:
            b.say(f"{PACKAGE} cannot be installed: Gloo is not measured")
            return
        if os.path.exists(store):
            os.unlink(store)
        self.ranks = [subprocess.Popen(
            [PYTHON, os.path.join(HERE, "gloo.py"), str(r), str(n + 1), store,
             str(b.bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True) for r in range(n + 1)]
        self.broadcast()

    def broadcast(self):
        """Seconds until the slowest rank has everything."""
        for p in self.ranks:
            p.stdin.write("\n")
            p.stdin.flush()
        return max(float(p.stdout.readline()) for p in self.ranks)

    def close(self):
        for p in self.ranks:
            p.stdin.close()
            p.wait()
