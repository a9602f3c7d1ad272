"""andante, between the suites and their servers."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import certificates
from install import PLACE
from upstream import free_ports

# Intercepted; left alone, so that its tunnels are blind; and with a cache.
NAMES = ["seen.test", "blind.test", "cache.test"]

CONFIG = """
listen = ["127.0.0.1:{proxy}"]
admin = "127.0.0.1:{admin}"
upstream-ca = "{folder}/ca.pem"
data = "{folder}/andante"
{settings}

[[rule]]
host = "seen.test"
limits = ["100000/s burst 100000"]
resolve = "127.0.0.1"
https = "intercept"
allow-private = true

[[rule]]
host = "blind.test"
limits = ["100000/s burst 100000"]
resolve = "127.0.0.1"
https = "tunnel"
allow-private = true

[[rule]]
host = "cache.test"
resolve = "127.0.0.1"
retry = "off"
allow-private = true
cache = "64MiB"
"""


class World:
    """Certificates, andante, and its addresses. `settings` are further lines of its configuration."""

    def __init__(self, folder, settings=""):
        self.folder = folder
        certificates.make(folder, NAMES)
        proxy, admin = free_ports(2)
        self.port, self.proxy, self.admin = proxy, f"127.0.0.1:{proxy}", f"127.0.0.1:{admin}"
        text = CONFIG.format(folder=folder, proxy=proxy, admin=admin, settings=settings)
        (folder / "andante.toml").write_text(text)

    def __enter__(self):
        program = os.environ.get("ANDANTE") or PLACE.parent / "debug" / "andante"
        # Should this process be killed, andante goes with it.
        command = ["setpriv", "--pdeathsig", "TERM", program, "serve", "--state", "off", "--config", self.folder / "andante.toml"]
        self.log = open(self.folder / "andante.log", "w")
        self.andante = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log)
        until = time.monotonic() + 15
        while not self.ready():
            if self.andante.poll() is not None or time.monotonic() > until:
                sys.exit(f"error: andante does not start:\n{(self.folder / 'andante.log').read_text()}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        if self.andante.poll() is None:
            self.andante.kill()
            self.andante.wait()

    def end(self):
        """andante must still run, and end on request."""
        if self.andante.poll() is not None:
            sys.exit(f"error: andante has ended by itself:\n{(self.folder / 'andante.log').read_text()[-4000:]}")
        self.andante.send_signal(signal.SIGTERM)
        self.andante.wait(15)

    def ready(self):
        try:
            return bool(self.page("readyz"))
        except OSError:
            return False

    def page(self, name):
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(f"http://{self.admin}/{name}", timeout=5) as answer:
            return answer.read().decode()

    def status(self):
        return json.loads(self.page("status"))

    def metric(self, name):
        """A metric, by its labels."""
        lines = (line.rsplit(" ", 1) for line in self.page("metrics").splitlines() if not line.startswith("#"))
        return {series: float(value) for series, value in lines if series.split("{")[0] == name}

    def roots(self):
        """A file with the CA of andante and that of the servers."""
        bundle = self.folder / "roots.pem"
        bundle.write_text((self.folder / "andante" / "ca.pem").read_text() + (self.folder / "ca.pem").read_text())
        return bundle


def attempt(name, call, *arguments):
    """A case: its name, and the problem, or nothing."""
    try:
        call(*arguments)
        return name, ""
    except AssertionError as error:
        return name, str(error) or "not as it should be"
    except Exception as error:  # noqa: BLE001: whatever it was, it is this case's.
        return name, f"{type(error).__name__}: {error}"
