"""Measures one client against one limiter: starts both, lets the workers work, prints the figures as JSON. `run` starts this
as a program, so that measurements do not disturb each other.

Usage: measure.py KEY CLIENT SECONDS ANDANTE"""

import asyncio
import itertools
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fleet import Fleet
from tap import Tap
from world import World
from zoo import ROWS

# Seconds after which refusals count as late.
LATE = 10


async def measure(row, client, seconds, andante, world):
    tap = Tap(world.address, row.way)
    port = await tap.start(world.limiter(row.server))
    proxy = None
    if client != "careful":
        proxy = world.andante(andante, row.allows.limit if client == "configured" else None, port)
    fleet = Fleet(f"http://{world.address}:{port}", row.requests, proxy)
    began = time.monotonic()
    await fleet.work(seconds)
    world.check()
    answers = [(at - began, status) for at, status in tap.answers if at - began <= seconds]
    return figures(row, seconds, answers, fleet.got)


def figures(row, seconds, answers, got):
    served = [at for at, status in answers if status == 200]
    late = [status for at, status in answers if at >= LATE]
    tail = row.tail(seconds)
    return {
        "accepted": len(served),
        "refused": len(answers) - len(served),
        "seen": sum(count for status, count in got.items() if status != 200),
        "share": sum(at >= seconds - tail for at in served) / (row.allows.rate * tail),
        "late": 100 * sum(status != 200 for status in late) / max(1, len(late)),
        "stall": longest(served, row.allows.window, seconds),
        "first_stall": longest(served, 0, row.allows.window),
        "seconds": seconds,
        "api": Counter(status for _, status in answers),
        "workers": dict(got),
    }


def longest(served, start, end):
    """The longest time in this part of the measurement in which nothing was served."""
    times = [start, *(at for at in served if start < at < end), end]
    return max(0.0, *(after - before for before, after in itertools.pairwise(times)))


def main():
    key, client, seconds, andante = sys.argv[1:]
    # A signal ends this like an error does: started processes end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    (row,) = [row for row in ROWS if row.key == key]
    with tempfile.TemporaryDirectory(prefix="andante-limiters-") as folder:
        world = World(Path(folder))
        try:
            print(json.dumps(asyncio.run(measure(row, client, float(seconds), andante, world))))
        finally:
            world.end()


if __name__ == "__main__":
    main()
