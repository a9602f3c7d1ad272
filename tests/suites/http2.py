"""The cases of h2spec (a conformance test of HTTP/2 servers in Go, which no registry has), written anew by their numbers
there, against the side of andante that workers speak to: without TLS, and inside of what it intercepts.

As in h2spec, a closed connection is as good as the right code (h2, the library, says PROTOCOL_ERROR also of frames of a
wrong length and of blocks that cannot be decoded). A malformed request may also be answered with 400 (RFC 9113, section
8.1.1)."""

import socket
import ssl
import struct

from api import Api
from http2_wire import (
    ACK,
    CODES,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PATIENCE,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Connection,
    block,
    frame,
    settings,
)
from world import attempt

CASES = []


def case(name, *expected, **options):
    """Registers a function that makes the connection send, and the required end: `ends` or `resets` with codes, or as
    the function itself finds out."""

    def register(function):
        CASES.append((name, function, expected, options))
        return function

    return register


def sends(name, make, *expected, **options):
    case(name, *expected, **options)(lambda c: c.send(*make(c)))


def length(fields, size):
    return [*fields, ("content-length", str(size))]


CLOSED = ["STREAM_CLOSED", "PROTOCOL_ERROR"]


@case("3.5/1 a client's preface is answered")
def _(c):
    c.send(c.headers(1))
    c.answers()


@case("3.5/2 what is no preface ends the connection", shake=False)
def _(c):
    c.send(PREFACE.replace(b"SM", b"XX") + settings())
    # This port also speaks HTTP/1: an HTTP/1 answer to an invalid preface passes, too.
    c.raw.settimeout(PATIENCE)
    try:
        while c.raw.recv(65536):
            pass
    except ConnectionError:
        pass


@case("4.1/1 a frame of a type that nobody knows is ignored")
def _(c):
    c.send(frame(0x16, 0, 0, b"\0" * 8))
    c.pongs()


@case("4.1/2 flags that nobody knows are ignored")
def _(c):
    c.send(frame(PING, 0x16, 0, b"h2specxx"))
    c.pongs()


@case("4.1/3 the reserved bit is ignored")
def _(c):
    c.send(frame(PING, 0, 0x80000000, b"h2specxx"))
    c.pongs()


@case("4.2/1 a DATA frame of 2^14 octets is taken")
def _(c):
    c.send(c.headers(1, c.post, END_HEADERS), frame(DATA, END_STREAM, 1, bytes(2**14)))
    c.answers()


big = bytes(2**14 + 1)
sends(
    "4.2/2 a larger DATA frame",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(DATA, END_STREAM, 1, big)],
    "resets",
    "FRAME_SIZE_ERROR",
)
sends(
    "4.2/3 a larger HEADERS frame",
    lambda c: [frame(HEADERS, END_STREAM | END_HEADERS, 1, block(c.fields) + big)],
    "ends",
    "FRAME_SIZE_ERROR",
    "COMPRESSION_ERROR",
)
sends(
    "4.3/1 a block that cannot be decoded",
    lambda c: [frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x40\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")],
    "ends",
    "COMPRESSION_ERROR",
)
sends(
    "4.3/2 a PRIORITY frame inside of a block",
    lambda c: [c.headers(1, None, END_STREAM), frame(PRIORITY, 0, 1, struct.pack(">IB", 0, 255))],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "4.3/3 another stream's HEADERS inside of a block",
    lambda c: [c.headers(1, None, END_STREAM), c.headers(3)],
    "ends",
    "PROTOCOL_ERROR",
)

window = struct.pack(">I", 100)
cancel = struct.pack(">I", CODES["CANCEL"])
sends("5.1/1 DATA on an idle stream", lambda c: [frame(DATA, END_STREAM, 1, b"test")], "ends", *CLOSED)
sends("5.1/2 RST_STREAM on an idle stream", lambda c: [frame(RST_STREAM, 0, 1, cancel)], "ends", "PROTOCOL_ERROR")
sends("5.1/3 WINDOW_UPDATE on an idle stream", lambda c: [frame(WINDOW_UPDATE, 0, 1, window)], "ends", "PROTOCOL_ERROR")
sends(
    "5.1/4 CONTINUATION on an idle stream",
    lambda c: [frame(CONTINUATION, END_HEADERS, 1, block(c.fields))],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "5.1/5 DATA on a half-closed stream",
    lambda c: [c.headers(1), frame(DATA, END_STREAM, 1, b"test")],
    "resets",
    *CLOSED,
)
sends("5.1/6 HEADERS on a half-closed stream", lambda c: [c.headers(1), c.headers(1)], "resets", *CLOSED)
sends(
    "5.1/7 CONTINUATION on a half-closed stream",
    lambda c: [c.headers(1), frame(CONTINUATION, END_HEADERS, 1, block([("x", "y")]))],
    "ends",
    *CLOSED,
)
sends(
    "5.1/8 DATA after RST_STREAM",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(RST_STREAM, 0, 1, cancel), frame(DATA, END_STREAM, 1, b"test")],
    "resets",
    *CLOSED,
)
sends(
    "5.1/9 HEADERS after RST_STREAM",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(RST_STREAM, 0, 1, cancel), c.headers(1)],
    "resets",
    *CLOSED,
)
sends(
    "5.1/10 CONTINUATION after RST_STREAM",
    lambda c: [
        c.headers(1, c.post, END_HEADERS),
        frame(RST_STREAM, 0, 1, cancel),
        frame(CONTINUATION, END_HEADERS, 1, block([("x", "y")])),
    ],
    "ends",
    *CLOSED,
)


def after_the_answer(c, *frames):
    c.send(c.headers(1))
    c.until(lambda kind, flags, stream, _: kind == DATA and flags & END_STREAM)
    return frames


sends(
    "5.1/11 DATA on a closed stream",
    lambda c: after_the_answer(c, frame(DATA, END_STREAM, 1, b"test")),
    "resets",
    *CLOSED,
)
sends("5.1/12 HEADERS on a closed stream", lambda c: after_the_answer(c, c.headers(1)), "resets", *CLOSED)
sends(
    "5.1/13 CONTINUATION on a closed stream",
    lambda c: after_the_answer(c, frame(CONTINUATION, END_HEADERS, 1, block([("x", "y")]))),
    "ends",
    *CLOSED,
)
sends("5.1.1/1 a stream with an even number", lambda c: [c.headers(2)], "ends", "PROTOCOL_ERROR")
sends(
    "5.1.1/2 a stream with a lower number",
    lambda c: after_the_answer(c) + (c.headers(5), c.headers(3)),
    "ends",
    *CLOSED,
)


@case("5.1.2/1 more streams than are allowed at once")
def _(c):
    most = c.peer.get(3)
    if most is None or most > 1000:
        return
    streams = [1 + 2 * n for n in range(most + 1)]
    c.send(*(c.headers(stream, c.post, END_HEADERS) for stream in streams))
    c.resets("REFUSED_STREAM", "PROTOCOL_ERROR", "ENHANCE_YOUR_CALM", stream=streams[-1])


sends(
    "5.3.1/1 HEADERS that depend on themselves",
    lambda c: [c.headers(1, None, END_STREAM | END_HEADERS | PRIORITISED, struct.pack(">IB", 1, 255)), c.headers(3)],
    "takes or resets",
)
sends(
    "5.3.1/2 PRIORITY that depends on itself",
    lambda c: [frame(PRIORITY, 0, 1, struct.pack(">IB", 1, 255)), c.headers(3)],
    "takes or resets",
)


@case("5.4.1/1 after a connection error the connection is closed")
def _(c):
    c.send(frame(DATA, END_STREAM, 1, b"test"))
    c.closed()


@case("5.5/1 a frame of an extension is ignored")
def _(c):
    c.send(frame(0xFF, 0, 1, b"test"))
    c.pongs()


sends(
    "5.5/2 a frame of an extension inside of a block",
    lambda c: [c.headers(1, None, END_STREAM), frame(0xFF, 0, 0, b"test")],
    "ends",
    "PROTOCOL_ERROR",
)
sends("6.1/1 DATA on no stream", lambda c: [frame(DATA, END_STREAM, 0, b"test")], "ends", "PROTOCOL_ERROR")
sends(
    "6.1/2 DATA on a stream that is not open",
    lambda c: after_the_answer(c, frame(DATA, END_STREAM, 1, b"test")),
    "resets",
    *CLOSED,
)
sends(
    "6.1/3 DATA with more padding than payload",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(DATA, END_STREAM | PADDED, 1, b"\x06test")],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.2/1 HEADERS inside of a block",
    lambda c: [c.headers(1, None, END_STREAM), c.headers(1)],
    "ends",
    "PROTOCOL_ERROR",
)
sends("6.2/2 HEADERS on no stream", lambda c: [c.headers(0)], "ends", "PROTOCOL_ERROR")
sends(
    "6.2/3 HEADERS with more padding than payload",
    lambda c: [frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, b"\xff" + block(c.fields))],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.3/1 PRIORITY on no stream",
    lambda c: [frame(PRIORITY, 0, 0, struct.pack(">IB", 0, 255))],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.3/2 PRIORITY of another length",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(PRIORITY, 0, 1, b"\0\0\0\x80")],
    "resets",
    "FRAME_SIZE_ERROR",
)
sends("6.4/1 RST_STREAM on no stream", lambda c: [frame(RST_STREAM, 0, 0, cancel)], "ends", "PROTOCOL_ERROR")
sends(
    "6.4/3 RST_STREAM of another length",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(RST_STREAM, 0, 1, b"\0\0\0")],
    "ends",
    "FRAME_SIZE_ERROR",
)
sends("6.5/1 an acknowledgement with a payload", lambda c: [frame(SETTINGS, ACK, 0, b"\0")], "ends", "FRAME_SIZE_ERROR")
sends(
    "6.5/2 SETTINGS on a stream",
    lambda c: [frame(SETTINGS, 0, 1, struct.pack(">HI", 3, 100))],
    "ends",
    "PROTOCOL_ERROR",
)
sends("6.5/3 SETTINGS of another length", lambda c: [frame(SETTINGS, 0, 0, b"\0\x03\0")], "ends", "FRAME_SIZE_ERROR")
sends("6.5.2/1 ENABLE_PUSH other than 0 and 1", lambda c: [settings((2, 2))], "ends", "PROTOCOL_ERROR")
sends("6.5.2/2 INITIAL_WINDOW_SIZE above 2^31-1", lambda c: [settings((4, 2**31))], "ends", "FLOW_CONTROL_ERROR")
sends("6.5.2/3 MAX_FRAME_SIZE below 2^14", lambda c: [settings((5, 2**14 - 1))], "ends", "PROTOCOL_ERROR")
sends("6.5.2/4 MAX_FRAME_SIZE above 2^24-1", lambda c: [settings((5, 2**24))], "ends", "PROTOCOL_ERROR")


@case("6.5.2/5 a setting that nobody knows is ignored")
def _(c):
    c.send(settings((0xFF, 1)))
    c.pongs()


@case("6.5.3/2 SETTINGS are acknowledged")
def _(c):
    c.send(settings((2, 0)))
    found = c.until(lambda kind, flags, *_: kind == SETTINGS and flags & ACK)
    assert found, "closed the connection"


@case("6.7/1 a PING is answered with its payload")
def _(c):
    c.pongs(b"01234567")


@case("6.7/2 an acknowledged PING is not answered")
def _(c):
    c.send(frame(PING, ACK, 0, b"invalid!"))
    c.pongs()


sends("6.7/3 PING on a stream", lambda c: [frame(PING, 0, 1, b"h2specxx")], "ends", "PROTOCOL_ERROR")
sends("6.7/4 PING of another length", lambda c: [frame(PING, 0, 0, b"\0" * 6)], "ends", "FRAME_SIZE_ERROR")
sends("6.8/1 GOAWAY on a stream", lambda c: [frame(GOAWAY, 0, 1, bytes(8))], "ends", "PROTOCOL_ERROR")
sends("6.9/1 WINDOW_UPDATE by 0", lambda c: [frame(WINDOW_UPDATE, 0, 0, bytes(4))], "ends", "PROTOCOL_ERROR")
sends(
    "6.9/2 WINDOW_UPDATE by 0 on a stream",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(WINDOW_UPDATE, 0, 1, bytes(4))],
    "resets",
    "PROTOCOL_ERROR",
)
sends(
    "6.9/3 WINDOW_UPDATE of another length",
    lambda c: [frame(WINDOW_UPDATE, 0, 0, b"\0\0\0")],
    "ends",
    "FRAME_SIZE_ERROR",
)


@case("6.9.1/1 no more DATA than the window has room for", shake=False)
def _(c):
    c.send(PREFACE + settings((4, 1)))
    c.send(c.headers(1))
    found = c.until(lambda kind, *_: kind == DATA)
    assert found and len(found[3]) == 1, f"sent {found}"


limit = struct.pack(">I", 2**31 - 1)
sends("6.9.1/2 a window above 2^31-1", lambda c: [frame(WINDOW_UPDATE, 0, 0, limit)] * 2, "ends", "FLOW_CONTROL_ERROR")
sends(
    "6.9.1/3 a stream's window above 2^31-1",
    lambda c: [c.headers(1, c.post, END_HEADERS), *[frame(WINDOW_UPDATE, 0, 1, limit)] * 2],
    "resets",
    "FLOW_CONTROL_ERROR",
)


@case("6.9.2/1 a larger initial window holds for open streams", shake=False)
def _(c):
    c.send(PREFACE + settings((4, 0)))
    c.send(c.headers(1))
    c.until(lambda kind, *_: kind == HEADERS)
    c.send(settings((4, 1)))
    found = c.until(lambda kind, *_: kind == DATA)
    assert found and len(found[3]) == 1, f"sent {found}"


@case("6.9.2/2 a window below 0 is made up for first", shake=False)
def _(c):
    c.send(PREFACE + settings((4, 1)))
    c.send(c.headers(1))
    c.until(lambda kind, *_: kind == DATA)
    c.send(settings((4, 0)), frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 2)))
    found = c.until(lambda kind, *_: kind == DATA)
    assert found and len(found[3]) == 1, f"sent {found}"


sends(
    "6.9.2/3 a change that lifts a window above 2^31-1", lambda c: [settings((4, 2**31))], "ends", "FLOW_CONTROL_ERROR"
)


@case("6.10/1 a block in several CONTINUATION frames")
def _(c):
    more = [block([(f"x-{n}", "y")]) for n in range(3)]
    frames = [frame(CONTINUATION, 0, 1, part) for part in more[:2]]
    c.send(c.headers(1, None, END_STREAM), *frames, frame(CONTINUATION, END_HEADERS, 1, more[2]))
    c.answers()


more = block([("x", "y")])
sends(
    "6.10/2 a block that ends with another frame",
    lambda c: [c.headers(1, None, END_STREAM), frame(CONTINUATION, 0, 1, more), frame(DATA, END_STREAM, 1, b"test")],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.10/3 CONTINUATION on no stream",
    lambda c: [c.headers(1, None, END_STREAM), frame(CONTINUATION, END_HEADERS, 0, more)],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.10/4 CONTINUATION after a whole block",
    lambda c: [c.headers(1, c.post, END_HEADERS), frame(CONTINUATION, END_HEADERS, 1, more)],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.10/5 CONTINUATION after the end of a block",
    lambda c: [
        c.headers(1, c.post, 0),
        frame(CONTINUATION, END_HEADERS, 1, more),
        frame(CONTINUATION, END_HEADERS, 1, more),
    ],
    "ends",
    "PROTOCOL_ERROR",
)
sends(
    "6.10/6 CONTINUATION after DATA",
    lambda c: [
        c.headers(1, c.post, END_HEADERS),
        frame(DATA, 0, 1, b"test"),
        frame(CONTINUATION, END_HEADERS, 1, more),
    ],
    "ends",
    "PROTOCOL_ERROR",
)


@case("7/1 a GOAWAY with an unknown code")
def _(c):
    c.send(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0xFF)))
    c.send(frame(PING, 0, 0, b"h2specxx"))
    c.until(lambda kind, flags, *_: kind == PING and flags & ACK)


@case("7/2 an RST_STREAM with an unknown code")
def _(c):
    c.send(c.headers(1, c.post, END_HEADERS), frame(RST_STREAM, 0, 1, struct.pack(">I", 0xFF)))
    c.pongs()


def malformed(name, fields, flags=END_STREAM | END_HEADERS):
    sends(name, lambda c: [c.headers(1, fields(c), flags)], "resets", "PROTOCOL_ERROR", malformed=True)


def trailers(name, fields):
    def make(c):
        return [c.headers(1, c.post, END_HEADERS), frame(DATA, 0, 1, b"test"), *fields(c)]

    sends(name, make, "resets", "PROTOCOL_ERROR", malformed=True)


trailers("8.1/1 trailers that do not end the stream", lambda c: [c.headers(1, [("x-test", "ok")], END_HEADERS)])
malformed("8.1.2/1 a name with a capital", lambda c: [*c.fields, ("X-TEST", "ok")])
malformed("8.1.2.1/1 an unknown pseudo-field", lambda c: [*c.fields, (":test", "ok")])
malformed("8.1.2.1/2 a pseudo-field of answers", lambda c: [*c.fields, (":status", "200")])
# h2 drops a lone pseudo-field before andante sees it.
trailers("8.1.2.1/3 a pseudo-field in trailers", lambda c: [c.headers(1, [("x-test", "ok"), (":method", "200")])])
malformed("8.1.2.1/4 a pseudo-field behind another", lambda c: [c.fields[0], ("x-test", "ok"), *c.fields[1:]])
malformed("8.1.2.2/1 a field of connections", lambda c: [*c.fields, ("connection", "keep-alive")])
malformed("8.1.2.2/2 TE other than trailers", lambda c: [*c.fields, ("te", "trailers, deflate;q=0.5")])
malformed("8.1.2.3/1 an empty path", lambda c: [(name, "" if name == ":path" else value) for name, value in c.fields])
for number, name in enumerate([":method", ":scheme", ":path"]):
    malformed(f"8.1.2.3/{number + 2} no {name}", lambda c, name=name: [field for field in c.fields if field[0] != name])
    malformed(f"8.1.2.3/{number + 5} {name} twice", lambda c, number=number: [*c.fields, c.fields[number]])
sends(
    "8.1.2.6/1 another length than announced",
    lambda c: [c.headers(1, length(c.post, 1), END_HEADERS), frame(DATA, END_STREAM, 1, b"test")],
    "resets",
    "PROTOCOL_ERROR",
    malformed=True,
)
sends(
    "8.1.2.6/2 the same in several frames",
    lambda c: [
        c.headers(1, length(c.post, 1), END_HEADERS),
        frame(DATA, 0, 1, b"test"),
        frame(DATA, END_STREAM, 1, b"test"),
    ],
    "resets",
    "PROTOCOL_ERROR",
    malformed=True,
)
sends(
    "8.2/1 PUSH_PROMISE from a client",
    lambda c: [frame(PUSH_PROMISE, END_HEADERS, 1, struct.pack(">I", 3) + block(c.fields))],
    "ends",
    "PROTOCOL_ERROR",
)


def hpack(name, added):
    sends(f"hpack {name}", lambda c: [c.headers(1, after=added)], "ends", "COMPRESSION_ERROR")


hpack("2.3.3/1 an index that is in no table", b"\xc6")
hpack("2.3.3/2 a name's index that is in no table", b"\x7f\x10\x01a")
hpack("4.2/1 a new table size at the end of a block", b"\x20")
hpack("5.2/1 Huffman padding of more than 7 bits", b"\x40\x01a\x84\xff\xff\xff\xff")
hpack("5.2/2 Huffman padding of zeros", b"\x40\x01a\x81\x18")
hpack("5.2/3 a Huffman string with its end mark", b"\x40\x01a\x84\xff\xff\xff\xfc")
hpack("6.1/1 the index 0", b"\x80")
sends(
    "hpack 6.3/1 a new table size above the limit",
    lambda c: [frame(HEADERS, END_STREAM | END_HEADERS, 1, b"\x3f\xe1\xff\x03" + block(c.fields))],
    "ends",
    "COMPRESSION_ERROR",
)


@case("generic/2/1 a stream's reserved states are not needed: HEADERS, PRIORITY and WINDOW_UPDATE together")
def _(c):
    c.send(c.headers(1, c.post, END_HEADERS), frame(PRIORITY, 0, 3, struct.pack(">IB", 1, 255)))
    c.send(frame(WINDOW_UPDATE, 0, 1, window), frame(DATA, END_STREAM, 1, b"test"))
    c.answers()


@case("generic/3/1 padding and priority in HEADERS, padding in DATA")
def _(c):
    padded = b"\x08" + struct.pack(">IB", 0, 15) + block(c.post) + bytes(8)
    c.send(frame(HEADERS, END_HEADERS | PADDED | PRIORITISED, 1, padded))
    c.send(frame(DATA, END_STREAM | PADDED, 1, b"\x08test" + bytes(8)))
    c.answers()


@case("generic/4/1 trailers")
def _(c):
    c.send(c.headers(1, c.post, END_HEADERS), frame(DATA, 0, 1, b"test"), c.headers(1, [("x-test", "ok")]))
    c.answers()


@case("generic/4/2 a HEAD, a POST and an OPTIONS on one connection")
def _(c):
    for stream, method in [(1, "HEAD"), (3, "POST"), (5, "OPTIONS")]:
        c.send(c.headers(stream, [(":method", method), *c.fields[1:]]))
        c.answers(stream)


def run(way, function, expected, shake=True, malformed=False):
    connection = Connection(way, shake)
    try:
        function(connection)
        if not expected:
            return
        verb, *names = expected
        if verb == "ends":
            connection.ends(*names)
        elif verb == "resets":
            connection.resets(*names, malformed=malformed)
        else:
            # RFC 9113 has taken priorities out: a priority may be ignored, or be an error as in RFC 7540.
            found = connection.until(lambda kind, _, on, payload: kind in (GOAWAY, RST_STREAM) or on == 3)
            assert found is None or found[0] in (HEADERS, GOAWAY, RST_STREAM), f"sent {found}"
    finally:
        connection.raw.close()


def cases(world, everything):
    with Api(world) as api:
        address = ("127.0.0.1", world.port)

        def plain():
            return socket.create_connection(address, PATIENCE), f"seen.test:{api.plain}", "http"

        def intercepted():
            raw = socket.create_connection(address, PATIENCE)
            host = f"seen.test:{api.tls}"
            raw.sendall(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            said = b""
            while b"\r\n\r\n" not in said:
                said += raw.recv(1)
            context = ssl.create_default_context(cafile=world.roots())
            context.set_alpn_protocols(["h2"])
            inside = context.wrap_socket(raw, server_hostname="seen.test")
            assert inside.selected_alpn_protocol() == "h2"
            return inside, host, "https"

        for name, way in [("without TLS", plain), ("intercepted", intercepted)]:
            for title, function, expected, options in CASES:
                yield attempt(f"{title}, {name}", lambda: run(way, function, expected, **options))
