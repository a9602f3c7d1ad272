#!/usr/bin/env python3
"""Cost of one request in units that do not drift with the machine: instructions, system calls, allocations. For andante,
HAProxy, nginx and a bare hyper forwarder (the floor of andante's stack) in one run, in each way that a request can come:

  plain     HTTP/1 in the clear, target in absolute form
  gateway   HTTP/1 in the clear, the API named in the path
  h1-h1     TLS on both sides, HTTP/1 (andante is asked by CONNECT and intercepts; HAProxy and nginx are the server)
  h2-h1     the same, HTTP/2 from the client
  h2-h2     the same, HTTP/2 on both sides

Hardware counters are read with perf where the machine has them, and give kernel instructions and cycles, too. Elsewhere
valgrind counts, which sees user space only. Allocations are counted by valgrind alone, and only in programs that have
their symbols.

usage: instructions.py [--andante PATH] [--only andante,haproxy] [--ways plain,h2-h1] [--requests N] [--perf]
       instructions.py --check [--andante PATH]     compare plain requests with the figure in instructions.json
       instructions.py --profile FILE …             also keep what valgrind has written, for callgrind_annotate

Needs valgrind or linux-perf, nginx, haproxy, openssl (Debian packages). Everything stays on loopback. A build to look at:

  CARGO_PROFILE_DIST_STRIP=false cargo build --profile dist --bin andante --example forwarder
"""
import argparse
import json
import os
import pathlib
import re
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

from peers import BODY, HAPROXY_HEAD

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMMITTED = pathlib.Path(__file__).resolve().with_suffix(".json")
# Growth of instructions above which a commit has to give a reason.
TOLERANCE = 0.03
# Number of counts for that comparison; the lowest count is used.
ROUNDS = 3
# Uncounted requests, which make connections and one-time allocations; and counted requests.
WARM, REQUESTS = 500, 2000
# HTTP/1 connections; HTTP/2 has an eighth of them, with eight streams each.
CONNECTIONS, STREAMS = 32, 8
WAYS = ("plain", "gateway", "h1-h1", "h2-h1", "h2-h2")
# Under valgrind each of them is a system call, otherwise none is.
CLOCK = re.compile(r"^(clock_gettime|__gettimeofday_syscall|time_syscall)(@|$)")
ALLOCATION = re.compile(r"^(_rjem_|je_)?(malloc|calloc|realloc|posix_memalign|aligned_alloc|memalign|mallocx|rallocx)$")

UPSTREAM = """
daemon off; worker_processes 1; pid DIR/upstream.pid; error_log DIR/upstream.err;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 10000000; keepalive_timeout 600s;
  ssl_certificate DIR/leaf.pem; ssl_certificate_key DIR/leaf.key; ssl_protocols TLSv1.3;
  http2_max_requests 10000000;
  server { listen 127.0.0.1:PLAIN backlog=4096; location / { default_type application/json; return 200 '%s'; } }
  server { listen 127.0.0.1:TLS1 ssl backlog=4096; location / { default_type application/json; return 200 '%s'; } }
  server { listen 127.0.0.1:TLS2 ssl http2 backlog=4096; location / { default_type application/json; return 200 '%s'; } }
}
""" % (BODY, BODY, BODY)

NGINX = """
daemon off; master_process off; pid DIR/nginx.pid; error_log DIR/nginx.err;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 10000000; http2_max_requests 10000000; proxy_http_version 1.1;
  limit_req_zone $host zone=paced:10m rate=100000r/s;
  ssl_certificate DIR/leaf.pem; ssl_certificate_key DIR/leaf.key; ssl_protocols TLSv1.3;
  client_body_temp_path DIR/nginx-body; proxy_temp_path DIR/nginx-proxy; fastcgi_temp_path DIR/nginx-fastcgi;
  uwsgi_temp_path DIR/nginx-uwsgi; scgi_temp_path DIR/nginx-scgi;
  upstream plain { server 127.0.0.1:PLAIN; keepalive 512; keepalive_requests 10000000; }
  upstream tls { server 127.0.0.1:TLS1; keepalive 512; keepalive_requests 10000000; }
  server { listen 127.0.0.1:NGINX_PLAIN backlog=4096; location / { limit_req zone=paced burst=100000; proxy_pass http://plain;
    proxy_set_header Connection ""; proxy_set_header Host $host; } }
  server { listen 127.0.0.1:NGINX_TLS ssl http2 backlog=4096; location / { limit_req zone=paced burst=100000;
    proxy_pass https://tls; proxy_ssl_verify on; proxy_ssl_trusted_certificate DIR/ca.pem; proxy_ssl_name localhost;
    proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3;
    proxy_set_header Connection ""; proxy_set_header Host $host; } }
}
"""

HAPROXY = HAPROXY_HEAD + """
frontend plain
  bind 127.0.0.1:HAPROXY_PLAIN
  http-request track-sc0 req.hdr(host) table st
  default_backend plain
frontend tls1
  bind 127.0.0.1:HAPROXY_TLS1 ssl crt DIR/leaf.both alpn h2,http/1.1 ssl-min-ver TLSv1.3
  http-request track-sc0 req.hdr(host) table st
  default_backend tls1
frontend tls2
  bind 127.0.0.1:HAPROXY_TLS2 ssl crt DIR/leaf.both alpn h2,http/1.1 ssl-min-ver TLSv1.3
  http-request track-sc0 req.hdr(host) table st
  default_backend tls2
backend plain
  server s1 127.0.0.1:PLAIN maxconn 2000 pool-max-conn 1000
backend tls1
  server s1 127.0.0.1:TLS1 ssl verify required ca-file DIR/ca.pem sni str(localhost) maxconn 2000 pool-max-conn 1000
backend tls2
  server s1 127.0.0.1:TLS2 ssl verify required ca-file DIR/ca.pem sni str(localhost) alpn h2 maxconn 2000 pool-max-conn 1000
"""

PORTS = ("PLAIN TLS1 TLS2 NGINX_PLAIN NGINX_TLS HAPROXY_PLAIN HAPROXY_TLS1 HAPROXY_TLS2 FORWARDER ANDANTE").split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path)
    parser.add_argument("--forwarder", type=pathlib.Path, default=ROOT / "target/dist/examples/forwarder")
    parser.add_argument("--only", default="forwarder,haproxy,nginx,andante")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--perf", action="store_true", help="fail where the machine has no counters")
    parser.add_argument("--valgrind", action="store_true", help="count with valgrind even where it has them")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", type=pathlib.Path)
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    args.andante = args.andante or ROOT / ("target/debug/andante" if args.check else "target/dist/andante")
    if args.check:
        args.only, args.ways, args.valgrind = "andante", "plain", True
    names, ways = args.only.split(","), args.ways.split(",")
    counts = Perf if not args.valgrind and (args.perf or Perf.is_there()) else Callgrind
    tools = {"nginx", "openssl", counts.TOOL, *(name for name in names if name == "haproxy")}
    tools |= {str(getattr(args, name)) for name in names if hasattr(args, name)}
    missing = sorted(tool for tool in tools if not shutil.which(tool))
    if missing:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: apt-get install valgrind nginx haproxy openssl; the build "
                 "is named in --help")
    with tempfile.TemporaryDirectory() as folder:
        world = World(pathlib.Path(folder), args)
        try:
            if args.check:
                sys.exit(check(world, counts))
            table(world, counts, names, ways)
        finally:
            world.close()


def check(world, counts):
    """Compares plain requests with the committed figure."""
    committed = json.loads(COMMITTED.read_text())["plain, dev profile"]
    # Other work of the machine adds instructions, since the proxy then wakes up more often. Such work never removes
    # any.
    found = min(counts.measure(world, "andante", "plain")["user instructions"] for _ in range(ROUNDS))
    growth = found / committed - 1
    print(f"user instructions of a plain request, dev profile: {found:,.0f}, {growth:+.1%} of the committed {committed:,}")
    if growth > TOLERANCE:
        print(f"error: that is more than {TOLERANCE:.0%}\nhint: benches/instructions.py --check --profile FILE, then "
              f"callgrind_annotate FILE, says where they went; if they are worth it, write {round(found, -2):.0f} to "
              f"{COMMITTED.relative_to(ROOT)} and say why", file=sys.stderr)
        return 1
    if growth < -TOLERANCE:
        print(f"note: write {round(found, -2):.0f} to {COMMITTED.relative_to(ROOT)}, so that they stay gone")
    return 0


def table(world, counts, names, ways):
    print(f"per request, counted by {counts.TOOL}, {world.args.requests} requests\n")
    columns = counts.COLUMNS
    print(f"| {'way':8} | {'proxy':10} |" + "".join(f" {column} |" for column in columns))
    print("|---|---|" + "---|" * len(columns))
    for way in ways:
        for name in names:
            if not world.can(name, way):
                continue
            row = counts.measure(world, name, way)
            cells = ("–" if row.get(column) is None else f"{row[column]:,.{0 if row[column] >= 100 else 1}f}" for column in columns)
            print(f"| {way:8} | {name:10} |" + "".join(f" {cell} |" for cell in cells), flush=True)


class World:
    """The upstream, the configurations, and how each proxy is asked."""

    def __init__(self, folder, args):
        self.folder, self.args, self.running = folder, args, []
        folder.chmod(0o755)
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
        self.ports = {name: listener.getsockname()[1] for name, listener in zip(PORTS, listeners)}
        for listener in listeners:
            listener.close()
        certificates(folder)
        self.start(["nginx", "-c", self.write("upstream.conf", UPSTREAM)], self.ports["PLAIN"])

    def write(self, name, text):
        # The longer names first: one may be the end of another.
        for port in sorted(self.ports, key=len, reverse=True):
            text = text.replace(f":{port}", f":{self.ports[port]}")
        (self.folder / name).write_text(text.replace("DIR", str(self.folder)))
        return str(self.folder / name)

    def can(self, name, way):
        return name == "andante" or way == "plain" or name == "haproxy" and way != "gateway" or \
            name == "nginx" and way in ("h1-h1", "h2-h1")

    def command(self, name, way):
        """The command of a proxy, and the port to ask."""
        ports, up = self.ports, self.upstream(way)
        if name == "nginx":
            return ["nginx", "-c", self.write("nginx.conf", NGINX)], ports["NGINX_PLAIN" if way == "plain" else "NGINX_TLS"]
        if name == "haproxy":
            port = {"PLAIN": "HAPROXY_PLAIN", "TLS1": "HAPROXY_TLS1", "TLS2": "HAPROXY_TLS2"}[up]
            return ["haproxy", "-db", "-f", self.write("haproxy.cfg", HAPROXY)], ports[port]
        if name == "forwarder":
            port = ports["FORWARDER"]
            return [str(self.args.forwarder), f"127.0.0.1:{port}", f"127.0.0.1:{ports['PLAIN']}"], port
        state = self.folder / "state"
        port = ports["ANDANTE"]
        return [str(self.args.andante), "serve", "--state", "off", "--listen", f"127.0.0.1:{port}", "--admin", "off", "--threads", "1",
                "--limit", "*=1000000/s", "--intercept", "localhost", "--upstream-ca", str(self.folder / "ca.pem"),
                "--data", str(state)], port

    def upstream(self, way):
        return {"plain": "PLAIN", "gateway": "PLAIN", "h2-h2": "TLS2"}.get(way, "TLS1")

    def client(self, name, way, port):
        """A function that makes a connection to the proxy, ready for requests."""
        up = self.ports[self.upstream(way)]
        if way == "plain":
            return lambda: Http1(connect(port), f"GET http://127.0.0.1:{up}/v1/meta?id=1 HTTP/1.1\r\nHost: 127.0.0.1:{up}\r\n\r\n")
        if way == "gateway":
            return lambda: Http1(connect(port), f"GET /http://127.0.0.1:{up}/v1/meta?id=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")
        alpn = "h2" if way.startswith("h2") else "http/1.1"

        def make():
            stream = intercepted(port, up, alpn) if name == "andante" else secured(connect(port), alpn)
            if alpn == "h2":
                return Http2(stream, f"localhost:{up}")
            return Http1(stream, f"GET /v1/meta?id=1 HTTP/1.1\r\nHost: localhost:{up}\r\n\r\n")

        return make

    def start(self, command, port):
        log = open(self.folder / "log", "ab")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        self.running.append(process)
        for _ in range(600):
            if process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return process
            except OSError:
                time.sleep(0.05)
        sys.exit(f"error: {' '.join(command)} does not listen\n{(self.folder / 'log').read_text(errors='replace')[-2000:]}")

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.running.remove(process)

    def close(self):
        for process in list(self.running):
            self.stop(process)


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), 0.5).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"error: nothing listens on port {port}")


def certificates(folder):
    """A CA, and a certificate of localhost."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    for name in ("ca", "leaf"):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key")
    openssl("req", "-x509", "-new", "-key", "ca.key", "-days", "2", "-subj", "/CN=bench", "-out", "ca.pem")
    openssl("req", "-new", "-key", "leaf.key", "-subj", "/CN=localhost", "-out", "leaf.csr")
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
            "-extfile", "names", "-out", "leaf.pem")
    (folder / "leaf.both").write_bytes((folder / "leaf.pem").read_bytes() + (folder / "leaf.key").read_bytes())


# === what counts ===


class Callgrind:
    """valgrind counts all that a program does, here between two moments of its run."""

    TOOL = "valgrind"
    COLUMNS = ("user instructions", "system calls", "clock readings", "allocations")

    @classmethod
    def measure(cls, world, name, way):
        out, requests = world.folder / "callgrind.out", world.args.requests
        command, port = world.command(name, way)
        valgrind = ["valgrind", "-q", "--tool=callgrind", "--collect-systime=yes", f"--callgrind-out-file={out}",
                    f"--vgdb-prefix={world.folder}/vgdb"]
        process = world.start([*valgrind, *command], port)

        def control(command):
            vgdb = ["vgdb", f"--vgdb-prefix={world.folder}/vgdb", f"--pid={process.pid}", command]
            done = subprocess.run(vgdb, capture_output=True, text=True, timeout=60)
            if done.returncode:
                sys.exit(f"error: valgrind cannot be told to {command}\n{done.stderr}")

        load = Load(world.client(name, way, port), way)
        load.run(WARM)
        control("dump warm")
        load.run(requests)
        control("dump bench")
        world.stop(process)
        # A dump has a number behind its name. The file without a number has the counts after the dump.
        dump = pathlib.Path(f"{out}.2")
        text = dump.read_text(errors="replace")
        if world.args.profile:
            shutil.copy(dump, world.args.profile)
        events = re.search(r"^events: (.*)$", text, re.M).group(1).split()
        totals = dict(zip(events, map(int, re.search(r"^totals: (.*)$", text, re.M).group(1).split())))
        readings = calls(text, CLOCK) or 0
        row = {"user instructions": totals["Ir"], "system calls": totals["sysCount"] - readings,
               "clock readings": readings, "allocations": calls(text, ALLOCATION)}
        return {column: count and count / requests for column, count in row.items()}


def calls(text, wanted):
    """Number of calls of functions with matching names, in a file of callgrind's; `None` if there are none."""
    # A name stands only where it is used first: `cfn=(12) malloc`, then `cfn=(12)`.
    names = {number for number, name in re.findall(r"^c?fn=\((\d+)\) (\S+)", text, re.M) if wanted.match(name)}
    edges = re.findall(r"^fn=\((\d+)\)|^cfn=\((\d+)\).*\ncalls=(\d+)", text, re.M)
    total, caller = 0, None
    for function, called, count in edges:
        if function:
            caller = function
        # A function that calls another one of the list counts once.
        elif called in names and caller not in names:
            total += int(count)
    return total if names else None


class Perf:
    """The processor counts."""

    TOOL = "perf"
    COLUMNS = ("user instructions", "kernel instructions", "cycles", "system calls")
    EVENTS = {"instructions:u": "user instructions", "instructions:k": "kernel instructions", "cycles": "cycles",
              "raw_syscalls:sys_enter": "system calls"}

    @classmethod
    def is_there(cls):
        probe = ["perf", "stat", "-x,", "-e", "instructions:u,instructions:k", "true"]
        if not shutil.which("perf"):
            return False
        found = subprocess.run(probe, capture_output=True, text=True)
        return found.returncode == 0 and "<not" not in found.stderr

    @classmethod
    def measure(cls, world, name, way):
        command, port = world.command(name, way)
        process = world.start(command, port)
        events = [event for event in cls.EVENTS if ":sys" not in event or os.path.exists("/sys/kernel/tracing/events")]
        load = Load(world.client(name, way, port), way)
        load.run(WARM)
        out = world.folder / "perf.out"
        perf = subprocess.Popen(["perf", "stat", "-x,", "-o", out, "-e", ",".join(events), "-p", str(process.pid)])
        time.sleep(0.5)
        # Faster than under valgrind, so that it may be more.
        requests = world.args.requests * 10
        load.run(requests)
        perf.send_signal(signal.SIGINT)
        perf.wait()
        world.stop(process)
        row = {}
        for line in out.read_text().splitlines():
            cells = line.split(",")
            if len(cells) > 2 and cells[2] in cls.EVENTS:
                row[cls.EVENTS[cells[2]]] = int(cells[0]) / requests if cells[0].isdigit() else None
        return row


# === load: as many requests as are asked for, each when the one before it has been answered ===


def connect(port):
    stream = socket.create_connection(("127.0.0.1", port), 30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def intercepted(port, up, alpn):
    """A connection in a tunnel to the upstream, which andante intercepts."""
    stream = connect(port)
    stream.sendall(f"CONNECT localhost:{up} HTTP/1.1\r\nHost: localhost:{up}\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += stream.recv(4096) or sys.exit("error: no tunnel")
    if b" 200 " not in head:
        sys.exit(f"error: no tunnel: {head}")
    return secured(stream, alpn)


def secured(stream, alpn):
    context = ssl.create_default_context()
    # The owner of the certificate does not matter here.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([alpn])
    stream = context.wrap_socket(stream, server_hostname="localhost")
    if stream.selected_alpn_protocol() != alpn:
        sys.exit(f"error: it speaks {stream.selected_alpn_protocol()}, and not {alpn}")
    return stream


class Load:
    """A few connections that ask and ask."""

    def __init__(self, client, way):
        h2 = way.startswith("h2")
        self.at_once = STREAMS if h2 else 1
        self.clients = [client() for _ in range(CONNECTIONS // self.at_once)]
        self.selector = selectors.DefaultSelector()
        for one in self.clients:
            one.stream.setblocking(False)
            self.selector.register(one.stream, selectors.EVENT_READ, one)

    def run(self, requests):
        sent = answered = 0
        for one in self.clients:
            first = min(self.at_once, requests - sent)
            one.ask(first)
            sent += first
        while answered < requests:
            ready = self.selector.select(60)
            if not ready:
                sys.exit(f"error: {requests - answered} of {requests} requests are not answered")
            for key, _ in ready:
                count = key.data.answers()
                answered += count
                more = min(count, requests - sent)
                sent += more
                if more:
                    key.data.ask(more)


class Client:
    def __init__(self, stream):
        self.stream, self.read = stream, b""

    def fill(self):
        """Reads the available bytes."""
        while True:
            try:
                piece = self.stream.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError):
                return
            if not piece:
                sys.exit(f"error: a connection was closed after {self.read[-200:]}")
            self.read += piece


class Http1(Client):
    def __init__(self, stream, request):
        super().__init__(stream)
        self.request = request.encode()

    def ask(self, count):
        self.stream.sendall(self.request * count)

    def answers(self):
        self.fill()
        count = 0
        while b"\r\n\r\n" in self.read:
            head, rest = self.read.split(b"\r\n\r\n", 1)
            if not head.startswith(b"HTTP/1.1 200 "):
                sys.exit(f"error: {head.decode(errors='replace')}\n{rest.decode(errors='replace')}")
            length = int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
            if len(rest) < length:
                break
            self.read, count = rest[length:], count + 1
        return count


class Http2(Client):
    """The part of RFC 9113 that repeated small requests need."""

    def __init__(self, stream, authority):
        super().__init__(stream)
        self.next, self.unknown = 1, True
        path = b"/v1/meta?id=1"
        # RFC 7541 §6.2.1: literals that go into the dynamic table, from where the next request takes them.
        self.first = bytes([0x82, 0x87, 0x44, len(path)]) + path + bytes([0x41, len(authority)]) + authority.encode()
        self.further = bytes([0x82, 0x87, 0xBF, 0xBE])
        # SETTINGS with a large window, and as much for the connection.
        window = (1 << 30).to_bytes(4, "big")
        self.out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"\x00\x04" + window) + frame(8, 0, 0, window)

    def ask(self, count):
        for _ in range(count):
            block = self.first if self.unknown else self.further
            self.unknown = False
            # END_STREAM and END_HEADERS.
            self.out += frame(1, 0x5, self.next, block)
            self.next += 2
        self.flush()

    def flush(self):
        out, self.out = self.out, b""
        while out:
            try:
                out = out[self.stream.send(out):]
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                time.sleep(0.001)

    def answers(self):
        self.fill()
        count = 0
        while len(self.read) >= 9:
            length, kind, flags = int.from_bytes(self.read[:3], "big"), self.read[3], self.read[4]
            if len(self.read) < 9 + length:
                break
            payload, self.read = self.read[9:9 + length], self.read[9 + length:]
            if kind in (0, 1) and flags & 0x1:
                count += 1
            elif kind == 4 and not flags & 0x1:
                self.out += frame(4, 0x1, 0, b"")
            elif kind == 6 and not flags & 0x1:
                self.out += frame(6, 0x1, 0, payload)
            elif kind in (3, 7):
                sys.exit(f"error: the proxy has ended a stream or the connection: {payload}")
            # 200 is the eighth entry of the static table (RFC 7541, appendix A).
            if kind == 1 and payload[0] & 0x7F != 8 and 0x88 not in payload[:3]:
                sys.exit(f"error: an answer that is no 200: {payload}")
        if self.out:
            self.flush()
        return count


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


if __name__ == "__main__":
    main()
