#!/usr/bin/env python3
"""A trainer for tests: tensors in device memory, and a file that lists them.

    devtrainer.py DIR [--device N] [--seed N] [--kib N] [--tensors N]

Puts tensors, at odd places, into two allocations of that device; writes
DIR/list.json (common/devsource.h) and, as a checkpoint that holds the same,
DIR/same/model.safetensors; says "ready"; and holds the memory until stdin
ends.  Each line on stdin, "fill SEED", overwrites all of it, and is answered.
"""
import argparse
import ctypes
import json
import os
import random
import sys

HOST_TO_DEVICE = 1
rt = ctypes.CDLL("libcudart.so.13")


def cuda(call, *args):
    code = getattr(rt, call)(*args)
    if code:
        sys.exit(f"{call}: {code}")


def device_uuid(device):
    props = ctypes.create_string_buffer(8192)
    cuda("cudaGetDeviceProperties", props, device)
    u = props.raw[256:272].hex()
    return f"GPU-{u[:8]}-{u[8:12]}-{u[12:16]}-{u[16:20]}-{u[20:]}"


class Base:
    def __init__(self, size):
        self.size = size
        self.at = ctypes.c_void_p()
        cuda("cudaMalloc", ctypes.byref(self.at), ctypes.c_size_t(size))
        handle = ctypes.create_string_buffer(64)
        cuda("cudaIpcGetMemHandle", handle, self.at)
        self.handle = handle.raw.hex()

    def write(self, offset, data):
        cuda("cudaMemcpy", ctypes.c_void_p(self.at.value + offset), data,
             ctypes.c_size_t(len(data)), HOST_TO_DEVICE)


def noise(rng, n):
    return rng.randbytes(n)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("--device", type=int, default=0)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--kib", type=int, default=64)
    ap.add_argument("--tensors", type=int, default=8)
    a = ap.parse_args()
    os.makedirs(f"{a.dir}/same")
    cuda("cudaSetDevice", a.device)
    rng = random.Random(a.seed)
    size, n = a.kib << 10, a.tensors
    bases = [Base((size + 768) * n + 4096), Base((size + 768) * n + 4096)]
    used = [0, 256]
    listed, data = [], {}
    for i in range(n):
        dtype, width = [("BF16", 2), ("F32", 4), ("U8", 1)][i % 3]
        shape = [size // width // 8, 8] if i % 4 else [size // width]
        b = i % 2
        name = f"layer.{i}.weight"
        data[name] = noise(rng, size)
        bases[b].write(used[b], data[name])
        listed.append({
            "name": name, "dtype": dtype, "shape": shape,
            "strides": [8, 1] if i % 4 else [1], "bytes": size,
            "device": device_uuid(a.device), "handle": bases[b].handle,
            "offset": used[b]})
        used[b] += size + 256 * (1 + i % 3)
    listed.append({
        "name": "nothing", "dtype": "F32", "shape": [0, 4], "strides": [4, 1],
        "bytes": 0, "device": device_uuid(a.device),
        "handle": bases[0].handle, "offset": 0})
    data["nothing"] = b""
    with open(f"{a.dir}/list.json", "w") as f:
        json.dump({"format": 1, "tensors": listed}, f)
    head, at = {}, 0
    for t in listed:
        head[t["name"]] = {"dtype": t["dtype"], "shape": t["shape"],
                           "data_offsets": [at, at + t["bytes"]]}
        at += t["bytes"]
    text = json.dumps(head).encode()
    with open(f"{a.dir}/same/model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in listed:
            f.write(data[t["name"]])
    print("ready", flush=True)
    for line in sys.stdin:
        rng = random.Random(int(line.split()[1]))
        for b in bases:
            b.write(0, noise(rng, b.size))
        print("filled", flush=True)


main()
