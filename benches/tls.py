#!/usr/bin/env python3
"""TLS on both sides, andante beside HAProxy in one run: requests per second, latency and CPU per request of kept connections,
new connections per second, and megabytes per second of one large body through a tunnel.

andante is asked by CONNECT and intercepts, HAProxy is the server that the client asks; the tunnel is one that neither looks
into (HAProxy's mode tcp), to an upstream in the clear. The proxy has core 0; load and upstream share core 1. Machines are
noisy: compare the ratios of one run, which the last table gives against HAProxy.

usage: benches/tls.py [--seconds S] [--rounds R] [--connections C] [--andante PATH] [--oha PATH]

Needs nginx, haproxy, curl, openssl, taskset (Debian packages), oha (cargo install oha) and a dist build; everything stays
on loopback.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from instructions import ROOT, World
from peers import HAPROXY_HEAD
from side_by_side import beside_haproxy, cpu_seconds, family, free_port

COLUMNS = ("requests/s", "p50 µs", "p99 µs", "CPU µs/request", "new/s", "tunnel MB/s", "not 200")
LARGE = 1 << 31

SERVER = """
daemon off; worker_processes 1; worker_cpu_affinity 10; pid DIR/large.pid; error_log DIR/large.err;
events { worker_connections 64; }
http { access_log off; sendfile on; server { listen 127.0.0.1:PORT; location / { root DIR/www; } } }
"""

TUNNEL = HAPROXY_HEAD.partition("defaults")[0] + """
defaults
  mode tcp
  timeout connect 5s
  timeout client 300s
  timeout server 300s
frontend tunnel
  bind 127.0.0.1:PORT
  default_backend large
backend large
  server s1 127.0.0.1:UPSTREAM
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--andante", type=pathlib.Path, default=ROOT / "target/dist/andante")
    parser.add_argument("--oha", default="oha")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    tools = ("nginx", "haproxy", "curl", "openssl", "taskset", args.oha, str(args.andante))
    if missing := [tool for tool in tools if not shutil.which(tool)]:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: apt-get install nginx haproxy curl openssl; cargo install oha; "
                 "cargo build --profile dist")
    # New processes have core 1; the proxies are moved.
    os.sched_setaffinity(0, {1})
    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder), args)
        try:
            report(measure(world, args))
        finally:
            world.close()


def measure(world, args):
    """A list of rows for each proxy."""
    def start(command, port):
        process = world.start(["taskset", "-c", "0", *command], port)
        return process.pid

    large, folder = free_port(), world.folder
    (folder / "www").mkdir()
    with open(folder / "www/large", "wb") as file:
        file.truncate(LARGE)
    for path in (folder / "www", folder / "www/large"):
        path.chmod(0o755)
    (folder / "large.conf").write_text(SERVER.replace("DIR", str(folder)).replace("PORT", str(large)))
    world.start(["nginx", "-c", str(folder / "large.conf")], large)

    up, targets = world.ports["TLS1"], {}
    command, port = world.command("haproxy", "h1-h1")
    tunnel = free_port()
    (folder / "tunnel.cfg").write_text(TUNNEL.replace("UPSTREAM", str(large)).replace("PORT", str(tunnel)))
    start(["haproxy", "-db", "-f", str(folder / "tunnel.cfg")], tunnel)
    targets["haproxy"] = (start(command, port), [f"https://localhost:{port}/"], [f"http://127.0.0.1:{tunnel}/large"])
    command, port = world.command("andante", "h1-h1")
    through = f"http://127.0.0.1:{port}"
    targets["andante"] = (start(command, port), ["-x", through, f"https://localhost:{up}/"],
                          ["-p", "-x", through, f"http://127.0.0.1:{large}/large"])

    rows = {name: [] for name in targets}
    for _ in range(args.rounds):
        for name, (pid, asked, tunnelled) in targets.items():
            before = cpu_seconds(family(pid))
            kept = load(args, *asked)
            cpu = (cpu_seconds(family(pid)) - before) * 1e6 / max(kept["requests"], 1)
            new = load(args, "--disable-keepalive", *asked)
            rows[name].append((kept["rate"], kept["p50"], kept["p99"], cpu, new["rate"], download(tunnelled),
                               kept["other"] + new["other"]))
    return rows


def load(args, *more):
    command = [args.oha, "-z", f"{args.seconds}s", "-c", str(args.connections), "--no-tui", "--insecure", "--output-format",
               "json", *more]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    codes, latency, total = found["statusCodeDistribution"], found["latencyPercentiles"], found["summary"]["total"]
    good = codes.get("200", 0)
    return {"requests": good, "rate": good / total, "p50": latency["p50"] * 1e6, "p99": latency["p99"] * 1e6,
            "other": sum(codes.values()) - good}


def download(arguments):
    """Megabytes per second of the large body."""
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{size_download} %{speed_download}", "--noproxy", "", *arguments]
    size, speed = subprocess.run(command, capture_output=True, text=True).stdout.split()
    if float(size) != LARGE:
        sys.exit(f"error: {size} bytes of {LARGE} came: {' '.join(command)}")
    return float(speed) / 1e6


def report(rows):
    medians = {name: [statistics.median(column) for column in zip(*these)] for name, these in rows.items()}
    print(f"{'':10}" + "".join(f"{column:>16}" for column in COLUMNS))
    for name, row in medians.items():
        print(f"{name:10}" + "".join(f"{value:16.1f}" for value in row))
    beside_haproxy(medians, 6)


if __name__ == "__main__":
    main()
