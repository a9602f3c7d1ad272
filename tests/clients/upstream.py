"""The servers that clients ask for: nginx, an echo by WebSocket, one by gRPC. All of them on loopback."""

import signal
import socket
import subprocess
import time
from typing import NamedTuple

import certificates
import content
from install import HERE, VENV, search_path


class Seen(NamedTuple):
    """A request as an upstream saw it."""

    protocol: str
    connection: str
    method: str
    path: str


class Upstream:
    """Servers that run until `end`; `ports` has them by the names of `matrix.py`."""

    def __init__(self, folder):
        self.folder = folder
        self.running = []
        self.ports = dict(zip(["plain", "tls", "h2", "upload", "ws", "wss", "grpc", "grpcs"], free_ports(8)))
        certificates.make(folder)
        self.write_nginx(content.make(folder / "www"))
        # A log without any line yet is an empty log.
        self.logs = [folder / f"{name}.log" for name in ["nginx", "websocket", "grpc_echo"]]
        for log in self.logs:
            log.touch()
        self.read = {log: 0 for log in self.logs}

    def start(self):
        self.run(["nginx", "-c", self.folder / "nginx.conf", "-p", self.folder, "-e", self.folder / "nginx.err"])
        for name, plain, tls in [("websocket", "ws", "wss"), ("grpc_echo", "grpc", "grpcs")]:
            program = [VENV / "bin" / "python", HERE / "servers" / f"{name}.py"]
            files = [self.folder / file for file in ["leaf.pem", "leaf.key", f"{name}.log"]]
            self.run([*program, self.ports[plain], self.ports[tls], *files])
        for port in self.ports.values():
            self.wait(port)

    def run(self, command):
        # Should this process be killed, they go with it.
        command = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
        output = open(self.folder / "servers.err", "a")
        environment = {"PATH": search_path(), "HOME": str(self.folder)}
        self.running.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))

    def wait(self, port):
        until = time.monotonic() + 15
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                dead = [server.args[3] for server in self.running if server.poll() is not None]
                if dead or time.monotonic() > until:
                    said = (self.folder / "servers.err").read_text()
                    raise RuntimeError(f"{dead or 'a server'}: nobody listens on port {port}\n{said}") from None
                time.sleep(0.02)

    def end(self):
        for server in self.running:
            server.send_signal(signal.SIGTERM)
        for server in self.running:
            try:
                server.wait(2)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()

    def seen(self):
        """The requests since the last call."""
        lines = []
        for log in self.logs:
            with open(log) as file:
                file.seek(self.read[log])
                lines += file.read().splitlines()
                self.read[log] = file.tell()
        # Looking whether a server is there leaves lines without a request.
        return [Seen(*line.split(" ", 3)) for line in lines if line.startswith("HTTP/")]

    def write_nginx(self, answers):
        values = {"folder": self.folder, **answers, **self.ports}
        for name in ["nginx.conf", "locations.conf"]:
            text = (HERE / "servers" / name).read_text()
            (self.folder / name).write_text(text.format(**values))


def free_ports(count):
    """Ports without a listener. All are taken at once, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
