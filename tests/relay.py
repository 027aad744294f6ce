#!/usr/bin/python3
"""relay.py LISTEN CONNECT CUTS: a Unix socket relay that cuts connections.

The first CUTS connections are cut, the k-th after k pieces have gone through
it, wherever that is in the stream; later ones are left alone.  Prints a line
for each cut.
"""
import os
import selectors
import socket
import sys

PIECE = 512


def relay(a, b, pieces):
    """Until an end closes, or `pieces` went through (None: no limit)."""
    sel = selectors.DefaultSelector()
    sel.register(a, selectors.EVENT_READ, b)
    sel.register(b, selectors.EVENT_READ, a)
    while pieces is None or pieces > 0:
        for key, _ in sel.select():
            data = key.fileobj.recv(PIECE)
            if not data:
                return False
            key.data.sendall(data)
            if pieces is not None:
                pieces -= 1
    return True


def main():
    listen, connect, cuts = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server = socket.socket(socket.AF_UNIX)
    server.bind(listen)
    server.listen()
    print("listening", flush=True)
    k = 0
    while True:
        a = server.accept()[0]
        b = socket.socket(socket.AF_UNIX)
        try:
            b.connect(connect)
            if relay(a, b, k if k < cuts else None):
                print("cut after", k, flush=True)
                k += 1
        except OSError:
            if not os.path.exists(connect):
                break
        finally:
            a.close()
            b.close()


main()
