"""Counts requests and answers before a limiter: a proxy of TCP that changes no byte and reads the status of each answer. It can
add the delay and jitter of a real network path."""

import asyncio
import random
import time

import httptools


class Tap:
    """Answers as (time, status), in the order in which the limiter gave them."""

    def __init__(self, address, way=(0, 0)):
        self.address, self.way = address, way
        self.answers = []

    async def start(self, limiter):
        """Listens; returns the port. Whatever comes goes to the port `limiter`."""
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Client(self, limiter), self.address, 0, backlog=1024)
        return self.server.sockets[0].getsockname()[1]


class Direction(asyncio.Protocol):
    """A direction of a connection. Hands the bytes that it reads to its `peer`, after the delay."""

    def __init__(self, tap):
        self.tap = tap
        self.peer = None
        self.arrives = 0.0

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.later(self.hand, data)

    def connection_lost(self, _):
        self.later(self.close)

    def later(self, do, *arguments):
        always, besides = self.tap.way
        if not always and self.peer:
            return do(*arguments)
        loop = asyncio.get_running_loop()
        jitter = random.expovariate(1 / besides) if besides else 0
        # Bytes that were sent first arrive first.
        self.arrives = max(self.arrives, loop.time() + always + jitter)
        loop.call_at(self.arrives, do, *arguments)

    def hand(self, data):
        self.peer.transport.write(data)

    def close(self):
        if self.peer:
            self.peer.transport.close()


class Client(Direction):
    """Bytes of a client."""

    def __init__(self, tap, limiter):
        super().__init__(tap)
        self.limiter = limiter

    def connection_made(self, transport):
        super().connection_made(transport)
        # Pauses reading until the other side is connected.
        transport.pause_reading()
        self.connecting = asyncio.ensure_future(self.connect())

    async def connect(self):
        loop = asyncio.get_running_loop()
        try:
            _, self.peer = await loop.create_connection(lambda: Limiter(self), self.tap.address, self.limiter)
        except OSError:
            return self.transport.close()
        self.transport.resume_reading()


class Limiter(Direction):
    """Bytes of the limiter."""

    def __init__(self, client):
        super().__init__(client.tap)
        self.peer = client
        self.parser = httptools.HttpResponseParser(self)

    def data_received(self, data):
        self.parser.feed_data(data)
        super().data_received(data)

    def on_headers_complete(self):
        self.tap.answers.append((time.monotonic(), self.parser.get_status_code()))
