"""gloo.py RANK WORLD FILE BYTES: one broadcast for each line on stdin.

Prints how many seconds it took, from when all ranks were ready.  The buffers
are allocated and touched once, before.
"""

import sys
import time

import torch
import torch.distributed as dist

BUCKET = 64 << 20


def main():
    rank, world, store, size = sys.argv[1:]
    dist.init_process_group("gloo", init_method=f"file://{store}",
                            rank=int(rank), world_size=int(world))
    data = torch.full((int(size),), int(rank), dtype=torch.uint8)
    buckets = data.split(BUCKET)
    for _ in sys.stdin:
        dist.barrier()
        before = time.monotonic()
        for bucket in buckets:
            dist.broadcast(bucket, src=0)
        print(time.monotonic() - before, flush=True)


if __name__ == "__main__":
    main()
