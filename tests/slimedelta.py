#!/usr/bin/env python3
"""slime's published deltas, read and written from their description alone.

    slimedelta.py diff OLD NEW OUT BASE VERSION xor|overwrite [CHECKSUM]
    slimedelta.py apply DELTA DIR [THREADS]      in place, as slime does
    slimedelta.py same A B                       equal tensors, by name

or several of them, with -- in between.

Knows nothing of weir: what it ignores, slime's reader ignores.
"""

import glob
import json
import os
import shutil
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import xxhash
import zstandard

CHECKSUMS = {
    "xxh3-128": lambda b: xxhash.xxh3_128_hexdigest(b),
    "adler32": lambda b: "%08x" % zlib.adler32(b),
}
INDEX = "model.safetensors.index.json"


def header_of(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n)), 8 + n


def shards(directory):
    return sorted(glob.glob(os.path.join(directory, "**", "*.safetensors"),
                            recursive=True))


def views(directory, mode="r"):
    """Each tensor's bytes, by name, over the mapped files."""
    out = {}
    for path in shards(directory):
        header, start = header_of(path)
        header.pop("__metadata__", None)
        size = os.path.getsize(path)
        data = np.memmap(path, np.uint8, mode) if size else None
        for name, t in header.items():
            a, b = t["data_offsets"]
            out[name] = data[start + a:start + b]
    return out


def payload(old, new, encoding):
    if encoding == "xor":
        return (old ^ new).tobytes()
    where = np.flatnonzero(old != new)
    return (struct.pack("<I", len(where)) + where.astype("<u4").tobytes() +
            new[where].tobytes())


def write_shard(path, tensors, sums):
    header, at = {"__metadata__": sums}, 0
    for name, frame in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(frame)],
                        "data_offsets": [at, at + len(frame)]}
        at += len(frame)
    text = json.dumps(header).encode()
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for frame in tensors.values():
            f.write(frame)
        os.fsync(f.fileno())
    os.rename(path + ".tmp", path)


def diff(old, new, out, base, version, encoding, checksum="xxh3-128"):
    a, b = views(old), views(new)
    pack = zstandard.ZstdCompressor(level=1)
    frames, sums = {}, {}
    for name in sorted(a):
        if np.array_equal(a[name], b[name]):
            continue
        frames[name] = pack.compress(payload(a[name], b[name], encoding))
        sums[name] = CHECKSUMS[checksum](b[name].tobytes())
    os.makedirs(out)
    files = [n for n in (sorted(frames)[0::2], sorted(frames)[1::2]) if n]
    where = {}
    for i, names in enumerate(files):
        name = f"model-{i:05d}-of-{len(files):05d}.safetensors"
        write_shard(os.path.join(out, name), {n: frames[n] for n in names},
                    {n: sums[n] for n in names})
        where.update(dict.fromkeys(names, name))
    index = {"metadata": {"version": "%06d" % int(version),
                          "base_version": "%06d" % int(base),
                          "delta_encoding": encoding,
                          "compression_format": "zstd",
                          "checksum_format": checksum}, "weight_map": where}
    with open(os.path.join(out, INDEX), "w") as f:
        json.dump(index, f)


def apply_one(view, frame, encoding, want, checksum):
    data = zstandard.ZstdDecompressor().decompress(frame)
    if encoding == "xor":
        np.bitwise_xor(view, np.frombuffer(data, np.uint8), out=view)
    elif encoding == "overwrite":
        (n,) = struct.unpack_from("<I", data)
        where = np.frombuffer(data, "<u4", n, 4)
        view[where] = np.frombuffer(data, np.uint8, n, 4 + 4 * n)
    else:
        raise SystemExit(f"unknown encoding {encoding}")
    assert CHECKSUMS[checksum](memoryview(view)) == want


def apply(delta, directory, threads="2"):
    with open(os.path.join(delta, INDEX)) as f:
        meta = json.load(f)["metadata"]
    assert meta["compression_format"] == "zstd", meta
    target, jobs = views(directory, "r+"), []
    with ThreadPoolExecutor(int(threads)) as pool:
        for path in sorted(glob.glob(os.path.join(delta, "*.safetensors"))):
            header, start = header_of(path)
            sums = header.pop("__metadata__")
            data = np.memmap(path, np.uint8, "r")
            for name, t in header.items():
                assert t["dtype"] == "U8" and len(t["shape"]) == 1, t
                a, b = t["data_offsets"]
                jobs.append(pool.submit(
                    apply_one, target[name],
                    memoryview(data[start + a:start + b]),
                    meta["delta_encoding"], sums[name],
                    meta["checksum_format"]))
        for job in jobs:
            job.result()


def base_of(directory):
    """The version that a delta is made from; None: the directory is whole."""
    path = os.path.join(directory, INDEX)
    if not os.path.exists(path) and os.listdir(directory):
        return None
    with open(path) as f:
        meta = json.load(f)["metadata"]
    return int(meta["base_version"]) if "delta_encoding" in meta else None


def copy(directory, local):
    """All of a whole version, over what is there."""
    for path in glob.glob(os.path.join(directory, "*")):
        shutil.copyfile(path, os.path.join(local, os.path.basename(path)))


def same(a, b):
    a, b = views(a), views(b)
    bad = [n for n in sorted(a.keys() | b.keys())
           if n not in a or n not in b or not np.array_equal(a[n], b[n])]
    if bad:
        raise SystemExit("differ: " + " ".join(bad[:8]))


def main(args):
    while args:
        end = args.index("--") if "--" in args else len(args)
        {"diff": diff, "apply": apply, "same": same}[args[0]](*args[1:end])
        args = args[end + 1:]


if __name__ == "__main__":
    main(sys.argv[1:])
