#!/usr/bin/env python3
"""Makes the seeds of tests/fuzz/corpus from the fixtures.

seed.py BUILD: the directory with weir-plan.  Writes seed-* files only; the
others are named after faults and stay.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(TESTS, "fixtures"))
SEED_MAX = 2048  # bytes

RANKED_FLEET = """engines:
  - name: e
    workers: [{endpoint: "ipc:///run/e0"}, {endpoint: "ipc:///run/e1"}]
"""

FLEET = """model: m
engines:
  - name: e0
    workers: [{endpoint: "ipc:///run/e0"}, {endpoint: "ipc:///run/e0"}]
  - name: e1
    kind: sglang
    url: http://10.0.0.7:30000
    workers:
      - endpoint: ipc:///run/e1
"""


def seed(target, name, data):
    assert len(data) <= SEED_MAX, (target, name, len(data))
    directory = os.path.join(HERE, "corpus", target)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "seed-" + name), "wb") as f:
        f.write(data)


def part(frame):
    return struct.pack("<H", len(frame)) + frame


def golden():
    """Every message, by name."""
    directory = os.path.join(TESTS, "golden", "msg")
    for name in sorted(os.listdir(directory)):
        with open(os.path.join(directory, name), "rb") as f:
            yield name.removesuffix(".bin"), f.read()


def messages():
    frames = {k: v for k, v in golden() if len(v) <= SEED_MAX}
    for name, frame in frames.items():
        seed("msg", name, frame)
    facts = ["end", "failed", "opened", "exclude", "excluded", "abort"]
    seed("rundir", "facts", b"\0" + b"".join(part(frames[f]) for f in facts))


def shard(header, data=0):
    text = json.dumps(header).encode()
    return struct.pack("<I", data)[:3] + struct.pack("<Q", len(text)) + text


def documents():
    tensors = {"__metadata__": {"format": "pt"},
               "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
               "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
               "c": {"dtype": "F4", "shape": [4], "data_offsets": [16, 18]},
               "d": {"dtype": "I8", "shape": [0, 9], "data_offsets": [18, 18]}}
    seed("safetensors", "all", shard(tensors, 18))
    seed("safetensors", "one", shard({"x": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, 1))
    seed("safetensors", "none", shard({}))
    device = {"device": "GPU-" + "0" * 8 + "-0000" * 3 + "-" + "0" * 12, "handle": "a5" * 64}
    seed("devsource", "two", json.dumps({"format": 1, "tensors": [
        {"name": "a", "dtype": "U8", "shape": [3], "strides": [1], "bytes": 3, "offset": 256, **device},
        {"name": "b", "dtype": "BF16", "shape": [2, 1], "strides": [1, 9], "bytes": 4, "offset": 0, **device}]}).encode())
    index = {"metadata": {"total_size": 18, "more": [None, True, 1.5e3]},
             "weight_map": {"a.weight": "m-1.safetensors", "b": "sub/m-2.safetensors"}}
    seed("index", "two", json.dumps(index).encode())
    seed("json", "all", b"\3" + json.dumps([index, {"\u00e9\u0000": "\U0001f30a\\/\b\f"}]).encode())
    seed("json", "text", b"\7" + '{"é🌊": [-0.5E+7, false, "\\ud83c\\udf0a"]}'.encode())
    seed("fleet", "file", FLEET.encode())
    for i, spec in enumerate(("ipc:///a/b", "sglang=http://h:1", "native=ipc:///x")):
        seed("fleet", f"option-{i}", b"\0" + spec.encode())


def checkpoints():
    """What the source and the quantisation have of files, as few as may be."""
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    def document(value):
        return part(json.dumps(value).encode())

    def file(header, data):
        return part(shard(header)[3:]) + bytes([data])

    first = {"l.q.weight": entry("BF16", [2, 3], 0, 12), "e": entry("F32", [], 12, 16)}
    second = {"l.k.weight": entry("U8", [5], 0, 5)}
    index = {"metadata": {"total_size": 21},
             "weight_map": {"l.q.weight": "a.safetensors", "e": "a.safetensors",
                            "l.k.weight": "b.safetensors"}}
    tied = {"architectures": ["GemmaForCausalLM"], "tie_word_embeddings": True}
    seed("source", "two", document(index) + document(tied) + file(first, 16) + file(second, 5))
    seed("source", "one", part(b"") + document({}) + file(first, 16) + part(b"") + b"\0")
    head = {"model.embed_tokens.weight": entry("F32", [4, 2], 0, 32)}
    seed("source", "head", part(b"") + document({**tied, "tie_word_embeddings": False})
         + file(head, 32) + part(b"") + b"\0")
    wrapper = {"text_config": {"a": [1e-6, None]}, "vision_config": {"quantization_config": {}}}
    index = {"metadata": {}, "weight_map": {"l.q.weight": "model.safetensors",
                                            "e": "model.safetensors"}}
    for name, config in ("plain", {}), ("wrapper", wrapper):
        seed("quant", name, document(config) + document(index) + struct.pack("<H", 16)
             + shard(first)[3:])
    many = {"a.weight": entry("F16", [130, 2], 0, 520), "b.norm.weight": entry("BF16", [3], 520, 526),
            "c.weight": entry("F32", [3, 129], 526, 2074), "d.weight": entry("F8_E4M3", [2, 2], 2074, 2078)}
    seed("quant", "many", document({}) + part(b"") + struct.pack("<H", 2078) + shard(many)[3:])


def lines():
    seed("handoff", "link", b"weir-link 1 /run/weir/a b ipc:///run/weir/a b/plan.1.sock")
    seed("handoff", "fail", b"weir-fail 1 65 a cause")
    for i, text in enumerate(("64MiB", "2GB", "1024", "10s", "250ms", "1h", "1.5", "-1")):
        seed("values", str(i), text.encode())
    ends = [{"event": e, "t_ns": 10 ** 9 * i, "wave": 0, "version": 7, "bytes": 1 << 20,
             "engine": "e0", "cause": "c", "credit_buckets": 1, "limit_buckets": 2,
             "credit_bytes": 5, "limit_bytes": 9}
            for i, e in enumerate(("opened", "granted", "acked", "released", "sealed",
                                   "excluded", "decided", "swapped"), 1)]
    for i in (3, 5, 8):
        text = "\n".join(json.dumps(e) for e in ends[i - 3:i])
        seed("event", str(i), b"\2\2" + text.encode())
    seed("rundir", "endpoint", b"\1ipc:///run/weir/r/plan.1.sock\n")
    seed("rundir", "pid", b"\x03123\n")


def options():
    for i, text in enumerate((
            "source=/a\nbucket-size=512MiB\nsplit-tensors\n",
            "max-inflight-engine-groups=2\nmax-inflight-buckets=4\norder=wave\n",
            "hash-threads=2\nstage-timeout=10s\n",
            "weight-version=3\nmin-engines=0\naccept-proof=copied\nwait=0\n")):
        seed("options", str(i), bytes([i]) + text.encode())


def engine_events():
    """Number, who, epoch, version, content, buckets, token, text."""
    def ev(on, token=0):
        return bytes([on, 4, 1, 1, 1, 1, token, 0])
    begin, attach, offer, finish, load = 0, 1, 2, 4, 5
    receipt, pause, swap, resume, cancel = 6, 7, 8, 9, 10
    made, begun, copied, sealed, published, hook = 12, 14, 15, 17, 19, 21
    whole = [ev(begin), ev(made), ev(attach), ev(offer), ev(begun), ev(copied), ev(finish),
             ev(sealed), ev(receipt), ev(pause, 1), ev(hook), ev(swap, 1), ev(published),
             ev(hook), ev(resume, 1), ev(hook)]
    seed("engine", "whole", b"".join(whole))
    seed("engine", "load", b"".join([ev(begin, 4), ev(made), ev(attach), ev(load), ev(sealed)]))
    seed("engine", "cancel", b"".join(whole[:6]) + ev(cancel))


def deltas(build):
    """Index, manifest and file of small deltas; and their payloads."""
    head = {"a": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}
    for n, kind in enumerate(("xor", "overwrite", "sparse", "auto")):
        with tempfile.TemporaryDirectory() as directory:
            for name, data in (("old", bytes(16)), ("new", bytes(range(16)))):
                os.mkdir(os.path.join(directory, name))
                with open(os.path.join(directory, name, "m.safetensors"), "wb") as f:
                    text = json.dumps(head).encode()
                    f.write(struct.pack("<Q", len(text)) + text + data)
            subprocess.run([os.path.join(build, "weir-delta"), "diff", "-q", "old", "new",
                            "-o", "d", "--base-version", "1", "--weight-version", "2",
                            "--delta-encoding", kind], cwd=directory, check=True)
            parts = []
            for name in ("model.safetensors.index.json", "weir-delta.jsonl",
                         "model-00000-of-00001.safetensors"):
                with open(os.path.join(directory, "d", name), "rb") as f:
                    parts.append(f.read())
        seed("delta", kind, part(parts[0]) + part(parts[1]) + parts[2])
        parts[0] = parts[0].replace(b"weir_manifest", b"another_field")
        seed("delta", kind + "-plain", part(parts[0]) + part(b"") + parts[2])
        at = 8 + struct.unpack("<Q", parts[2][:8])[0]
        seed("deltapayload", kind, bytes([min(n, 2), 1]) + struct.pack("<H", 16) + parts[2][at:])


def run(build, directory, *args):
    subprocess.run([os.path.join(build, "weir-plan"), *args], cwd=directory, check=True,
                   stdout=subprocess.DEVNULL)


def records(data):
    """The frames of a file of records."""
    at = len(b"weir-rec 1\n")
    while at < len(data):
        n, = struct.unpack_from("<I", data, at)
        yield data[at + 12:at + 12 + n]
        at += 12 + n


def checkpoint(directory, tensors, size):
    os.mkdir(directory)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(shard(tensors)[3:] + bytes(size))
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        f.write("{}")


def plans(build):
    with tempfile.TemporaryDirectory() as directory:
        for source, columns in ("s", 3), ("t", 5):
            data = {"a": {"dtype": "BF16", "shape": [2, columns],
                          "data_offsets": [0, 4 * columns]},
                    "b": {"dtype": "U8", "shape": [4],
                          "data_offsets": [4 * columns, 4 * columns + 4]}}
            checkpoint(os.path.join(directory, source), data, 4 * columns + 4)
        with open(os.path.join(directory, "fleet.yaml"), "w", encoding="utf-8") as f:
            f.write(FLEET.replace("    kind: sglang\n    url: http://10.0.0.7:30000\n", ""))
        plan = os.path.join(directory, "p")
        run(build, directory, "--source", "s", "--fleet", "fleet.yaml", "-o", plan,
            "--bucket-size", "8")
        with open(plan, "rb") as f:
            data = f.read()
        with open(os.path.join(directory, "fleet.yaml"), "w", encoding="utf-8") as f:
            f.write(RANKED_FLEET)
        run(build, directory, "--source", "s", "--source", "t", "--fleet", "fleet.yaml",
            "-o", plan, "--bucket-size", "16")
        with open(plan, "rb") as f:
            ranked = f.read()
    seed("recfile", "plan", data)
    seed("planfile", "plan", b"".join(part(f) for f in records(data)))
    seed("planfile", "ranks", b"".join(part(f) for f in records(ranked)))


def pack(value):
    """Just enough msgpack, in its shortest form."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        for limit, head, form in ((0x80, b"", ">B"), (1 << 8, b"\xcc", ">B"),
                                  (1 << 16, b"\xcd", ">H"), (1 << 32, b"\xce", ">I"),
                                  (1 << 64, b"\xcf", ">Q")):
            if value < limit:
                return head + struct.pack(form, value)
    if isinstance(value, bytes):
        return b"\xc4" + bytes([len(value)]) + value
    if isinstance(value, str):
        text = value.encode()
        return bytes([0xa0 | len(text)]) + text if len(text) < 32 else b"\xd9" + bytes([len(text)]) + text
    return bytes([0x90 | len(value)]) + b"".join(map(pack, value)) if len(value) < 16 else \
        b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


def marks():
    digest = "00112233445566778899aabbccddeeff"
    lines = [{"weir_version": 1, "kind": "full", "registry": "ab", "version": 2,
              "parent": digest, "content": digest, "tensors": digest,
              "structure": digest},
             {"file": "model.safetensors", "bytes": 3, "digest": digest},
             {"bytes": 3, "from": "model.safetensors", "device": 1, "inode": 2,
              "modified": 4, "changed": 5},
             {"end": 3}]
    seed("mark", "full", b"".join(json.dumps(m, separators=(",", ":")).encode() + b"\n"
                                  for m in lines))


def offers():
    fence, boot, digest = ["A", 1, "r", 3, 1], "b", bytes(16)
    files = [["a", 0, 100, 20, digest], ["b", 1, 40 << 20, 0, digest]]
    begin = [50, 1, fence, boot, 1, digest, digest, 100 + (40 << 20), 2, 2, 0, 1, False,
             files]
    first = [54, 2, fence, boot, 1, 0, 0, 100, [[0, 0, 20], [0, 20, 80]], 0]
    second = [54, 3, fence, boot, 1, 0, 1, 40 << 20, [[1, 0, 40 << 20]], 0]
    seed("offer", "whole", b"".join(part(pack(m)) for m in (begin, first, second, second)))
    for n in (1, 2, 253):
        seed("fdpass", str(n), bytes([n]) + part(pack([52, 4, fence, boot, 0, n])))


def stores():
    """What torch's clients say, up to the value that is too large."""
    for dialect in ("current", "1.13"):
        with open(os.path.join(TESTS, "golden", "tcpstore", dialect + ".in"), "rb") as f:
            data = f.read()
        said = data[:data.index(bytes(range(256))) + 100]
        seed("tcpstore", dialect, b"\x80" + part(said))
        seed("tcpstore", dialect + "-rest", b"\x80" + part(said[:30] + data[-340:]))
        seed("tcpstore", dialect + "-pieces", b"".join(
            bytes([i % 3]) + part(said[i:i + 40]) for i in range(0, len(said), 40)))


def main():
    messages()
    documents()
    checkpoints()
    lines()
    options()
    engine_events()
    plans(sys.argv[1])
    deltas(sys.argv[1])
    marks()
    offers()
    stores()


if __name__ == "__main__":
    main()
