#!/usr/bin/env python3
"""Is SLOT what --post-load fp8 must make of SOURCE?  Value by value.

An implementation of its own, from the descriptions: OCP's "8-bit Floating
Point Specification" for F8_E4M3, README_WEIGHTS.md of DeepSeek-V3 for scales
and files.  Standard library only; with --ml-dtypes numbers are rounded by
numpy and ml_dtypes instead, which is much faster.  Prints what it saw; exits
with 1 and one line if something is wrong.
"""

import argparse
import bisect
import filecmp
import json
import os
import re
import struct
import sys

BLOCK = 128
SIZE = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2,
        "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8,
        "F64": 8}
INDEX = "model.safetensors.index.json"
SMALLEST = 2.0 ** -126


def wrong(text):
    print(f"fp8check: {text}", file=sys.stderr)
    sys.exit(1)


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def decode(code):
    """A code without sign: 4 bits of exponent, 3 of mantissa."""
    exponent, mantissa = code >> 3, code & 7
    if exponent == 0:
        return mantissa * 2.0 ** -9
    return (8 + mantissa) * 2.0 ** (exponent - 10)


CODES = [decode(c) for c in range(127)]  # 127 is NaN
MIDDLE = [(a + b) / 2 for a, b in zip(CODES, CODES[1:])]


def encode(y, negative):
    y = abs(y)
    code = bisect.bisect_left(MIDDLE, y)
    if code < len(MIDDLE) and MIDDLE[code] == y:
        code += code & 1  # a tie: the even one of code and code + 1
    return code | (0x80 if negative else 0)


class Numbers:
    """One block after the other, with the standard library."""

    def __init__(self, dtype, data):
        if dtype == "BF16":
            half = struct.unpack(f"<{len(data) // 2}H", data)
            data = struct.pack(f"<{len(half)}I", *[h << 16 for h in half])
        form = "e" if dtype == "F16" else "f"
        self.v = struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}",
                               data)

    def convert(self, rows, cols):
        codes, scales = bytearray(rows * cols), []
        for r in range(0, rows, BLOCK):
            for c in range(0, cols, BLOCK):
                at = [i * cols + j for i in range(r, min(rows, r + BLOCK))
                      for j in range(c, min(cols, c + BLOCK))]
                most = max(abs(self.v[i]) for i in at)
                scale = max(f32(most / 448), SMALLEST) if most else 1.0
                scales.append(scale)
                for i in at:
                    x = self.v[i]
                    negative = struct.pack("<f", x)[3] >= 0x80
                    codes[i] = encode(f32(x / scale), negative)
        return bytes(codes), struct.pack(f"<{len(scales)}f", *scales)


class Arrays:
    """The same with numpy and ml_dtypes."""

    def __init__(self, dtype, data):
        import ml_dtypes
        import numpy
        self.np, self.f8 = numpy, ml_dtypes.float8_e4m3fn
        kind = {"BF16": ml_dtypes.bfloat16, "F16": numpy.float16,
                "F32": numpy.float32}[dtype]
        self.v = numpy.frombuffer(data, kind).astype(numpy.float32)

    def convert(self, rows, cols):
        np = self.np
        v, codes = self.v.reshape(rows, cols), np.empty((rows, cols), self.f8)
        down, over = -(-rows // BLOCK), -(-cols // BLOCK)
        scales = np.empty((down, over), np.float32)
        for r in range(down):
            for c in range(over):
                place = np.s_[r * BLOCK:(r + 1) * BLOCK,
                              c * BLOCK:(c + 1) * BLOCK]
                most = np.abs(v[place]).max()
                scale = np.maximum(most / np.float32(448),
                                   np.float32(SMALLEST)) if most else 1
                scales[r, c] = scale
                codes[place] = (v[place] / np.float32(scale)).astype(self.f8)
        return codes.tobytes(), scales.tobytes()


def read_shard(path):
    """{name: (dtype, shape, bytes)}; the layout is checked on the way."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    head.pop("__metadata__", None)
    data = data[8 + size:]
    end, out = 0, {}
    for name, t in sorted(head.items(), key=lambda i: i[1]["data_offsets"]):
        a, b = t["data_offsets"]
        count = 1
        for n in t["shape"]:
            count *= n
        if a != end or b - a != count * SIZE[t["dtype"]]:
            wrong(f"{path}: {name}: offsets {a}, {b}")
        out[name] = (t["dtype"], t["shape"], data[a:b])
        end = b
    if end != len(data):
        wrong(f"{path}: {len(data)} bytes of data, {end} in the header")
    return out


def is_aligned(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(size))
    head.pop("__metadata__", None)
    return all((8 + size + t["data_offsets"][0]) % SIZE[t["dtype"]] == 0
               for t in head.values())


def expected(tensors, pattern, kind):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if not pattern.search(name):
            out[name] = (dtype, shape, data)
            continue
        codes, scales = kind(dtype, data).convert(*shape)
        out[name] = ("F8_E4M3", shape, codes)
        out[name + "_scale_inv"] = (
            "F32", [-(-n // BLOCK) for n in shape], scales)
    return out


def check_shard(want, path):
    have = read_shard(path)
    if sorted(have) != sorted(want):
        wrong(f"{path}: tensors {sorted(set(have) ^ set(want))}")
    if not is_aligned(path):
        wrong(f"{path}: a tensor is not aligned")
    for name, (dtype, shape, data) in want.items():
        if have[name][:2] != (dtype, shape):
            wrong(f"{path}: {name}: {have[name][:2]}, not {(dtype, shape)}")
        if have[name][2] != data:
            at = next(i for i, (a, b) in enumerate(zip(have[name][2], data))
                      if a != b)
            wrong(f"{path}: {name}: byte {at} is {have[name][2][at]:#x}, "
                  f"not {data[at]:#x}")


def check_config(source, slot, kept):
    with open(os.path.join(slot, "config.json"), encoding="utf-8") as f:
        have = json.load(f)
    entry = have.pop("quantization_config")
    want = {"activation_scheme": "dynamic", "fmt": "e4m3",
            "quant_method": "fp8", "weight_block_size": [BLOCK, BLOCK]}
    if kept:
        want["modules_to_not_convert"] = sorted(kept)
    if entry != want:
        wrong(f"quantization_config is {entry}, not {want}")
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        want = json.load(f)
        want.pop("quantization_config", None)
        if have != want:
            wrong("config.json has other members than before")


def check_index(source, slot, where, total):
    with open(os.path.join(source, INDEX), encoding="utf-8") as f:
        want = json.load(f)
    want["weight_map"] = where
    want.setdefault("metadata", {})["total_size"] = total
    with open(os.path.join(slot, INDEX), encoding="utf-8") as f:
        if json.load(f) != want:
            wrong(f"{INDEX} is not what was expected")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("source")
    p.add_argument("slot")
    p.add_argument("--quantised", default=r"_proj\.weight$", metavar="REGEX",
                   help="names of the tensors that must be (%(default)s)")
    p.add_argument("--ml-dtypes", action="store_true")
    a = p.parse_args()
    pattern, kind = re.compile(a.quantised), Arrays if a.ml_dtypes else Numbers
    where, kept, total, numbers = {}, set(), 0, 0
    if sorted(os.listdir(a.source)) != sorted(os.listdir(a.slot)):
        wrong(f"files: {sorted(os.listdir(a.slot))}")
    for file in sorted(os.listdir(a.source)):
        old, new = os.path.join(a.source, file), os.path.join(a.slot, file)
        if not file.endswith(".safetensors"):
            if file not in (INDEX, "config.json") and \
                    not filecmp.cmp(old, new, shallow=False):
                wrong(f"{file} is not what it was")
            continue
        tensors = read_shard(old)
        want = expected(tensors, pattern, kind)
        check_shard(want, new)
        where.update({name: file for name in want})
        total += sum(len(data) for _, _, data in want.values())
        for name, (dtype, shape, _) in tensors.items():
            if pattern.search(name):
                numbers += shape[0] * shape[1]
            elif len(shape) > 1 and dtype in ("BF16", "F16", "F32"):
                kept.add(name.rpartition(".")[0])
    check_config(a.source, a.slot, kept)
    if os.path.exists(os.path.join(a.source, INDEX)):
        check_index(a.source, a.slot, where, total)
    print(f"{numbers} numbers, {total} bytes: right")


if __name__ == "__main__":
    main()
