"""Programs of a measurement: a limiter as its authors ship it, and andante. All on an address of loopback of its own, so that
concurrent measurements share neither ports nor andante's learned facts."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time

from bring import GO, HERE, NODE, SITE_PACKAGES, VENV

# More than the slowest of them takes to start while others start too.
PATIENCE = 30


class World:
    """Programs that run until `end`."""

    def __init__(self, folder):
        self.folder = folder
        pid = os.getpid()
        self.address = f"127.{1 + (pid >> 16) % 254}.{pid >> 8 & 255}.{pid & 255}"
        self.running = []

    def limiter(self, server):
        """Starts a row's server, a pair of a kind and options, and returns its port."""
        kind, options = server
        port = self.free_port()
        getattr(self, kind)(port, **options)
        self.wait(port)
        return port

    def andante(self, program, limit, api):
        """Starts andante with `limit` for the API's port, or with nothing; returns the proxy's URL."""
        port = self.free_port()
        limits = ["--limit", f"{self.address}:{api}={limit}"] if limit else []
        self.run([program, "serve", "--state", "off", "--listen", f"{self.address}:{port}", "--admin", "off", *limits])
        self.wait(port)
        return f"http://{self.address}:{port}"

    # === kinds of servers ===

    def node(self, port, kind, options):
        command = [NODE / "node_modules" / ".bin" / "node", HERE / "servers" / "node.mjs"]
        self.run([*command, kind, json.dumps(options), self.address, port])

    def python(self, port, kind, options):
        command = [VENV / "bin" / "python", HERE / "servers" / "python.py"]
        self.run([*command, kind, json.dumps(options), self.address, port])

    def nginx(self, port, zones, limit, work):
        (self.folder / "www").mkdir()
        (self.folder / "www" / "items").write_text('{"done":true}')
        answer = f"root {self.folder}/www;"
        if work is not None:
            answer = f"proxy_pass http://{self.address}:{self.backend(work)};"
        file = self.write("nginx.conf", port, zones=zones, limit=limit, answer=answer)
        self.run(["nginx", "-c", file, "-p", self.folder, "-e", self.folder / "nginx.err"])

    def haproxy(self, port, **limit):
        self.run(["haproxy", "-db", "-f", self.write("haproxy.cfg", port, **limit)])

    def envoy(self, port, limit=None, requests=1000, work=None):
        limiter = self.write("local_rate_limit.yaml", port, **limit).read_text() if limit else ""
        answer = 'direct_response: {status: 200, body: {inline_string: "{}"}}'
        behind = port
        if work is not None:
            behind, answer = self.backend(work), "route: {cluster: backend}"
        file = self.write("envoy.yaml", port, limiter=limiter, answer=answer, behind=behind, requests=requests)
        program = SITE_PACKAGES / "envoy" / "_bin" / "envoy"
        self.run([program, "-c", file, "--concurrency", 1, "--disable-hot-restart", "--log-level", "error"])

    def varnish(self, port, **limit):
        file = self.write("varnish.vcl", port, backend=self.backend(0.0), **limit)
        # Without the jail, which changes to another user.
        command = ["varnishd", "-F", "-j", "none", "-a", f"{self.address}:{port}", "-f", file, "-n", self.folder / "varnish"]
        self.run([*command, "-s", "malloc,16m", "-p", "vcc_allow_inline_c=off"])

    def go(self, port, rate, burst):
        self.run([GO, f"{self.address}:{port}", rate, burst])

    def backend(self, work):
        return self.limiter(("python", {"kind": "backend", "options": {"work": work}}))

    def write(self, name, port, **values):
        text = (HERE / "servers" / name).read_text()
        file = self.folder / name
        file.write_text(text.format(folder=self.folder, address=self.address, port=port, **values))
        return file

    # === programs ===

    def run(self, command):
        # Should this process be killed, they go with it.
        command = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
        output = open(self.folder / "output", "a")
        # A limiter's options have all that it needs. No setting of this machine may change a limiter.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LIMITERS_NODE": str(NODE)}
        self.running.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))

    def wait(self, port):
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                return socket.create_connection((self.address, port), 1).close()
            self.check()
            if time.monotonic() > until:
                raise RuntimeError(f"nobody listens on port {port}\n{self.said()}")
            time.sleep(0.05)

    def check(self):
        """All that were started must still be there."""
        dead = [program.args[3] for program in self.running if program.poll() is not None]
        if dead:
            raise RuntimeError(f"{', '.join(dead)} ended by itself\n{self.said()}")

    def said(self):
        return (self.folder / "output").read_text()[-4000:]

    def end(self):
        for program in self.running:
            program.send_signal(signal.SIGTERM)
        for program in self.running:
            try:
                program.wait(3)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def free_port(self):
        with socket.socket() as one:
            one.bind((self.address, 0))
            return one.getsockname()[1]
