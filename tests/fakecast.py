#!/usr/bin/env python3
"""A server's worker in a weight-update group, as SGLang's: it meets rank 0 at
torch's TCPStore, gets the id there, and takes broadcasts by NCCL, which is a
stand-in here.

    fakecast.py CHECKPOINT      "NAME SHA256" of each tensor, sorted

WEIR_STANDIN says where the stand-ins are.
"""
import ctypes
import glob
import hashlib
import json
import os
import socket
import struct
import sys
import time

BITS = {"bool": 8, "uint8": 8, "int8": 8, "float8_e5m2": 8,
        "float8_e4m3fn": 8, "int16": 16, "float16": 16, "bfloat16": 16,
        "int32": 32, "float32": 32, "int64": 64, "float64": 64}
UINT8 = 1


class Store:
    """A client of the current dialect."""

    def __init__(self, host, port):
        self.sock = socket.create_connection((host, port), timeout=30)
        self.sock.sendall(struct.pack("<BI", 0, 0x3C85F7CE))
        self.sock.sendall(struct.pack("<BI", 13, os.getpid()))
        self.take(4)
        self.sock.sendall(b"\x04" + self.text(b"init/") + struct.pack("<q", 1))
        self.take(8)

    @staticmethod
    def text(data):
        return struct.pack("<Q", len(data)) + data

    def take(self, n):
        data = b""
        while len(data) < n:
            part = self.sock.recv(n - len(data))
            if not part:
                raise OSError("the store is gone")
            data += part
        return data

    def get(self, key):
        self.sock.sendall(b"\x06" + struct.pack("<Q", 1) + self.text(key))
        self.take(1)
        self.sock.sendall(b"\x03" + self.text(key))
        (n,) = struct.unpack("<Q", self.take(8))
        return self.take(n)


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Worker:
    """Rank of a group; joins it for the first broadcast."""

    def __init__(self, ask):
        self.ask = ask
        self.comm = None
        self.store = Store(ask["master_address"], ask["master_port"])

    def load(self):
        where = os.environ["WEIR_STANDIN"]
        self.cuda = ctypes.CDLL(f"{where}/libcudart.so.13",
                                mode=ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(f"{where}/libnccl.so.2")

    @staticmethod
    def must(result, what):
        if result != 0:
            raise OSError(f"{what}: {result}")

    def join(self):
        self.load()
        group = self.ask["group_name"]
        data = self.store.get(f"/{group}/{group}//cuda//0".encode())
        raw, self.comm = Id(), ctypes.c_void_p()
        assert len(data) == ctypes.sizeof(raw)
        ctypes.memmove(ctypes.byref(raw), data, len(data))
        self.must(self.nccl.ncclCommInitRankConfig(
            ctypes.byref(self.comm), self.ask["world_size"], raw,
            self.ask["rank_offset"], None), "ncclCommInitRankConfig")
        state = ctypes.c_int(7)
        end = time.monotonic() + 30
        while state.value == 7 and time.monotonic() < end:
            time.sleep(0.001)
            self.must(self.nccl.ncclCommGetAsyncError(
                self.comm, ctypes.byref(state)), "ncclCommGetAsyncError")
        self.must(state.value, "init")
        self.stream = ctypes.c_void_p()
        self.must(self.cuda.cudaStreamCreateWithFlags(
            ctypes.byref(self.stream), 1), "cudaStreamCreateWithFlags")

    def receive(self, n):
        if self.comm is None:
            self.join()
        memory, out = ctypes.c_void_p(), ctypes.create_string_buffer(n)
        self.must(self.cuda.cudaMalloc(ctypes.byref(memory),
                                       ctypes.c_size_t(n)), "cudaMalloc")
        self.must(self.nccl.ncclBroadcast(
            memory, memory, ctypes.c_size_t(n), UINT8, 0, self.comm,
            self.stream), "ncclBroadcast")
        self.must(self.cuda.cudaMemcpyAsync(
            out, memory, ctypes.c_size_t(n), 2, self.stream), "cudaMemcpyAsync")
        self.must(self.cuda.cudaStreamSynchronize(self.stream), "synchronize")
        self.must(self.cuda.cudaFree(memory), "cudaFree")
        return out.raw

    def take(self, ask):
        """What one call brings, by name."""
        sizes = []
        for dtype, shape in zip(ask["dtypes"], ask["shapes"]):
            n = BITS[dtype] // 8
            for dim in shape:
                n *= dim
            sizes.append(n)
        if ask.get("load_format") == "flattened_bucket":
            assert len(set(ask["dtypes"])) == 1
            whole, at, out = self.receive(sum(sizes)), 0, {}
            for name, n in zip(ask["names"], sizes):
                out[name] = whole[at:at + n]
                at += n
            return out
        return {name: self.receive(n) if n else b""
                for name, n in zip(ask["names"], sizes)}

    def leave(self):
        if self.comm is not None:
            self.nccl.ncclCommAbort(self.comm)
        self.store.sock.close()


def lines(tensors):
    return [f"{name} {hashlib.sha256(data).hexdigest()}"
            for name, data in sorted(tensors.items())]


def main(checkpoint):
    tensors = {}
    for path in glob.glob(os.path.join(checkpoint, "*.safetensors")):
        with open(path, "rb") as f:
            (n,) = struct.unpack("<Q", f.read(8))
            header, data = json.loads(f.read(n)), f.read()
        header.pop("__metadata__", None)
        for name, t in header.items():
            tensors[name] = data[slice(*t["data_offsets"])]
    print("\n".join(lines(tensors)))


if __name__ == "__main__":
    main(sys.argv[1])
