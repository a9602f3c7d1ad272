#!/usr/bin/env python3
"""A batch of 30,000 lines at 1,000/s through a running andante, while the batch and that andante are killed (SIGKILL) in
turn, three times each: is each line answered exactly once, is nothing sent twice that must not be, is no window broken,
and how much of the limit is used?

Half of the lines are GETs, half POSTs with a body. The API is a program of its own that writes down when each request
came. A killed batch is started again with the same command; in the end once more with --resend-unknown.

usage: crash.py [--andante PATH] [--lines N] [--limit N] [--kills N] [--every SECONDS] [--seed N]

Needs a dist build; everything stays on loopback.
"""
import argparse
import asyncio
import collections
import contextlib
import json
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Least used share of the limit, outside of SETTLING seconds after a kill. After a kill the usage of the last second is
# unknown, and counts as used up.
LEAST, SETTLING = 0.98, 2.5
# How far two requests may come nearer on the way than they were sent.
JITTER = 0.005


class Api(asyncio.Protocol):
    """Answers each request with its name, and keeps when it came."""

    came = []

    def connection_made(self, transport):
        self.transport, self.text = transport, b""

    def data_received(self, data):
        self.text += data
        while (end := self.text.find(b"\r\n\r\n")) >= 0:
            head, rest = self.text[:end].decode("latin-1"), self.text[end + 4:]
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:])}
            length = int(fields.get("content-length", 0))
            if fields.get("expect") and not rest and length:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if len(rest) < length:
                return
            self.text = rest[length:]
            method, path = head.split(" ")[:2]
            self.came.append((time.monotonic(), method, path.removeprefix("/")))
            body = json.dumps({"path": path})
            answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
            self.transport.write(answer.encode())


class Crash:
    def __init__(self, args, folder):
        self.args, self.folder = args, pathlib.Path(folder)
        with contextlib.ExitStack() as stack:
            listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
            self.api, self.port, self.admin = (listener.getsockname()[1] for listener in listeners)
        self.random = random.Random(args.seed)
        self.kills, self.starts = [], []
        self.write_input()

    def write_input(self):
        with open(self.folder / "in.jsonl", "w") as lines:
            for number in range(self.args.lines):
                line = {"id": f"{number}", "url": f"http://127.0.0.1:{self.api}/{number}", "method": "GET"}
                if number % 2:
                    line |= {"method": "POST", "body": {"number": number}}
                lines.write(json.dumps(line) + "\n")

    def start_proxy(self):
        command = [self.args.andante, "serve", "--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}",
                   "--limit", f"127.0.0.1:{self.api}={self.args.limit}/s", "--state", self.folder / "serve.state",
                   "--data", self.folder / "data"]
        self.proxy = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(self.folder / "serve.log", "a"))
        self.proxy.stdout.readline()

    def start_batch(self, *flags):
        command = [self.args.andante, "batch", self.folder / "in.jsonl", "--out", self.folder / "out.jsonl",
                   "--proxy", f"http://127.0.0.1:{self.port}", *flags]
        self.batch = subprocess.Popen(command, stdout=open(self.folder / "batch.out", "a"),
                                      stderr=open(self.folder / "batch.log", "a"))

    async def run(self):
        server = await asyncio.get_running_loop().create_server(Api, "127.0.0.1", self.api)
        self.start_proxy()
        self.start_batch()
        for turn in range(2 * self.args.kills):
            await asyncio.sleep(self.args.every * self.random.uniform(0.8, 1.2))
            if self.batch.poll() is not None:
                break
            victim, again = (self.proxy, self.start_proxy) if turn % 2 else (self.batch, self.start_batch)
            self.kills.append(time.monotonic())
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            again()
            self.starts.append(time.monotonic())
        await self.ends()
        before = collections.Counter((method, name) for _, method, name in Api.came)
        self.unknown = self.args.lines - len(self.answers())
        self.batch_code = self.batch.returncode
        self.start_batch("--resend-unknown")
        await self.ends()
        self.proxy.terminate()
        self.proxy.wait()
        server.close()
        return self.report(before)

    async def ends(self):
        until = time.monotonic() + 5 * self.args.lines / self.args.limit + 60
        while self.batch.poll() is None:
            if time.monotonic() > until:
                raise SystemExit(f"error: the batch does not end; its folder: {self.folder}")
            await asyncio.sleep(0.05)

    def answers(self):
        return [json.loads(line) for line in (self.folder / "out.jsonl").read_text().splitlines()]

    def report(self, before):
        counts = collections.Counter(method for method, _ in before.elements())
        twice = [name for (method, name), count in before.items() if method == "POST" and count > 1]
        ids = collections.Counter(line["id"] for line in self.answers())
        wrong = [line for line in self.answers()
                 if not line["response"] or line["response"]["body"] != {"path": f"/{line['id']}"}]
        lost = [name for name in map(str, range(0, self.args.lines, 2)) if ("GET", name) not in before]
        most, share = self.most_in_a_second(), self.share()
        print(f"{len(self.kills)} kills; the API got {counts['GET']:,} GETs and {counts['POST']:,} POSTs of "
              f"{self.args.lines // 2:,} each; in doubt: {self.unknown}; at most {most} in a second; "
              f"{share:.3f} of the limit used outside of the kills")
        complaints = [
            (len(self.kills) < 2 * self.args.kills, f"it ended after {len(self.kills)} kills"),
            (twice, f"POSTs that came twice: {twice[:5]}"),
            (lost, f"GETs that never came: {lost[:5]}"),
            (sorted(ids) != sorted(map(str, range(self.args.lines))) or max(ids.values()) > 1,
             f"{len(ids)} of {self.args.lines} ids in the output, one {max(ids.values())} times"),
            (wrong, f"wrong answers: {wrong[:2]}"),
            (most > self.args.limit, f"{most} in a window of a second, {self.args.limit} allowed"),
            (share < LEAST, f"{share:.3f} of the limit used, and {LEAST} asked"),
            (self.batch.returncode, f"the last batch ended with {self.batch.returncode}"),
        ]
        complaints = [text for holds, text in complaints if holds]
        for text in complaints:
            print(f"error: {text}")
        return 1 if complaints else 0

    def most_in_a_second(self):
        times, most, first = [at for at, *_ in Api.came], 0, 0
        for last, at in enumerate(times):
            while at - times[first] >= 1 - JITTER:
                first += 1
            most = max(most, last - first + 1)
        return most

    def share(self):
        """Used share of the limit, in the time between the kills."""
        times = [at for at, *_ in Api.came]
        # The last answers of a batch are fewer than there are slots.
        end = times[self.args.lines - self.args.limit]
        parts = zip([times[0], *(at + SETTLING for at in self.starts)], [*self.kills, end])
        parts = [(start, stop) for start, stop in parts if stop > start]
        used = sum(start <= at < stop for at in times for start, stop in parts)
        return used / self.args.limit / sum(stop - start for start, stop in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path, default=ROOT / "target/dist/andante")
    parser.add_argument("--lines", type=int, default=30_000)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=3, help="of each")
    parser.add_argument("--every", type=float, default=5, help="seconds between two kills, about")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(Crash(args, folder).run())


if __name__ == "__main__":
    sys.exit(main())
