#!/usr/bin/env python3
"""Memory of a waiting request: resident memory of andante with 10,000 HTTP/1 connections that wait, and with
10,000 HTTP/2 streams on 100 connections, less the memory before, divided by their number.

usage: waiting.py [--andante PATH] [--requests N]

Needs a dist build; everything stays on loopback.
"""
import argparse
import contextlib
import pathlib
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from instructions import ROOT, frame, wait_for

# Fields of a client's request; HTTP/2 gets the same.
FIELDS = {"user-agent": "python-requests/2.32.3", "accept-encoding": "gzip, deflate", "accept": "*/*",
          "authorization": "Bearer 0123456789abcdef0123456789abcdef"}
STREAMS = 100
# The first request leaves at once, and the next in an hour: an upstream that never answers suffices.
CONFIG = """
listen = ["127.0.0.1:{port}"]
admin = "127.0.0.1:{admin}"
threads = 1
[[rule]]
host = "127.0.0.1:{up}"
limits = ["1/h"]
max-wait = "20000h"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path, default=ROOT / "target/dist/andante")
    parser.add_argument("--requests", type=int, default=10_000)
    args = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    for name, connections, ask in (("HTTP/1 connection", args.requests, http1), ("HTTP/2 stream", args.requests // STREAMS, http2)):
        print(f"a waiting {name}: {measure(args, connections, ask) / args.requests / 1024:.2f} KiB")


def measure(args, connections, ask):
    """Resident bytes of all that wait."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        up, port, admin = (listener.getsockname()[1] for listener in listeners)
        for listener in listeners[1:]:
            listener.close()
        config = stack.enter_context(tempfile.NamedTemporaryFile("w", suffix=".toml"))
        config.write(CONFIG.format(up=up, port=port, admin=admin))
        config.flush()
        process = subprocess.Popen([str(args.andante), "serve", "--state", "off", "--config", config.name],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            first = [ask(port, up) for _ in range(2)]
            time.sleep(1)
            before, already = resident(process.pid), waiting(admin)
            clients = [ask(port, up) for _ in range(connections)]
            until = time.monotonic() + 60
            while (more := waiting(admin) - already) < args.requests:
                if time.monotonic() > until:
                    sys.exit(f"{more} of {args.requests} wait: the others were answered, or have not arrived")
                time.sleep(0.5)
            after = resident(process.pid)
            for client in (*first, *clients):
                client.close()
            return after - before
        finally:
            process.terminate()
            process.wait()


def waiting(admin):
    """Number of waiting requests, by andante's own count."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("andante_waiting{"))


def http1(port, up):
    client = socket.create_connection(("127.0.0.1", port), 30)
    fields = "".join(f"{name}: {value}\r\n" for name, value in FIELDS.items())
    client.sendall(f"GET http://127.0.0.1:{up}/v1/meta?id=1 HTTP/1.1\r\nHost: 127.0.0.1:{up}\r\n{fields}\r\n".encode())
    return client


def http2(port, up):
    """A connection with all its streams."""
    client = socket.create_connection(("127.0.0.1", port), 30)

    def literal(name, value):
        return bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode()

    pseudo = b"\x82\x86" + literal(":path", "/v1/meta?id=1") + literal(":authority", f"127.0.0.1:{up}")
    block = pseudo + b"".join(literal(name, value) for name, value in FIELDS.items())
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(4, 1, 0, b"")
    client.sendall(hello + b"".join(frame(1, 0x5, 2 * stream + 1, block) for stream in range(STREAMS)))
    return client


def resident(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) * 1024


if __name__ == "__main__":
    sys.exit(main())
