"""Plays a case of Autobahn's testsuite as its fuzzing client does, under the names that a case uses."""

import heapq
import itertools
import select
import ssl
import struct
import time
import types


class State:
    STATE_CLOSED, STATE_CONNECTING, STATE_CLOSING, STATE_OPEN = range(4)
    MESSAGE_TYPE_TEXT, MESSAGE_TYPE_BINARY = 1, 2


# Seconds that the server may take to answer a close, and then to close the connection.
CLOSING = 1


class Peer(State):
    CLOSE_STATUS_CODE_NORMAL = 1000
    CLOSE_STATUS_CODE_GOING_AWAY = 1001
    CLOSE_STATUS_CODE_PROTOCOL_ERROR = 1002
    CLOSE_STATUS_CODE_INVALID_PAYLOAD = 1007

    def __init__(self, raw):
        self.raw = raw
        raw.setblocking(False)
        self.factory = types.SimpleNamespace(isServer=False)
        self.state, self.connectionWasOpen = self.STATE_OPEN, True
        self.closedByMe = self.failedByMe = self.droppedByMe = self.wasClean = False
        self.remoteCloseCode = self.localCloseReason = self.trafficStats = None
        self.autoFragmentSize = 0
        self.createWirelog = False
        self.txFrameStats = {}
        self.incoming, self.outgoing = bytearray(), bytearray()
        self.message = None
        self.timers, self.order = [], itertools.count()

    def play(self, one):
        """Results: the messages, and the connection's end."""
        self.case = one(self)
        self.case.compare = lambda a, b: a == b
        self.case.onOpen()
        while self.state != self.STATE_CLOSED:
            self.step()
        self.raw.close()
        self.case.onConnectionLost(self.failedByMe)
        return self.case.behavior, self.case.behaviorClose

    def step(self):
        wait = max(0, self.timers[0][0] - time.monotonic()) if self.timers else 30
        # A TLS connection may have more than its socket shows.
        held = isinstance(self.raw, ssl.SSLSocket) and self.raw.pending()
        readable, writable, _ = select.select([self.raw], [self.raw] if self.outgoing else [], [], 0 if held else wait)
        try:
            if writable:
                del self.outgoing[: self.raw.send(self.outgoing[: 1 << 20])]
            if readable or held:
                more = self.raw.recv(1 << 18)
                self.incoming += more
                if not more:
                    self.state = self.STATE_CLOSED
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.state = self.STATE_CLOSED
        while self.frame():
            pass
        while self.timers and self.timers[0][0] <= time.monotonic() and self.state != self.STATE_CLOSED:
            heapq.heappop(self.timers)[2]()

    def later(self, delay, call):
        heapq.heappush(self.timers, (time.monotonic() + delay, next(self.order), call))

    # Received data.

    def frame(self):
        """Takes a frame out of the received bytes, if there is a whole one."""
        if len(self.incoming) < 2:
            return False
        opcode, length, start = self.incoming[0] & 15, self.incoming[1] & 127, 2
        if length > 125:
            size, form = (2, ">H") if length == 126 else (8, ">Q")
            if len(self.incoming) < 2 + size:
                return False
            start, length = 2 + size, struct.unpack(form, self.incoming[2 : 2 + size])[0]
        if len(self.incoming) < start + length:
            return False
        last, payload = self.incoming[0] & 128, bytes(self.incoming[start : start + length])
        del self.incoming[: start + length]
        self.seen(opcode, last, payload)
        return True

    def seen(self, opcode, last, payload):
        text = payload.decode("latin-1")
        if opcode == 8:
            self.closes(payload)
        elif opcode == 9:
            self.sendFrame(10, text)
        elif opcode == 10:
            self.case.onPong(text)
        else:
            self.message = (opcode, []) if opcode else self.message
            self.message[1].append(text)
            if last and self.state == self.STATE_OPEN:
                self.case.onMessage("".join(self.message[1]), self.message[0] == 2)

    def closes(self, payload):
        self.remoteCloseCode = struct.unpack(">H", payload[:2])[0] if payload else None
        if self.state == self.STATE_OPEN:
            self.sendCloseFrame(self.remoteCloseCode, isReply=True)
        self.wasClean = True
        self.later(CLOSING, self.drop)

    def drop(self):
        self.droppedByMe = True
        self.state = self.STATE_CLOSED

    # Actions of cases.

    def sendFrame(self, opcode, payload="", fin=True, rsv=0, payload_len=None, **_):
        self.txFrameStats[opcode] = self.txFrameStats.get(opcode, 0) + 1
        payload = octets(payload)
        if payload_len is not None:
            payload = (payload * (payload_len // max(1, len(payload)) + 1))[:payload_len]
        self.begin(opcode, fin, rsv, len(payload))
        self.outgoing += payload

    def begin(self, opcode, fin, rsv, length):
        self.outgoing.append(bool(fin) << 7 | rsv << 4 | opcode)
        if length < 126:
            self.outgoing.append(128 | length)
        else:
            self.outgoing += (
                struct.pack(">BH", 128 | 126, length) if length < 65536 else struct.pack(">BQ", 255, length)
            )
        # A mask of zeros is one, and leaves the payload as it is.
        self.outgoing += bytes(4)

    def sendMessage(self, payload, isBinary=False, fragmentSize=None, **_):
        size = fragmentSize or self.autoFragmentSize or max(1, len(payload))
        parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [payload]
        for n, part in enumerate(parts):
            self.sendFrame((2 if isBinary else 1) if n == 0 else 0, part, fin=n == len(parts) - 1)

    def beginMessage(self, isBinary=False):
        self.opcode = 2 if isBinary else 1

    def beginMessageFrame(self, length):
        self.begin(self.opcode, False, 0, length)
        self.opcode = 0

    def sendMessageFrameData(self, payload):
        self.outgoing += octets(payload)

    def endMessage(self):
        self.begin(0, True, 0, 0)

    def sendClose(self, code=None, reason=None):
        if self.state == self.STATE_OPEN:
            self.sendCloseFrame(code, reason)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        self.sendFrame(8, (b"" if code is None else struct.pack(">H", code)) + octets(reasonUtf8 or ""))
        self.state, self.closedByMe, self.localCloseReason = self.STATE_CLOSING, not isReply, reasonUtf8
        if not isReply:
            self.later(CLOSING, self.drop)

    def killAfter(self, delay):
        self.later(delay, self.fail)

    def fail(self):
        self.failedByMe = True
        self.sendClose(self.CLOSE_STATUS_CODE_GOING_AWAY)

    def closeAfter(self, delay):
        self.later(delay, self.sendClose)

    def continueLater(self, delay, call, tag=None):
        self.later(delay, call)

    def enableWirelog(self, _):
        pass


def octets(text):
    return text if isinstance(text, (bytes, bytearray)) else text.encode("latin-1")
