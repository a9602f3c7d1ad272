"""Drives `andante top` in a pseudo terminal, as somebody at a keyboard would.

Usage: top.py ANDANTE ADMIN TOKEN-FILE, where the lanes a.test, b.test and c.test have 1, 2 and 3 requests waiting. Fails with
the last screen that was seen.
"""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

ANDANTE, ADMIN, TOKEN = sys.argv[1:]
PATIENCE = 10.0


class Terminal:
    """A pseudo terminal with `andante top` in it."""

    def __init__(self):
        self.ours, self.theirs = os.openpty()
        self.seen = b""
        self.resize(24, 100)
        self.before = termios.tcgetattr(self.theirs)

        def take():
            os.setsid()
            fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)

        # It sets the terminal up before it shows anything.
        self.child = subprocess.Popen(
            [ANDANTE, "top", "--admin", ADMIN, "--token", TOKEN, "--interval", "100ms"],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=take,
        )

    def resize(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.ours, keys.encode())

    def read(self):
        if select.select([self.ours], [], [], 0.05)[0]:
            try:
                self.seen += os.read(self.ours, 65536)
            except OSError:  # the last of its ends is closed
                pass

    def screen(self):
        """The lines of the last whole screen."""
        screens = self.seen.split(b"\x1b[H")
        for screen in reversed(screens):
            if screen.endswith(b"\x1b[J") or b"\x1b[J" in screen:
                text = screen.split(b"\x1b[J")[0].decode()
                return re.sub(r"\x1b\[[0-9?]*[a-zA-Z]", "", text).split("\r\n")
        return []

    def wait(self, what, wanted):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.read()
            lines = self.screen()
            if lines and wanted(lines):
                return lines
        sys.exit(f"never came: {what}\n" + "\n".join(self.screen()))

    def lanes(self):
        return [line.split()[1] for line in self.screen()[2:-1] if line.strip()]

    def ended(self, what):
        """Waits for its end, after which the terminal is as it was."""
        until = time.monotonic() + PATIENCE
        while self.child.poll() is None and time.monotonic() < until:
            self.read()
        code = self.child.poll()
        assert code == 0, f"{what}: {code}"
        self.read()
        tail = self.seen[-200:]
        assert tail.endswith(b"\x1b[?25h\x1b[?1049l"), f"{what}: neither the cursor nor the screen came back: {tail}"
        assert termios.tcgetattr(self.theirs) == self.before, f"{what}: the terminal is not as it was"


def main():
    top = Terminal()
    top.wait("the lanes where most wait first", lambda lines: top.lanes() == ["c.test", "b.test", "a.test"])
    assert termios.tcgetattr(top.theirs) != top.before, "keys would be echoed"

    top.resize(5, 30)
    lines = top.wait("a small screen", lambda lines: len(lines) == 5)
    assert all(len(line) <= 30 for line in lines), lines
    top.resize(24, 100)
    lines = top.wait("a larger one", lambda lines: len(lines) == 24)
    assert "6 waiting" in lines[0], lines[0]

    top.type("sssss")
    top.wait("lanes by their names", lambda lines: "by lane" in lines[-1] and top.lanes() == ["a.test", "b.test", "c.test"])
    top.type("/b.t")
    top.wait("the filter", lambda lines: "filter: b.t" in lines[-1] and top.lanes() == ["b.test"])
    top.type("\r")
    top.wait("its end", lambda lines: 'with "b.t"' in lines[-1])

    top.type("\r")
    top.wait("the lane, opened", lambda lines: any("limit" in line and "[#" in line and "1/" in line for line in lines))
    top.type("p")
    top.wait("a question", lambda lines: "pause b.test? y or n" in lines[-1])
    top.type("n")
    top.wait("no change", lambda lines: "nothing was changed" in lines[-1])
    top.type("p")
    top.wait("the question again", lambda lines: "pause b.test? y or n" in lines[-1])
    top.type("y")
    top.wait("the pause", lambda lines: any("b.test" in line and "operator" in line for line in lines))
    top.type("\x1b[A\x1b")
    top.wait("all lanes", lambda lines: top.lanes() == ["a.test", "b.test", "c.test"])
    top.type("\x03")
    top.ended("Ctrl-C")

    for end, what in ((lambda top: top.type("q"), "q"), (lambda top: top.child.send_signal(signal.SIGTERM), "SIGTERM")):
        top = Terminal()
        top.wait("the lanes", lambda lines: len(top.lanes()) == 3)
        end(top)
        top.ended(what)
    print("ok")


main()
