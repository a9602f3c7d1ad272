#!/usr/bin/env python3
"""Limits in tokens, 90,000 of input and 20,000 of output a minute, with outputs that only the answer tells: what does the
API count in its worst minute, and how much of its limit is used?

Requests cost 100 to 4,000 tokens of input (--largest), which they state, and an output that is unknown before. A third of
the answers are streams. The client leaves a quarter of these in the middle; such a stream has used the written part. The
API refuses nothing: it records the usage of each request, and the time. Two runs: in one the input is scarce, in one
the output.
With --members several andantes share the limits by a Redis, each with its part of the workers.

usage: tokens.py [--andante PATH] [--members N] [--minutes N] [--largest N] [--output N] [--seed N]

Prints for each limit the most in any window of a minute, by how much that is too many in the largest output, and the share
used and the calls to the store from the second minute on. Needs a dist build; everything stays on loopback.
"""
import argparse
import asyncio
import contextlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from fleet import Store

ROOT = pathlib.Path(__file__).resolve().parent.parent
INPUT, OUTPUT, WINDOW = 90_000, 20_000, 60
LEAST = 0.95
WORKERS = 100
# Seconds per token of output.
TOKEN = 0.002
CONFIG = """
[[rule]]
host = "127.0.0.1:{port}"
limits = ["{input} input-tokens/min", "{output} output-tokens/min"]
usage = ["input-tokens=prompt_tokens", "output-tokens=completion_tokens"]
max-wait = "24h"
"""


class Api:
    """Writes down when it counts how many tokens of each kind."""

    def __init__(self):
        self.used = {"input": [], "output": []}
        self.largest = 0
        self.left = 0

    async def serve(self, reader, writer):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
                ask = json.loads(await reader.readexactly(int(fields["content-length"])))
                self.count("input", ask["input"])
                await (self.stream if ask["stream"] else self.answer)(ask, writer)
        writer.close()

    async def answer(self, ask, writer):
        await asyncio.sleep(ask["output"] * TOKEN)
        self.count("output", ask["output"])
        body = json.dumps({"usage": {"prompt_tokens": ask["input"], "completion_tokens": ask["output"]}})
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()

    async def stream(self, ask, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        done = 0
        try:
            while done < ask["output"]:
                piece = min(20, ask["output"] - done)
                await asyncio.sleep(piece * TOKEN)
                done += piece
                writer.write(chunk({"choices": [{"delta": {"content": "word " * piece}}]}))
                await writer.drain()
                if writer.is_closing() or writer.transport.get_write_buffer_size() > 1 << 20:
                    raise ConnectionResetError
            writer.write(chunk({"usage": {"prompt_tokens": ask["input"], "completion_tokens": done}}) + b"0\r\n\r\n")
            await writer.drain()
        except OSError:
            self.left += 1
            raise
        finally:
            self.count("output", done)

    def count(self, unit, tokens):
        self.used[unit].append((time.monotonic(), tokens))
        if unit == "output":
            self.largest = max(self.largest, tokens)


def chunk(event):
    text = f"data: {json.dumps(event)}\n\n"
    return f"{len(text):x}\r\n{text}\r\n".encode()


async def worker(port, api, chance, largest, scale, until):
    while time.monotonic() < until:
        ask = {"input": chance.randint(100, largest), "output": 1 + int(chance.lognormvariate(0, 0.7) * scale),
               "stream": chance.random() < 1 / 3}
        leaves = ask["stream"] and chance.random() < 1 / 4
        body = json.dumps(ask).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST http://127.0.0.1:{api}/v1 HTTP/1.1\r\nHost: 127.0.0.1:{api}\r\nContent-Length: {len(body)}\r\n"
                     f"Andante-Cost: input-tokens={ask['input']}\r\nConnection: close\r\n\r\n".encode() + body)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"error: {head.decode()}")
            if leaves:
                await reader.read(500)
            else:
                await reader.read()
        writer.close()


def serve(andante, *args):
    command = [andante, "serve", "--listen", "127.0.0.1:0", "--admin", "off", "--state", "off", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, int(process.stdout.readline().split()[4].strip(",").rsplit(":", 1)[1])


async def run(args, scarce, scale):
    api = Api()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="tokens-") as folder, contextlib.ExitStack() as ends:
        config = pathlib.Path(folder, "andante.toml")
        config.write_text(CONFIG.format(port=port, input=INPUT, output=OUTPUT))
        shared = []
        if args.members > 1:
            store = Store(folder)
            ends.callback(store.kill)
            subprocess.run([args.andante, "fleet", "init", "--store", store.url], check=True, stdout=subprocess.DEVNULL)
            shared = ["--store", store.url]
        andantes, ports = zip(*(serve(args.andante, "--config", config, *shared) for _ in range(args.members)))
        begun, chance = time.monotonic(), random.Random(args.seed)
        until = begun + 60 * args.minutes
        workers = [asyncio.create_task(worker(ports[at % args.members], port, chance, args.largest, scale, until))
                   for at in range(WORKERS)]
        await asyncio.wait(workers, timeout=60)
        before = shared and store.calls()
        await asyncio.wait(workers, timeout=60 * (args.minutes - 1))
        # Before they drain, which takes calls as well.
        calls = shared and store.calls() - before
        failed = [task.exception() for task in workers if task.done() and task.exception()]
        for task in workers:
            task.cancel()
        for andante in andantes:
            andante.terminate()
        for andante in andantes:
            await asyncio.to_thread(andante.wait)
        if shared:
            calls = calls / args.members / 60 / max(1, args.minutes - 1)
            print(f"{scarce} scarce: {calls:.2f} calls to the store per second and member")
    server.close()
    if failed:
        raise failed[0]
    complaints = []
    for unit, limit in (("input", INPUT), ("output", OUTPUT)):
        used = api.used[unit]
        most = most_in_a_window(used)
        share = sum(tokens for at, tokens in used if begun + 60 <= at < begun + 60 * args.minutes) / limit / (args.minutes - 1)
        print(f"{scarce} scarce, {unit}: at most {most:,} of {limit:,} in a minute, {share:.3f} used")
        # The reservation of a single answer may be wrong by that answer's size.
        if most > limit + (api.largest if unit == "output" else 0):
            complaints.append(f"{most - limit:,} too many {unit} tokens; the largest output was {api.largest:,}")
        if unit == scarce and share < LEAST:
            complaints.append(f"{share:.3f} of the {unit} tokens were used, and {LEAST} asked")
    print(f"  {len(api.used['input'])} requests; {api.left} clients left a stream; the largest output was {api.largest:,}")
    return complaints


def most_in_a_window(used):
    most = held = first = 0
    for at, tokens in used:
        held += tokens
        while used[first][0] <= at - WINDOW:
            held -= used[first][1]
            first += 1
        most = max(most, held)
    return most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--andante", type=pathlib.Path, default=ROOT / "target/dist/andante")
    parser.add_argument("--members", type=int, default=1, help="so many andantes share the limits")
    parser.add_argument("--minutes", type=int, default=4)
    parser.add_argument("--largest", type=int, default=4000, help="the most input that a request costs")
    parser.add_argument("--output", type=int, default=500, help="the usual output where it is scarce")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    async def both():
        return await asyncio.gather(run(args, "input", args.largest / 16), run(args, "output", args.output))

    complaints = [text for found in asyncio.run(both()) for text in found]
    for text in complaints:
        print(f"error: {text}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
