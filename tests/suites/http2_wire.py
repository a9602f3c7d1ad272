"""An HTTP/2 connection that can send anything, and the permitted reactions."""

import socket
import struct

from hpack import Encoder

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
CODES = {
    "PROTOCOL_ERROR": 1,
    "FLOW_CONTROL_ERROR": 3,
    "STREAM_CLOSED": 5,
    "FRAME_SIZE_ERROR": 6,
    "REFUSED_STREAM": 7,
    "CANCEL": 8,
    "COMPRESSION_ERROR": 9,
    "ENHANCE_YOUR_CALM": 11,
}
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Seconds that an answer may take, and after which silence counts as no answer.
PATIENCE = 5


def frame(kind, flags, stream, payload=b"", length=None):
    length = len(payload) if length is None else length
    return length.to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def settings(*pairs):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def block(fields):
    """A block whose fields go into no table, so that each stands alone."""
    return Encoder().encode([(name, value) for name, value in fields], huffman=False)


class Connection:
    """A connection that can send anything. `fields` are those of a valid request."""

    def __init__(self, way, shake=True):
        self.raw, authority, scheme = way()
        self.raw.settimeout(PATIENCE)
        self.fields = [(":method", "GET"), (":scheme", scheme), (":path", "/"), (":authority", authority)]
        self.post = [(":method", "POST"), *self.fields[1:]]
        self.buffer = b""
        self.peer = {}
        if shake:
            self.send(PREFACE + settings())
            kind, _, _, payload = self.next()
            assert kind == SETTINGS, "its first frame is not SETTINGS"
            self.peer = dict(struct.iter_unpack(">HI", payload))
            self.send(frame(SETTINGS, ACK, 0))

    def send(self, *frames):
        try:
            self.raw.sendall(b"".join(frames))
        except OSError:
            # The connection may be closed already; the test is about the bytes sent before.
            pass

    def headers(self, stream, fields=None, flags=END_STREAM | END_HEADERS, before=b"", after=b""):
        return frame(HEADERS, flags, stream, before + block(fields or self.fields) + after)

    def next(self):
        """The next frame; `None` at the end of the connection."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            try:
                more = self.raw.recv(65536)
            except (TimeoutError, socket.timeout):
                raise AssertionError(f"said nothing more within {PATIENCE} s") from None
            except OSError:
                more = b""
            if not more:
                return None
            self.buffer += more
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags = self.buffer[3:5]
        stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFFFFFF
        payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
        return kind, flags, stream, payload

    def until(self, wanted):
        """The first frame for which `wanted` is true; `None` at the end of the connection."""
        while (found := self.next()) is not None and not wanted(*found):
            pass
        return found

    # Expected events.

    def ends(self, *names):
        """The connection: GOAWAY with one of these codes, or its end."""
        found = self.until(lambda kind, *_: kind == GOAWAY)
        if found and not self.has(found[3][4:8], names):
            self.closed()

    def resets(self, *names, stream=1, malformed=False):
        """The stream: RST_STREAM with one of these codes, or a harder reaction."""
        found = self.until(
            lambda kind, _, on, payload: kind == GOAWAY
            or (on == stream and (kind == RST_STREAM or (malformed and kind == HEADERS)))
        )
        if found and found[0] == HEADERS:
            # 400 in HPACK's static table, or written out.
            assert found[3][0] == 0x8C or b"400" in found[3], "was answered as if it were in order"
        elif found and found[0] == GOAWAY and not self.has(found[3][4:8], names):
            self.closed()
        elif found and found[0] == RST_STREAM:
            assert self.has(found[3], names), f"RST_STREAM with the code {found[3]}, not {' or '.join(names)}"

    def has(self, code, names):
        return int.from_bytes(code, "big") in [CODES[name] for name in names]

    def answers(self, stream=1):
        found = self.until(
            lambda kind, _, on, payload: kind == GOAWAY or (on == stream and kind in (HEADERS, RST_STREAM))
        )
        assert found, "closed the connection instead of answering"
        assert found[0] == HEADERS and found[3][0] == 0x88, f"did not answer with 200: {found}"

    def pongs(self, payload=b"h2specxx"):
        self.send(frame(PING, 0, 0, payload))
        found = self.until(lambda kind, flags, _, said: kind == GOAWAY or (kind == PING and flags & ACK))
        assert found and found[0] == PING and found[3] == payload, f"did not answer a PING: {found}"

    def closed(self):
        assert self.until(lambda *_: False) is None
