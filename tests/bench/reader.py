"""reader.py DIR: reads DIR's largest file until a line comes on stdin.

DIR may be a link that moves.  Prints a line when it begins, then how many
seconds each read of 1 MiB took.
"""

import os
import select
import sys
import time

STEP = 1 << 20


def largest(directory):
    return max((e for e in os.scandir(directory) if e.is_file()),
               key=lambda e: e.stat().st_size).path


def main():
    current = sys.argv[1]
    into, took = bytearray(STEP), []
    print(flush=True)
    while True:
        served = os.path.realpath(current)
        fd = os.open(largest(served), os.O_RDONLY)
        size = os.fstat(fd).st_size
        for at in range(0, size, STEP):
            before = time.perf_counter()
            os.preadv(fd, [into], at)
            took.append(time.perf_counter() - before)
            if select.select([sys.stdin], [], [], 0)[0]:
                os.close(fd)
                print(" ".join(f"{t:.7f}" for t in took))
                return
        os.close(fd)


if __name__ == "__main__":
    main()
