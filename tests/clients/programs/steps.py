"""Requests of every Python client, and the required answers. The base URL is the program's argument."""

import sys
from typing import NamedTuple, Optional

BASE = sys.argv[1]
UPLOAD = b"upload\n" * 20_000
LARGE = b"andante\n" * (512 * 1024)
EVENTS = b"".join(b"id: %d\ndata: event %d\n\n" % (n, n) for n in range(20))


class Step(NamedTuple):
    method: str
    path: str
    body: Optional[bytes]
    answer: bytes

    @property
    def url(self):
        return BASE + self.path

    def check(self, status, answer):
        if (status, answer) != (200, self.answer):
            sys.exit(f"{self.method} {self.url}: got {status} {answer[:200]}, expected 200 {self.answer[:200]}")


STEPS = [
    *(Step("GET", f"/json?n={n}", None, b'{"n":"%d"}' % n) for n in range(5)),
    Step("POST", "/upload", UPLOAD, b'{"length":"%d"}' % len(UPLOAD)),
    Step("GET", "/events", None, EVENTS),
    Step("GET", "/large", None, LARGE),
]


def done(protocols):
    """All answers were right, and came by these protocols."""
    print("spoke", *sorted(set(protocols)))
