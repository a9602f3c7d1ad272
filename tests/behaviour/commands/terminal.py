"""A program in a pseudo terminal, driven like by a user at a keyboard."""

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time

PATIENCE = 10.0


class Terminal:
    """A pseudo terminal with a program in it."""

    def __init__(self, command):
        self.ours, self.theirs = os.openpty()
        self.seen = b""
        self.resize(24, 100)
        self.before = termios.tcgetattr(self.theirs)

        def take():
            os.setsid()
            fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)

        # andante sets the terminal up before it shows anything.
        self.child = subprocess.Popen(
            command,
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

    def until(self, what, wanted):
        """Reads until `wanted` gives something."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.read()
            if found := wanted():
                return found
        sys.exit(f"never came: {what}\n{self.seen.decode(errors='replace')[-3000:]}")

    def ended(self, what, code):
        """Waits for its end, after which the terminal is as it was."""
        self.until(f"the end by {what}", lambda: self.child.poll() is not None)
        assert self.child.returncode == code, f"{what}: {self.child.returncode}"
        self.read()
        assert termios.tcgetattr(self.theirs) == self.before, f"{what}: the terminal is not as it was"
