#!/usr/bin/python3
"""relay.py LISTEN CONNECT CUTS: a Unix socket relay that cuts connections.

The first connection to carry k pieces is cut there, wherever that is in the
stream, k being the number of cuts before it: 0, 1 ... CUTS - 1.  Then none is
cut any more.  Prints a line for each cut.
"""
import os
import selectors
import socket
import sys

PIECE = 512


class Relay:
    def __init__(self, listen, connect, cuts):
        self.connect, self.cuts, self.k = connect, cuts, 0
        self.sel = selectors.DefaultSelector()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(listen)
        self.server.listen()
        self.sel.register(self.server, selectors.EVENT_READ)

    def accept(self):
        """False when nobody is there any more to be relayed to."""
        near, far = self.server.accept()[0], socket.socket(socket.AF_UNIX)
        link = {near: far, far: near, "pieces": 0}
        try:
            far.connect(self.connect)
        except OSError:
            near.close()
            far.close()
            return os.path.exists(self.connect)
        for end in near, far:
            self.sel.register(end, selectors.EVENT_READ, link)
        self.cut_if_due(near, link)
        return True

    def drop(self, end, link):
        for s in end, link[end]:
            self.sel.unregister(s)
            s.close()

    def cut_if_due(self, end, link):
        if self.k < self.cuts and link["pieces"] >= self.k:
            self.drop(end, link)
            print("cut after", self.k, flush=True)
            self.k += 1

    def move(self, end, link):
        try:
            data = end.recv(PIECE)
            link[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            self.drop(end, link)
            return
        link["pieces"] += 1
        self.cut_if_due(end, link)

    def run(self):
        while True:
            for key, _ in self.sel.select():
                if key.fileobj is self.server:
                    if not self.accept():
                        return
                elif key.fileobj.fileno() >= 0:  # not dropped meanwhile
                    self.move(key.fileobj, key.data)


def main():
    relay = Relay(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    print("listening", flush=True)
    relay.run()


main()
