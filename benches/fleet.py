#!/usr/bin/env python3
"""Several andantes, one Redis, one API that enforces its limit: refusals, the used share of the limit, and each one's share.

Starts a Redis, `andante mock`, and the members, each on a free port of loopback, and asks through all of them. Faults are
made for real: a signal to the store, FLUSHALL, a member killed. Needs redis-server (Debian package).

usage: benches/fleet.py [--andante PATH] [--only NAME] [--list]
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Store:
    """A Redis that remembers nothing beyond its end."""

    def __init__(self, folder):
        self.port, self.folder = free_port(), folder
        self.start()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}"

    def start(self, *more):
        args = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--dir", self.folder, *more]
        self.process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.ask("PING")
                return
            except OSError:
                time.sleep(0.02)
        raise SystemExit("the store did not start")

    def ask(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
            return s.recv(1 << 20).decode()

    def calls(self):
        for line in self.ask("INFO", "commandstats").splitlines():
            if line.startswith("cmdstat_evalsha:"):
                return int(line.split("calls=")[1].split(",")[0])
        return 0

    def kill(self, kind=signal.SIGKILL):
        self.process.send_signal(kind)
        if kind == signal.SIGKILL:
            self.process.wait()

    def end(self):
        pass


class Replica(Store):
    """A Redis that follows another one."""

    def __init__(self, folder, port):
        self.follows = str(port)
        super().__init__(folder)

    def start(self):
        super().start("--replicaof", "127.0.0.1", self.follows, "--repl-diskless-sync-delay", "0", "--dbfilename",
                      f"{self.port}.rdb")


class Watched(Store):
    """A Redis with two replicas, and three Sentinels that watch over them."""

    def start(self):
        super().start("--repl-diskless-sync-delay", "0")

    def __init__(self, folder):
        super().__init__(folder)
        self.replicas = [Replica(folder, self.port) for _ in range(2)]
        self.ports, self.sentinels = [free_port() for _ in range(3)], []
        for port in self.ports:
            file = f"{folder}/sentinel-{port}.conf"
            with open(file, "w") as out:
                out.write(f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor main 127.0.0.1 {self.port} 2\n"
                          "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 10000\n"
                          "sentinel parallel-syncs main 2\n")
            self.sentinels.append(subprocess.Popen(["redis-server", file, "--sentinel"], stdout=subprocess.DEVNULL))
        while self.ask("INFO", "replication").count("state=online") < 2:
            time.sleep(0.02)
        for port in self.ports:
            for _ in range(1000):
                said = self.said_by(port).split()
                facts = dict(zip(said[1::4], said[3::4]))
                if facts.get("num-slaves") == "2" and facts.get("num-other-sentinels") == "2":
                    break
                time.sleep(0.02)

    @property
    def url(self):
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.ports)}/main"

    def said_by(self, port):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as s:
                s.sendall(b"SENTINEL MASTER main\r\n")
                return s.recv(1 << 16).decode()
        except OSError:
            return ""

    def end(self):
        for replica in self.replicas:
            replica.kill(signal.SIGCONT)
            replica.kill()
        for sentinel in self.sentinels:
            sentinel.kill()
            sentinel.wait()


class Member:
    def __init__(self, world, name):
        self.world, self.name = world, name
        self.log = open(f"{world.folder}/{name}.log", "a")
        args = [world.andante, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state", "off", "--log", "json",
                "--threads", "1"]
        if world.with_store:
            args += ["--store", world.store.url]
        if world.limits:
            args += ["--limit", f"127.0.0.1:{world.api}={world.limits}"]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=self.log, text=True)
        words = self.process.stdout.readline().split()
        self.port = int(words[4].strip(",").rsplit(":", 1)[1])
        self.admin = int(words[-1].rsplit(":", 1)[1])
        self.done = self.errors = 0
        self.killed = False
        self.codes = {}

    def kill(self):
        self.killed = True
        self.process.kill()

    def status(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status", timeout=2) as answer:
            return json.load(answer)

    async def worker(self, until, tag):
        ask = (f"GET http://127.0.0.1:{self.world.api}/{tag} HTTP/1.1\r\nHost: 127.0.0.1:{self.world.api}\r\n\r\n").encode()
        while time.monotonic() < until and not self.killed:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                while time.monotonic() < until:
                    writer.write(ask)
                    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), max(until - time.monotonic(), 0.01))
                    length = next(int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length"))
                    await reader.readexactly(length)
                    code = int(head.split()[1])
                    self.codes[code] = self.codes.get(code, 0) + 1
                    self.done += code == 200
                writer.close()
            except (OSError, asyncio.IncompleteReadError):
                if not self.killed and time.monotonic() < until:
                    self.errors += 1
                    await asyncio.sleep(0.05)
            except asyncio.TimeoutError:
                return


class World:
    def __init__(self, andante, enforced, limits=None, members=4, init=True, mock=(), store=Store,
                 with_store=True):
        self.with_store = with_store
        self.andante, self.limits = andante, enforced if limits is None else limits
        self.folder = tempfile.mkdtemp(prefix="fleet-")
        self.store = store(self.folder)
        self.mock = subprocess.Popen([andante, "mock", "--listen", "127.0.0.1:0", "--limit", enforced, *mock],
                                     stdout=subprocess.PIPE, text=True)
        line = self.mock.stdout.readline()
        self.api = int(line.split("http://")[1].split()[0].strip("/,").rsplit(":", 1)[1])
        if init:
            subprocess.run([andante, "fleet", "init", "--store", self.store.url], check=True, stdout=subprocess.DEVNULL)
        self.members = [Member(self, f"m{i}") for i in range(members)]

    def stats(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/__mock/stats", timeout=2) as answer:
            return json.load(answer)

    def end(self):
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()
        self.mock.kill()
        try:
            self.store.kill(signal.SIGCONT)
        except OSError:
            pass
        self.store.kill()
        self.store.end()
        shutil.rmtree(self.folder)


async def load(world, seconds, workers=40, which=None, events=()):
    """Workers of all members, or of the members in `which` with their numbers of workers; `events` at their times."""
    until = time.monotonic() + seconds
    loads = which or {i: workers for i in range(len(world.members))}
    tasks = [asyncio.create_task(world.members[i].worker(until, f"{i}")) for i, n in loads.items() for _ in range(n)]
    begun = time.monotonic()
    for at, do in events:
        await asyncio.sleep(max(begun + at - time.monotonic(), 0))
        result = do()
        if asyncio.iscoroutine(result):
            tasks.append(asyncio.create_task(result))
    await asyncio.wait(tasks, timeout=seconds + 30)


def report(name, world, seconds, before, calls, rate):
    stats = world.stats()
    accepted, refused = stats["accepted"] - before["accepted"], stats["refused"] - before["refused"]
    per = [m.done for m in world.members]
    others = {code: n for m in world.members for code, n in m.codes.items() if code != 200}
    print(f"{name:34} refused {refused}  used {accepted / (rate * seconds):.4f} ({accepted} in {seconds:.0f} s)  per member {per}  "
          f"calls {calls / seconds:.1f}/s, {calls / max(accepted, 1):.3f} per slot  other answers {others or 0} "
          f"broken {sum(m.errors for m in world.members)}", flush=True)
    return refused


def steady(enforced, rate, seconds, warm, members=4, workers=40, which=None, **more):
    def run(name, andante):
        world = World(andante, enforced, members=members, **more)
        try:
            asyncio.run(load(world, warm, workers, which))
            before, calls = world.stats(), world.store.calls()
            for m in world.members:
                m.done = 0
            asyncio.run(load(world, seconds, workers, which))
            return report(name, world, seconds, before, world.store.calls() - calls, rate)
        finally:
            world.end()
    return run


def faulty(enforced, rate, seconds, faults, workers=30, **more):
    def run(name, andante):
        world = World(andante, enforced, **more)
        try:
            before = world.stats()
            asyncio.run(load(world, seconds, workers, events=[(at, (lambda f: lambda: f(world))(f)) for at, f in faults]))
            refused = report(name, world, seconds, before, 0, rate)
            for m in world.members:
                m.log.flush()
            if os.environ.get("LOGS"):
                for m in world.members:
                    print(open(f"{world.folder}/{m.name}.log").read())
            return refused
        finally:
            world.end()
    return run


def learned(dialect, enforced, rate, seconds, members, workers):
    """Learned limits, without configuration: the first 10 s, and the rest. Refusals are no failure here."""
    def run(name, andante):
        world = World(andante, enforced, limits="", members=members, mock=("--dialect", dialect))
        try:
            marks = []
            events = [(10, lambda: marks.append(world.stats()))]
            asyncio.run(load(world, seconds, workers, events=events))
            first, last = marks[0], world.stats()
            for part, before, after, span in (("first 10 s", dict(accepted=0, refused=0), first, 10),
                                              ("after that", first, last, seconds - 10)):
                accepted, refused = (after[key] - before[key] for key in ("accepted", "refused"))
                print(f"{name:46} {part}: refused {refused:5} of {accepted + refused:6} ({refused / max(accepted + refused, 1):6.2%})  "
                      f"used {accepted / (rate * span):.3f}  per member {[m.done for m in world.members]}", flush=True)
            return 0
        finally:
            world.end()
    return run


def added(enforced, requests):
    """Sequential requests, alternately through a member and through an andante without a store."""
    def run(name, andante):
        world = World(andante, enforced)
        alone = World(andante, enforced, members=1, with_store=False)
        try:
            took = asyncio.run(by_turns([world.members[0], alone.members[0]], requests))
            (with_p50, with_p99), (without_p50, without_p99) = (
                (sorted(times)[len(times) // 2], sorted(times)[len(times) * 99 // 100]) for times in took)
            print(f"{name:34} p50 {with_p50 * 1e3:.3f} ms with a store, {without_p50 * 1e3:.3f} without; "
                  f"p99 {with_p99 * 1e3:.3f} and {without_p99 * 1e3:.3f}", flush=True)
            return 0
        finally:
            alone.end()
            world.end()
    return run


async def by_turns(members, requests):
    took, streams = [[] for _ in members], []
    for member in members:
        streams.append(await asyncio.open_connection("127.0.0.1", member.port))
    for turn in range(requests):
        for times, member, (reader, writer) in zip(took, members, streams):
            api = f"127.0.0.1:{member.world.api}"
            begun = time.perf_counter()
            writer.write(f"GET http://{api}/ HTTP/1.1\r\nHost: {api}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(l.split(b":")[1]) for l in head.split(b"\r\n") if l.lower().startswith(b"content-length"))
            await reader.readexactly(length)
            if turn >= requests // 5:
                times.append(time.perf_counter() - begun)
            await asyncio.sleep(0.01)
    return took


def flush(world):
    world.store.ask("FLUSHALL")


def pause(world):
    world.store.kill(signal.SIGSTOP)


def go_on(world):
    world.store.kill(signal.SIGCONT)


def kill_store(world):
    world.store.kill()


def start_store(world):
    world.store.start()


def stop_replicas(world):
    for replica in world.store.replicas:
        replica.kill(signal.SIGSTOP)


def fail_over(world):
    """Fails over to replicas that lack the changes of the last two seconds."""
    world.store.kill()
    for replica in world.store.replicas:
        replica.kill(signal.SIGCONT)


def kill_member(world):
    world.members[0].kill()


def join_member(world):
    member = Member(world, f"m{len(world.members)}")
    world.members.append(member)
    until = time.monotonic() + 20
    return asyncio.gather(*(member.worker(until, "joined") for _ in range(30)))


def kill_any(dice):
    """Kills a running member, unless fewer than two would remain."""
    def kill(world):
        running = [member for member in world.members if not member.killed]
        if len(running) > 2:
            dice.choice(running).kill()
    return kill


def join_for(seconds):
    """Starts another member with work for this long, unless five run."""
    def join(world):
        if sum(not member.killed for member in world.members) < 5:
            member = Member(world, f"m{len(world.members)}")
            world.members.append(member)
            until = time.monotonic() + seconds
            return asyncio.gather(*(member.worker(until, "joined") for _ in range(30)))
    return join


def at_random(seconds, seed=int(os.environ.get("SEED", "1"))):
    """Faults one after the other, each over before the next: the store is emptied, stopped, or killed for up to five seconds,
    and members are killed and join."""
    dice, at, faults = random.Random(seed), 5, []
    while at < seconds - 15:
        lasts = dice.uniform(0.1, 5)
        faults += dice.choice([
            [(at, flush)],
            [(at, pause), (at + lasts, go_on)],
            [(at, kill_store), (at + lasts, start_store)],
            [(at, kill_any(dice))],
            [(at, join_for(seconds - at))],
        ])
        at += lasts + dice.uniform(0, 8)
    return faults


CASES = {
    "100/s, 4 members": steady("100/s", 100, 20, 5),
    "1000/s, 4 members": steady("1000/s", 1000, 10, 4),
    "500/min, 4 members": steady("500/min", 500 / 60, 90, 70, workers=5),
    "1/2s, 4 members": steady("1/2s", 0.5, 40, 6, workers=3),
    "10/s, 4 members": steady("10/s", 10, 20, 5, workers=5),
    "100/s, one of 4 alone": steady("100/s", 100, 10, 5, which={2: 40}),
    "100/s, loads 30:30:3:3": steady("100/s", 100, 15, 5, which={0: 30, 1: 30, 2: 1, 3: 1}),
    "1000/s, loads 30:30:3:3": steady("1000/s", 1000, 10, 4, which={0: 30, 1: 30, 2: 3, 3: 3},
                                      mock=("--latency", "9ms")),
    "two limits 20/s and 300/20s": steady("20/s", 15, 40, 20, limits="20/s,300/20s", workers=10),
    "one member without others": steady("100/s", 100, 10, 3, members=1),
    "uncontended, 1000/s": added("1000/s", 1000),
    "flush": faulty("100/s", 100, 25, [(5, flush)]),
    "store paused 5 s": faulty("100/s", 100, 20, [(5, pause), (10, go_on)]),
    "store killed, empty after 3 s": faulty("100/s", 100, 30, [(5, kill_store), (8, start_store)]),
    "store away for 20 s": faulty("100/s", 100, 45, [(5, kill_store), (25, start_store)]),
    "failed over, replicas 2 s behind": faulty("100/s", 100, 25, [(5, stop_replicas), (7, fail_over)], store=Watched),
    "failed over, 500/min, replicas 2 s behind": faulty("500/min", 500 / 60, 120, [(70, stop_replicas), (72, fail_over)], store=Watched),
    "member killed": faulty("100/s", 100, 30, [(5, kill_member)]),
    "member joins": faulty("100/s", 100, 25, [(5, join_member)], members=3),
    "all in turn": faulty("50/s", 50, 60, [(5, flush), (8, kill_member), (12, pause), (16, go_on), (20, join_member),
                                           (25, kill_store), (27, start_store), (35, flush), (36, flush)]),
    "at random for ten minutes": faulty("50/s", 50, 600, at_random(600)),
}


for dialect in ("ietf", "none"):
    for enforced, rate in (("100/10s", 10), ("100/s", 100)):
        for members in (1, 3):
            CASES[f"learned: {dialect}, {enforced}, {members} members"] = learned(dialect, enforced, rate, 70, members,
                                                                                  30 // members)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--andante", default=str(ROOT / "target/dist/andante"))
    parser.add_argument("--only", default="", help="cases whose names have one of these words, separated by commas")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        sys.exit("\n".join(CASES))
    names = [name for name in CASES if any(word in name for word in args.only.split(","))]
    refused = sum(CASES[name](name, args.andante) for name in names)
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()
