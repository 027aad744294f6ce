#!/usr/bin/env python3
"""Checks a run's event stream against the bounds that it was given.

    checkevents.py EVENTS --engines a,b,c --groups N --buckets N --bytes N

Exits 1 and says which line breaks which rule:
  - engines that may receive (granted to, not sealed) never exceed --groups
  - nothing is granted to a wave before the one before it is sealed
  - reserved buckets and bytes never exceed the limits, and end at 0
  - of --exclusive buckets one is granted when nothing is, and nothing beside it
"""
import argparse
import json
import sys


def waves(engines, groups):
    step = groups if 0 < groups < len(engines) else len(engines)
    return [engines[i:i + step] for i in range(0, len(engines), step)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("events")
    ap.add_argument("--engines", required=True)
    ap.add_argument("--groups", type=int, default=0)
    ap.add_argument("--buckets", type=int, default=0)
    ap.add_argument("--bytes", type=int, default=0)
    ap.add_argument("--exclusive", default="", help="their numbers")
    a = ap.parse_args()
    engines = a.engines.split(",")
    wave = waves(engines, a.groups)
    bound = len(wave[0])
    alone = {int(b) for b in a.exclusive.split(",") if b}
    under_way = set()
    sealed, granted, peak_active, peak = set(), set(), 0, [0, 0]
    grants = releases = 0
    last = (0, 0)

    def bad(n, why):
        sys.exit(f"{a.events}:{n}: {why}")

    for n, line in enumerate(open(a.events), 1):
        e = json.loads(line)
        if e["event"] == "granted":
            grants += 1
            if under_way and (alone & under_way or e["bucket"] in alone):
                bad(n, f"bucket {e['bucket']} beside {under_way}, {alone} "
                       "are exclusive")
            under_way.add(e["bucket"])
            granted.add(e["wave"])
            for earlier in range(e["wave"]):
                left = [x for x in wave[earlier] if x not in sealed]
                if left:
                    bad(n, f"wave {e['wave']} granted, {left} not sealed")
        if e["event"] == "sealed" and e["stage"] == "transfer":
            sealed.add(e["engine"])
        if e["event"] == "released" and e["stage"] == "admit":
            releases += 1
            under_way.discard(e["bucket"])
        active = [x for w in granted for x in wave[w] if x not in sealed]
        peak_active = max(peak_active, len(active))
        if len(active) > bound:
            bad(n, f"{active} active, at most {bound}")
        if e["stage"] == "admit" and "credit_buckets" in e:
            last = (e["credit_buckets"], e["credit_bytes"])
            peak = [max(peak[0], last[0]), max(peak[1], last[1])]
            if a.buckets and last[0] > a.buckets:
                bad(n, f"{last[0]} buckets reserved, at most {a.buckets}")
            if a.bytes and last[1] > a.bytes:
                bad(n, f"{last[1]} bytes reserved, at most {a.bytes}")
            if not a.buckets and not a.bytes and last[0] > 1:
                bad(n, f"{last[0]} buckets reserved without any credit")
    if sealed != set(engines):
        sys.exit(f"sealed: {sorted(sealed)}, of {engines}")
    if grants == 0 or grants != releases or last != (0, 0):
        sys.exit(f"{grants} granted, {releases} released, {last} at the end")
    print(f"grants={grants} waves={len(wave)} active={peak_active} "
          f"peak_buckets={peak[0]} peak_bytes={peak[1]}")


if __name__ == "__main__":
    main()
