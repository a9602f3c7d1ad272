#!/usr/bin/env python3
"""andante beside nginx and HAProxy in one run: requests per second, latency, CPU per request, with no limit reached.

The proxy has core 0; the load generator and the upstream share core 1. Machines are noisy: compare the ratios of one
run, which the last table gives against HAProxy. Needs nginx, haproxy, wrk and taskset (Debian packages) and a dist
build; everything stays on loopback.

usage: benches/side_by_side.py [--seconds S] [--rounds R] [--connections C] [--andante PATH]
       benches/side_by_side.py --threads 1,2,4 …     andante alone, with so many threads, beside as many times the first

With --threads, N threads have the first N cores; the others have the rest. Where there are fewer than N + 1, they share
them: then CPU per request tells what the threads cost each other, and requests per second do not.
"""
import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from peers import BODY, HAPROXY_HEAD

ROOT = pathlib.Path(__file__).resolve().parent.parent

UPSTREAM = """
worker_processes 1; worker_cpu_affinity 10; daemon off; pid DIR/upstream.pid; error_log DIR/upstream.err;
events { worker_connections 8192; }
http { access_log off; keepalive_requests 10000000; keepalive_timeout 600s;
  server { listen 127.0.0.1:PORT backlog=4096; location / { default_type application/json; return 200 '%s'; } } }
""" % BODY

NGINX = """
worker_processes 1; worker_cpu_affinity 01; daemon off; pid DIR/nginx.pid; error_log DIR/nginx.err;
events { worker_connections 8192; }
http { access_log off; keepalive_requests 10000000; limit_req_zone $host zone=paced:10m rate=100000r/s;
  upstream up { server 127.0.0.1:UPSTREAM; keepalive 512; keepalive_requests 10000000; }
  server { listen 127.0.0.1:PORT backlog=4096; location / { limit_req zone=paced burst=100000; proxy_pass http://up;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host; } } }
"""

HAPROXY = HAPROXY_HEAD + """
frontend fe
  bind 127.0.0.1:PORT
  http-request track-sc0 req.hdr(host) table st
  default_backend up
backend up
  server s1 127.0.0.1:UPSTREAM maxconn 2000 pool-max-conn 1000
"""

# wrk speaks to a forward proxy: absolute-form target.
WRK = """
request = function() return wrk.format("GET", "http://127.0.0.1:UPSTREAM/v1/meta?id=1", {["Host"]="127.0.0.1:UPSTREAM"}) end
done = function(s, l, r)
  io.write(string.format("RESULT %.0f %d %d %d %d\\n", s.requests / (s.duration / 1e6), l:percentile(50), l:percentile(99),
    s.errors.connect + s.errors.read + s.errors.write + s.errors.timeout + s.errors.status, s.requests))
end
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, name):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"error: {name} does not listen on port {port}\nhint: look at its error log above")


def family(pid):
    """`pid` and its children: nginx works in a child."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    return [pid] + [int(child) for child in children]


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--threads", type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--andante", default=str(ROOT / "target/dist/andante"))
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin"
    peers = () if args.threads else ("haproxy",)
    missing = [tool for tool in ("nginx", *peers, "wrk", "taskset", args.andante) if not shutil.which(tool)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: apt-get install nginx haproxy wrk; cargo build --profile dist")

    with tempfile.TemporaryDirectory() as folder:
        run(args, pathlib.Path(folder))


def run(args, folder):
    folder.chmod(0o755)
    names = [f"andante-{count}" for count in args.threads] if args.threads else ["nginx", "haproxy", "andante"]
    ports = {name: free_port() for name in ("upstream", *names)}
    last = os.cpu_count() - 1
    # The proxy's cores, and those of the others.
    cores = {name: f"0-{min(int(name.rpartition('-')[2]) - 1, last)}" if args.threads else "0" for name in names}
    others = {name: "1" if not args.threads else rest(core, last) for name, core in cores.items()}

    def write(name, text):
        text = text.replace("DIR", str(folder)).replace("UPSTREAM", str(ports["upstream"]))
        path = folder / name
        path.write_text(text.replace("PORT", str(ports.get(name.split(".")[0], 0))))
        return str(path)

    def command(name):
        if name == "nginx":
            return ["nginx", "-c", write("nginx.conf", NGINX)]
        if name == "haproxy":
            return ["haproxy", "-db", "-f", write("haproxy.cfg", HAPROXY)]
        threads = ["--threads", name.rpartition("-")[2]] if args.threads else []
        return [args.andante, "serve", "--state", "off", "--listen", f"127.0.0.1:{ports[name]}", "--admin", "off", "--limit",
                "*=1000000/s", *threads]

    upstream = UPSTREAM if not args.threads else UPSTREAM.replace("worker_cpu_affinity 10; ", "")
    commands = {"upstream": ["taskset", "-c", next(iter(others.values())), "nginx", "-c", write("upstream.conf", upstream)]}
    commands |= {name: ["taskset", "-c", cores[name], *command(name)] for name in names}
    script = write("forward.lua", WRK)
    running = {}
    try:
        for name, command in commands.items():
            running[name] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            wait_for(ports[name], name)
        results = {name: [] for name in commands if name != "upstream"}
        for _ in range(args.rounds):
            for name, rows in results.items():
                pids = family(running[name].pid)
                before = cpu_seconds(pids)
                wrk = ["taskset", "-c", others[name], "wrk", "-t1", f"-c{args.connections}", f"-d{args.seconds}s", "-s", script]
                output = subprocess.run([*wrk, f"http://127.0.0.1:{ports[name]}"], capture_output=True, text=True).stdout
                found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", output)
                if not found:
                    sys.exit(f"error: wrk gave no result for {name}:\n{output}")
                rps, p50, p99, errors, requests = map(int, found.groups())
                rows.append((rps, p50, p99, (cpu_seconds(pids) - before) * 1e6 / max(requests, 1), errors))
        report(results, args.threads)
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(10)


def rest(cores, last):
    """The cores that are not of these, or all of them if there are no others."""
    first = int(cores.rpartition("-")[2]) + 1
    return f"{first}-{last}" if first <= last else f"0-{last}"


def report(results, threads):
    columns = ("requests/s", "p50 µs", "p99 µs", "CPU µs/request", "errors")
    medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in results.items()}
    print(f"{'':10}" + "".join(f"{column:>16}" for column in columns))
    for name, row in medians.items():
        print(f"{name:10}" + "".join(f"{value:16.1f}" for value in row))
    if threads:
        print("\nrequests/s beside as many times those of one thread, and CPU per request beside that of one")
        one = next(iter(medians.values()))
        for count, (name, row) in zip(threads, medians.items()):
            print(f"{name:10}{row[0] / (one[0] * count / threads[0]):16.3f}{row[3] / one[3]:16.3f}")
        return
    beside_haproxy(medians, 4)


def beside_haproxy(medians, columns):
    """The first so many columns of each row."""
    print("\nas a ratio to HAProxy")
    for name, row in medians.items():
        ratios = (value / base for value, base in zip(row[:columns], medians["haproxy"]))
        print(f"{name:10}" + "".join(f"{ratio:16.3f}" for ratio in ratios))


if __name__ == "__main__":
    main()
