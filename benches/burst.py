#!/usr/bin/env python3
"""Many requests at once: 300 HTTP/2 connections with 100 streams each ask within a moment, at a limit of 1,000/s. How many
of its slots are used in each second? Arriving requests must not delay requests that have a slot.

usage: burst.py [--andante PATH] [--tls] [--within SECONDS] [--connections N] [--streams N] [--limit N] [--seconds N]

Prints how many answers came in each second after the first one, and fails if a full second has less than 99% of the
limit, or if a request was not answered with 200. Needs nginx and openssl (Debian packages) and a dist build; everything
stays on loopback.
"""
import argparse
import collections
import os
import pathlib
import resource
import selectors
import shutil
import ssl
import sys
import tempfile
import time

from instructions import ROOT, World, connect, frame, intercepted

# Of the limit, in each full second.
LEAST = 0.99


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path, default=ROOT / "target/dist/andante")
    parser.add_argument("--tls", action="store_true", help="through tunnels that are intercepted")
    parser.add_argument("--within", type=float, default=0, help="seconds in which all have asked")
    parser.add_argument("--connections", type=int, default=300)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=6, help="for which they are watched")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    if missing := [tool for tool in ("nginx", "openssl", str(args.andante)) if not shutil.which(tool)]:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: apt-get install nginx openssl; cargo build --profile dist")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder), args)
        try:
            sys.exit(report(args, *burst(args, world)))
        finally:
            world.close()


def burst(args, world):
    """Asks, and reads for some seconds. Returns when answers with 200 came, and how many others."""
    command, port = world.command("andante", "h2-h1" if args.tls else "plain")
    command[command.index("*=1000000/s")] = f"*={args.limit}/s"
    world.start(command, port)
    up = world.ports["TLS1" if args.tls else "PLAIN"]
    authority, path = f"{'localhost' if args.tls else '127.0.0.1'}:{up}".encode(), b"/v1/meta?id=1"
    # RFC 7541: indexed fields of the static table, literals for other fields.
    scheme = b"\x87" if args.tls else b"\x86"
    block = b"\x82" + scheme + b"\x04" + bytes([len(path)]) + path + b"\x01" + bytes([len(authority)]) + authority
    settings = frame(4, 0, 0, b"\x00\x04\x00\x10\x00\x00") + frame(8, 0, 0, (1 << 30).to_bytes(4, "big"))
    streams = b"".join(frame(1, 0x5, 2 * stream + 1, block) for stream in range(args.streams))
    selector, clients = selectors.DefaultSelector(), []
    for _ in range(args.connections):
        client = intercepted(port, up, "h2") if args.tls else connect(port)
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings)
        clients.append([client, b""])
    time.sleep(1)
    begun, answered, other = time.monotonic(), [], 0

    def read(patience):
        nonlocal other
        for key, _ in selector.select(patience):
            one = key.data
            try:
                while piece := one[0].recv(65536):
                    one[1] += piece
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            while len(one[1]) >= 9 and len(one[1]) >= 9 + (length := int.from_bytes(one[1][:3], "big")):
                kind, flags, payload, one[1] = one[1][3], one[1][4], one[1][9:9 + length], one[1][9 + length:]
                if kind == 4 and not flags & 1:
                    one[0].send(frame(4, 1, 0, b""))
                # 200 is the eighth field of the static table; a size of the dynamic one may come before it.
                elif kind == 1 and 0x88 in payload[:4]:
                    answered.append(time.monotonic())
                elif kind == 1:
                    other += 1

    for number, one in enumerate(clients):
        while time.monotonic() < begun + args.within * number / len(clients):
            read(0.0005)
        one[0].sendall(streams)
        one[0].setblocking(False)
        selector.register(one[0], selectors.EVENT_READ, one)
    print(f"asked {args.connections * args.streams} times within {time.monotonic() - begun:.2f} s")
    while len(answered) + other < args.connections * args.streams and time.monotonic() < begun + args.seconds:
        read(0.1)
    return answered, other


def report(args, answered, other):
    seconds = collections.Counter(int(at - answered[0]) for at in answered)
    full = [seconds[second] for second in range(min(args.seconds, args.connections * args.streams // args.limit) - 1)]
    print(" ".join(map(str, full)), f"of {args.limit} in each second; {other} not answered with 200")
    # The last one may have begun a moment before it was all watched.
    late = [count for count in full[:-1] if count < LEAST * args.limit]
    if late or other:
        print("error: not all were answered" if other else f"error: a second has less than {LEAST:.0%} of its slots")
    return 1 if late or other else 0


if __name__ == "__main__":
    main()
