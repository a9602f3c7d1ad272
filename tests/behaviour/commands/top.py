"""Drives `andante top` in a pseudo terminal, like a user at a keyboard.

Usage: top.py ANDANTE ADMIN TOKEN-FILE, where the lanes a.test, b.test and c.test have 1, 2 and 3 requests waiting. Fails with
the last screen.
"""

import re
import signal
import sys
import termios

from terminal import Terminal

ANDANTE, ADMIN, TOKEN = sys.argv[1:]


class Top(Terminal):
    """`andante top` in a terminal."""

    def __init__(self):
        super().__init__([ANDANTE, "top", "--admin", ADMIN, "--token", TOKEN, "--interval", "100ms"])

    def screen(self):
        """The lines of the last whole screen."""
        screens = self.seen.split(b"\x1b[H")
        for screen in reversed(screens):
            if screen.endswith(b"\x1b[J") or b"\x1b[J" in screen:
                text = screen.split(b"\x1b[J")[0].decode()
                return re.sub(r"\x1b\[[0-9?]*[a-zA-Z]", "", text).split("\r\n")
        return []

    def wait(self, what, wanted):
        """The lines of the first screen that is `wanted`."""

        def shown():
            lines = self.screen()
            return lines if lines and wanted(lines) else None

        return self.until(what, shown)

    def lanes(self):
        return [line.split()[1] for line in self.screen()[2:-1] if line.strip()]

    def ended(self, what):
        super().ended(what, 0)
        tail = self.seen[-200:]
        assert tail.endswith(b"\x1b[?25h\x1b[?1049l"), f"{what}: neither the cursor nor the screen came back: {tail}"


def main():
    top = Top()
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
        top = Top()
        top.wait("the lanes", lambda lines: len(top.lanes()) == 3)
        end(top)
        top.ended(what)
    print("ok")


main()
