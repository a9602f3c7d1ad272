"""Looks at `andante batch` in a pseudo terminal: its live line, in two widths, and the terminal after Ctrl-C.

Usage: batch_terminal.py ANDANTE BATCH-ARGUMENTS..., for a batch of 200 requests at 20/s.
"""

import re
import sys

from terminal import Terminal


def main():
    batch = Terminal(sys.argv[1:])

    def line():
        """The live line as it was drawn last, as a whole."""
        drawn = re.findall(r"\x1b\[2K(andante: [^\x1b]*)\x1b", batch.seen.decode(errors="replace"))
        return drawn[-1] if drawn else ""

    whole = r"andante: [1-9][0-9]* of 200, [0-9.]+/s, [0-9.]+ s to go"
    batch.until("a line that moves", lambda: re.fullmatch(whole, line()))
    batch.resize(24, 20)
    batch.seen = b""
    short = batch.until("a line in a narrow terminal", line)
    batch.seen = b""
    short = batch.until("another one", line)
    assert len(short) <= 20, short
    batch.type("\x03")
    batch.ended("Ctrl-C", 130)
    said = batch.seen.decode(errors="replace")
    assert "run the same command again to continue" in said and "taken back at the interrupt" in said, said
    print("ok")


main()
