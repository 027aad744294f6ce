#!/usr/bin/env python3
"""What readers see while processes are killed, and whether it may be seen

A reader is a process of its own that looks at every engine's `current`, at
every server and at the registry in a tight loop, and writes a line whenever
something is new.  Lines, one JSON object each:

    engine version marker inode decided     what `current` led to; decided: was
                                            its decision there just after
    engine version marker decided           what a server served, unpaused
    registry version                        what the registry's `current` says
    decision inode content                  a decision that is there now

    history.py read REGISTRY PLACE...   until its stdin ends; a store, or a
                                        server's PORT:NAME:DIR
    history.py check FILE               exit 1, and why
"""

import json
import os
import subprocess
import sys

PARENT = os.path.dirname(os.path.abspath(__file__))


class Reader:
    """The process, and what it wrote."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.path = f"{fleet.dir}/history"
        with open(self.path, "w", encoding="ascii") as out:
            self.process = subprocess.Popen(
                [sys.executable, f"{PARENT}/history.py", "read",
                 fleet.registry, *[e.store for e in fleet.engines],
                 *[s.place() for s in fleet.servers]],
                stdin=subprocess.PIPE, stdout=out)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()

    def check(self):
        """The number of looks; raises what must not be."""
        from fleet import expect
        with open(self.path, encoding="ascii") as lines:
            lines = [json.loads(line) for line in lines]
        bad = check(lines)
        expect(not bad, f"history: {bad[:3]}")
        expect(lines and "looks" in lines[-1], "the reader did not end well")
        return lines[-1]["looks"]


def look_at_engine(store, registry):
    """One look, or None if the name changed under way."""
    link = f"{store}/current"
    try:
        name = os.readlink(link)
        with open(f"{store}/{name}/config.json", "rb") as f:
            text, inode = f.read(), os.fstat(f.fileno()).st_ino
        if os.readlink(link) != name:
            return None
    except FileNotFoundError:
        return None
    number = os.path.basename(name)
    return {"version": int(number), "marker": json.loads(text).get("marker"),
            "inode": inode, "decided": os.path.exists(
                f"{registry}/versions/{number}/decision")}


def look_at_server(place, registry):
    from servers import ask
    port, name, path = place.split(":", 2)
    seen = json.loads(ask(port, f"state --dir {path} --name {name}"))
    if seen["paused"] or not seen["label"].isdigit():
        return None
    number = int(seen["label"])
    return {"version": number, "marker": seen["loaded"], "decided":
            os.path.exists(f"{registry}/versions/{number:06d}/decision")}


def look_at_place(place, registry):
    look = look_at_engine if place.startswith("/") else look_at_server
    return look(place, registry)


def look_at_registry(registry, known):
    try:
        yield {"registry":
               int(os.path.basename(os.readlink(f"{registry}/current")))}
        names = os.listdir(f"{registry}/versions")
    except FileNotFoundError:
        return
    for n in names:
        path = f"{registry}/versions/{n}/decision"
        try:
            inode = os.stat(path).st_ino
            if known.get(n) == inode:
                continue
            known[n] = inode
            with open(path, "rb") as f:
                yield {"decision": int(n), "inode": inode,
                       "content": f.read().hex()}
        except FileNotFoundError:
            continue


def read(registry, places):
    """Tight, but for who waits for the processor: the kills must go on."""
    os.nice(5)
    os.set_blocking(0, False)
    last, known, looks = {}, {}, 0
    while not ended(0):
        for place in places:
            seen = look_at_place(place, registry)
            looks += 1
            if seen and last.get(place) != seen:
                last[place] = seen
                put({"engine": place, **seen})
        for seen in look_at_registry(registry, known):
            if "decision" in seen or last.get("") != seen:
                last[""] = last.get("") if "decision" in seen else seen
                put(seen)
    put({"looks": looks})


def ended(fd):
    try:
        return os.read(fd, 1) == b""
    except BlockingIOError:
        return False


def put(line):
    print(json.dumps(line), flush=True)


class Once:
    """A key that never gets a second value."""

    def __init__(self, text, bad):
        self.text, self.bad, self.value = text, bad, {}

    def see(self, key, value):
        if self.value.setdefault(key, value) != value:
            self.bad.append(f"{self.text} {key}: {self.value[key]}, "
                            f"then {value}")


def check(lines):
    """What is wrong with a history, as text."""
    bad, highest = [], {}
    content = Once("I12 two contents of version", bad)
    loaded = Once("I2 servers with two contents of version", bad)
    inode = Once("I2 written in place, version", bad)
    decision = Once("I12 two decisions on version", bad)
    for seen in lines:
        if "engine" in seen or "registry" in seen:
            who = seen.get("engine", "the registry")
            n = seen["version" if "engine" in seen else "registry"]
            if n < highest.get(who, 0):
                bad.append(f"I12 {who} went from {highest[who]} to {n}")
            highest[who] = max(n, highest.get(who, 0))
        if "engine" in seen:
            if not seen["decided"]:
                bad.append(f"I1 {who} serves {n}, which is not decided")
            (content if "inode" in seen else loaded).see(n, seen["marker"])
            inode.see((who, n), seen.get("inode"))
        if "decision" in seen:
            decision.see(seen["decision"], (seen["inode"], seen["content"]))
    return bad


if __name__ == "__main__":
    if sys.argv[1] == "read":
        read(sys.argv[2], sys.argv[3:])
    else:
        with open(sys.argv[2], encoding="ascii") as f:
            wrong = check([json.loads(line) for line in f])
        print("\n".join(wrong) or "nothing wrong")
        sys.exit(1 if wrong else 0)
