#!/usr/bin/env python3
"""A server's worker in a weight-update group, as SGLang's and as vLLM's: it
meets rank 0 at torch's TCPStore, gets the id there, and takes broadcasts by
NCCL, which is a stand-in here.

    fakecast.py CHECKPOINT      "NAME DTYPE SHAPE SHA256" of each tensor, sorted

WEIR_STANDIN says where the stand-ins are.
"""
import ctypes
import glob
import hashlib
import json
import math
import os
import socket
import struct
import sys

BITS = {"bool": 8, "uint8": 8, "int8": 8, "float8_e5m2": 8,
        "float8_e4m3fn": 8, "int16": 16, "float16": 16, "bfloat16": 16,
        "int32": 32, "float32": 32, "int64": 64, "float64": 64}
UINT8, FLOAT32 = 1, 7
PACKING = ("packed", "packed_buffer_size_bytes", "packed_num_buffers")
TORCH = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2",
         "F8_E4M3": "float8_e4m3fn", "I16": "int16", "F16": "float16",
         "BF16": "bfloat16", "I32": "int32", "F32": "float32",
         "I64": "int64", "F64": "float64"}


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
        self.casts = []     # bytes of each broadcast
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

    def id(self):
        group = self.ask["group_name"]
        return self.store.get(f"/{group}/{group}//cuda//0".encode())

    def join(self):
        self.load()
        data = self.id()
        raw, self.comm = Id(), ctypes.c_void_p()
        assert len(data) == ctypes.sizeof(raw)
        ctypes.memmove(ctypes.byref(raw), data, len(data))
        self.must(self.nccl.ncclCommInitRankConfig(
            ctypes.byref(self.comm), self.ask["world_size"], raw,
            self.ask["rank_offset"], None), "ncclCommInitRankConfig")
        self.check()
        self.stream = ctypes.c_void_p()
        self.must(self.cuda.cudaStreamCreateWithFlags(
            ctypes.byref(self.stream), 1), "cudaStreamCreateWithFlags")

    def check(self):
        """All that was done in the group went well."""
        state = ctypes.c_int()
        self.must(self.nccl.ncclCommGetAsyncError(
            self.comm, ctypes.byref(state)), "ncclCommGetAsyncError")
        self.must(state.value, "the group")

    def allocate(self, n):
        memory = ctypes.c_void_p()
        self.must(self.cuda.cudaMalloc(ctypes.byref(memory),
                                       ctypes.c_size_t(n)), "cudaMalloc")
        return memory

    def receive(self, n):
        """One broadcast."""
        if n == 0:
            return b""
        if self.comm is None:
            self.join()
        memory, out = self.allocate(n), ctypes.create_string_buffer(n)
        self.must(self.nccl.ncclBroadcast(
            memory, memory, ctypes.c_size_t(n), UINT8, 0, self.comm,
            self.stream), "ncclBroadcast")
        self.must(self.cuda.cudaMemcpyAsync(
            out, memory, ctypes.c_size_t(n), 2, self.stream), "cudaMemcpyAsync")
        self.must(self.cuda.cudaStreamSynchronize(self.stream), "synchronize")
        self.check()
        self.must(self.cuda.cudaFree(memory), "cudaFree")
        self.casts.append(n)
        return out.raw

    def receive_all(self, tensors):
        """Those of one broadcast."""
        whole, at, out = self.receive(sum(t[3] for t in tensors)), 0, {}
        for name, dtype, shape, n in tensors:
            assert at % (BITS[dtype] // 8) == 0, f"{name} is not aligned"
            out[name] = (dtype, shape, whole[at:at + n])
            at += n
        return out

    def receive_each(self, tensors):
        return {name: (dtype, shape, self.receive(n))
                for name, dtype, shape, n in tensors}

    @staticmethod
    def tensors(ask, dtypes):
        """(name, dtype, shape, bytes) of each."""
        assert len(ask["names"]) == len(ask[dtypes]) == len(ask["shapes"])
        return [(name, dtype, shape, math.prod(shape) * BITS[dtype] // 8)
                for name, dtype, shape in zip(ask["names"], ask[dtypes],
                                              ask["shapes"])]

    def take(self, ask):
        """What one call brings, by name."""
        tensors = self.tensors(ask, "dtypes")
        if ask.get("load_format") != "flattened_bucket":
            return self.receive_each(tensors)
        assert len(set(ask["dtypes"])) == 1
        return self.receive_all(tensors)

    def leave(self):
        if self.comm is not None:
            self.nccl.ncclCommAbort(self.comm)
        self.store.sock.close()


# ncclUniqueId as vLLM pickles it: what stands around its bytes.
PICKLED = (b"\x80\x04\x95\xec\x00\x00\x00\x00\x00\x00\x00\x8c\x07_ctypes",
           b"\x94\x86\x94\x86\x94R\x94.")


class EagerWorker(Worker):
    """As vLLM's: it joins when it is told where, and sums a float then."""

    def __init__(self, ask, packing):
        super().__init__(ask)
        self.packing = packing      # None: each call says it
        self.join()
        memory = self.allocate(4)
        self.must(self.nccl.ncclAllReduce(
            memory, memory, ctypes.c_size_t(1), FLOAT32, 0, self.comm,
            self.stream), "ncclAllReduce")
        self.must(self.cuda.cudaStreamSynchronize(self.stream), "synchronize")
        self.check()

    def id(self):
        data = self.store.get(b"/broadcast_from/0/0")
        head, tail = PICKLED
        assert data.startswith(head) and data.endswith(tail)
        return data[-128 - len(tail):-len(tail)]

    def take(self, ask):
        ask, packing = dict(ask), self.packing
        if packing is None:
            packing = {k: ask.pop(k) for k in PACKING if k in ask}
        assert set(ask) == {"names", "dtype_names", "shapes"}, "unknown keys"
        tensors = self.tensors(ask, "dtype_names")
        if not packing.get("packed"):
            return self.receive_each(tensors)
        out, chunk, n = {}, [], 0
        for t in tensors:
            chunk.append(t)
            n += t[3]
            if n > packing["packed_buffer_size_bytes"]:
                out.update(self.receive_all(chunk))
                chunk, n = [], 0
        out.update(self.receive_all(chunk))
        return out


def lines(tensors):
    return [f"{name} {dtype} {shape} {hashlib.sha256(data).hexdigest()}"
            for name, (dtype, shape, data) in sorted(tensors.items())]


def main(checkpoint):
    tensors = {}
    for path in glob.glob(os.path.join(checkpoint, "*.safetensors")):
        with open(path, "rb") as f:
            (n,) = struct.unpack("<Q", f.read(8))
            header, data = json.loads(f.read(n)), f.read()
        header.pop("__metadata__", None)
        for name, t in header.items():
            tensors[name] = (TORCH[t["dtype"]], t["shape"],
                             data[slice(*t["data_offsets"])])
    print("\n".join(lines(tensors)))


if __name__ == "__main__":
    main(sys.argv[1])
