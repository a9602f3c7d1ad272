"""The cases of Autobahn's testsuite, out of its package: each directly and through andante, against the same echo, with the
same outcome.

The package is for Python 2. Its cases are simple enough to be read with a few changes; what plays them (sends frames and
waits) is `websocket_peer.py`. Not here: its cases of compression (12 and 13), which andante does not take part in."""

import asyncio
import codecs
import importlib
import importlib.util
import logging
import re
import socket
import ssl
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from websocket_peer import Peer, State
from websockets.asyncio.server import serve

# Long cases: large messages, and many messages.
LONG = ("9.",)
# A case that waits for silence may come out otherwise on a busy machine.
TRIES = 3

CHANGES = [
    # Every character stands for the octet of its number.
    (r"(?m)^#.*coding.*$", ""),
    (r"\bxrange\b", "range"),
    (r"\(object, Case, \)", "(Case, )"),
    (r"binascii\.b2a_hex\(", "repr("),
    (r"(?m)^(\s*)print\b.*$", r"\1pass"),
    (r" / self\.p\.autoFragmentSize", " // self.p.autoFragmentSize"),
]


def load(folder):
    """The classes of all cases, by their numbers."""
    package = Path(importlib.util.find_spec("autobahntestsuite").submodule_search_locations[0])
    folder.mkdir()
    for file in (package / "case").glob("case*.py"):
        # Newer ones are of compression.
        if file.stem == "case9_9_1" or file.stem.startswith("case12"):
            continue
        text = file.read_text("latin-1")
        for pattern, replacement in CHANGES:
            text = re.sub(pattern, replacement, text)
        (folder / file.name).write_text(text, "utf-8")
    stubs()
    sys.path.insert(0, str(folder))
    case = importlib.import_module("case")
    for file in sorted(folder.glob("case?*_*.py")):
        importlib.import_module(file.stem)
    found = {}
    for one in descendants(case.Case):
        number = re.fullmatch(r"Case(\d+(?:_\d+)+)", one.__name__)
        if number:
            found[number[1].replace("_", ".")] = one
    return dict(sorted(found.items(), key=lambda pair: [int(part) for part in pair[0].split(".")]))


def descendants(one):
    for child in one.__subclasses__():
        yield child
        yield from descendants(child)


def stubs():
    """Modules of autobahn that the cases import."""
    for name in ["autobahn", "autobahn.websocket", "autobahn.websocket.protocol", "autobahn.websocket.utf8validator"]:
        sys.modules[name] = types.ModuleType(name)
    sys.modules["autobahn.websocket.protocol"].WebSocketProtocol = State
    sys.modules["autobahn.websocket.utf8validator"].Utf8Validator = Utf8Validator


class Utf8Validator:
    """As Autobahn's: whether it is valid so far, and whether it ends where a character does."""

    def reset(self):
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def validate(self, text):
        try:
            self.decoder.decode(text.encode("latin-1"))
        except UnicodeDecodeError:
            return False, False
        return True, not self.decoder.getstate()[0]


class Echo:
    """A server that sends messages back, with TLS and without; `plain` and `tls` are its ports."""

    def __init__(self, world):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(world.folder / "leaf.pem", world.folder / "leaf.key")
        self.loop = asyncio.new_event_loop()

    def __enter__(self):
        ready = threading.Event()
        self.thread = threading.Thread(target=lambda: self.loop.run_until_complete(self.serve(ready)), daemon=True)
        self.thread.start()
        ready.wait(10)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.over.set)
        self.thread.join(10)

    async def serve(self, ready):
        self.over = asyncio.Event()
        options = {"max_size": None, "compression": None, "ping_interval": None, "close_timeout": 1}
        # Violations appear in a case's outcome, so they need no log line.
        logging.getLogger("websockets").setLevel(logging.CRITICAL)

        async def echo(connection):
            async for message in connection:
                await connection.send(message)

        async with (
            serve(echo, "127.0.0.1", 0, **options) as plain,
            serve(echo, "127.0.0.1", 0, ssl=self.context, **options) as tls,
        ):
            self.plain, self.tls = (server.sockets[0].getsockname()[1] for server in [plain, tls])
            ready.set()
            await self.over.wait()


def cases(world, everything):
    found = load(world.folder / "autobahn")
    chosen = {number: one for number, one in found.items() if everything or not number.startswith(LONG)}
    with Echo(world) as echo:
        roots = ssl.create_default_context(cafile=world.roots())

        def direct():
            return shake(socket.create_connection(("127.0.0.1", echo.plain), 20), "/", f"seen.test:{echo.plain}")

        def forwarded():
            host = f"seen.test:{echo.plain}"
            return shake(socket.create_connection(("127.0.0.1", world.port), 20), f"http://{host}/", host)

        def intercepted():
            host = f"seen.test:{echo.tls}"
            raw = socket.create_connection(("127.0.0.1", world.port), 20)
            raw.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head(raw)
            return shake(roots.wrap_socket(raw, server_hostname="seen.test"), "/", host)

        def compare(number):
            for way, name in [(forwarded, "forwarded"), (intercepted, "intercepted")]:
                yield f"{number}, {name}", same(chosen[number], direct, way)

        with ThreadPoolExecutor(16) as pool:
            for compared in pool.map(lambda number: list(compare(number)), chosen):
                yield from compared


def same(one, direct, way):
    """The difference, or nothing."""
    for _ in range(TRIES):
        try:
            expected, outcome = Peer(direct()).play(one), Peer(way()).play(one)
        except Exception as error:  # noqa: BLE001: whatever it was, it is this case's.
            return f"{type(error).__name__}: {error}"
        if outcome == expected:
            return ""
    return f"came out as {outcome}, and without andante as {expected}"


def shake(raw, target, host):
    """Asks for a WebSocket; returns the connection."""
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    fields = f"Host: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    raw.sendall(f"GET {target} HTTP/1.1\r\n{fields}Sec-WebSocket-Key: {key}\r\n\r\n".encode())
    answer = head(raw)
    assert answer.startswith(b"HTTP/1.1 101 ") and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer, answer
    return raw


def head(raw):
    said = b""
    while b"\r\n\r\n" not in said:
        more = raw.recv(1)
        assert more, f"closed after {said!r}"
        said += more
    return said
