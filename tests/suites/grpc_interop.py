"""The calls of gRPC's interoperability tests (doc/interop-test-descriptions.md in grpc/grpc), client and server by grpcio, in
each way through andante. The messages are those of grpc.testing, as far as these calls use them.

Left out: cases that need Google's credentials, and the tests of load balancers."""

from concurrent import futures
import time

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from world import attempt

SERVICE = "/grpc.testing.TestService/"
# A name, its number, its type, whether there may be several.
INT32, INT64, BYTES, STRING, BOOL = 5, 3, 12, 9, 8
MESSAGES = {
    "Empty": [],
    "BoolValue": [("value", 1, BOOL)],
    "Payload": [("type", 1, INT32), ("body", 2, BYTES)],
    "EchoStatus": [("code", 1, INT32), ("message", 2, STRING)],
    "ResponseParameters": [("size", 1, INT32), ("interval_us", 2, INT32), ("compressed", 3, "BoolValue")],
    "SimpleRequest": [
        ("response_type", 1, INT32),
        ("response_size", 2, INT32),
        ("payload", 3, "Payload"),
        ("response_compressed", 6, "BoolValue"),
        ("response_status", 7, "EchoStatus"),
        ("expect_compressed", 8, "BoolValue"),
    ],
    "SimpleResponse": [("payload", 1, "Payload")],
    "StreamingInputCallRequest": [("payload", 1, "Payload"), ("expect_compressed", 2, "BoolValue")],
    "StreamingInputCallResponse": [("aggregated_payload_size", 1, INT32)],
    "StreamingOutputCallRequest": [
        ("response_type", 1, INT32),
        ("response_parameters", 2, ["ResponseParameters"]),
        ("payload", 3, "Payload"),
        ("response_status", 7, "EchoStatus"),
    ],
    "StreamingOutputCallResponse": [("payload", 1, "Payload")],
}


def messages():
    """The classes of the messages above."""
    file = descriptor_pb2.FileDescriptorProto(name="interop.proto", package="grpc.testing", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = 3 if isinstance(kind, list) else 1
            kind = kind[0] if isinstance(kind, list) else kind
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = 11, f".grpc.testing.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"grpc.testing.{name}") for name in MESSAGES)
    return {one.name: message_factory.GetMessageClass(one) for one in found}


M = messages()
CALLS = {
    "EmptyCall": ("unary_unary", "Empty", "Empty"),
    "UnaryCall": ("unary_unary", "SimpleRequest", "SimpleResponse"),
    "StreamingInputCall": ("stream_unary", "StreamingInputCallRequest", "StreamingInputCallResponse"),
    "StreamingOutputCall": ("unary_stream", "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
    "FullDuplexCall": ("stream_stream", "StreamingOutputCallRequest", "StreamingOutputCallResponse"),
    "UnimplementedCall": ("unary_unary", "Empty", "Empty"),
}
INITIAL, TRAILING = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"


# The server.


class Server(grpc.GenericRpcHandler):
    def service(self, call):
        name = call.method.removeprefix(SERVICE)
        answer = {
            "EmptyCall": lambda request, context: M["Empty"](),
            "UnaryCall": unary,
            "StreamingInputCall": lambda requests, context: M["StreamingInputCallResponse"](
                aggregated_payload_size=sum(len(request.payload.body) for request in requests)
            ),
            "StreamingOutputCall": output,
            "FullDuplexCall": duplex,
        }.get(name)
        if answer is None:
            return None
        kind, request, response = CALLS[name]
        handler = getattr(grpc, f"{kind}_rpc_method_handler")
        return handler(answer, M[request].FromString, M[response].SerializeToString)


def echo_metadata(context):
    sent = dict(context.invocation_metadata())
    if INITIAL in sent:
        context.send_initial_metadata(((INITIAL, sent[INITIAL]),))
    if TRAILING in sent:
        context.set_trailing_metadata(((TRAILING, sent[TRAILING]),))


def payload(size):
    return M["Payload"](body=bytes(size))


def unary(request, context):
    echo_metadata(context)
    if request.HasField("response_status"):
        context.set_code(tuple(code for code in grpc.StatusCode if code.value[0] == request.response_status.code)[0])
        context.set_details(request.response_status.message)
        return M["SimpleResponse"]()
    if request.response_compressed.value:
        context.set_compression(grpc.Compression.Gzip)
    return M["SimpleResponse"](payload=payload(request.response_size))


def output(request, context):
    for wanted in request.response_parameters:
        time.sleep(wanted.interval_us / 1e6)
        if wanted.compressed.value:
            context.set_compression(grpc.Compression.Gzip)
        yield M["StreamingOutputCallResponse"](payload=payload(wanted.size))


def duplex(requests, context):
    echo_metadata(context)
    for request in requests:
        if request.HasField("response_status"):
            code = [code for code in grpc.StatusCode if code.value[0] == request.response_status.code][0]
            context.abort(code, request.response_status.message)
        yield from output(request, context)


# The client: a function for each test, named as the test is.


class Client:
    def __init__(self, channel):
        for name, (kind, request, response) in {**CALLS, "Unknown": CALLS["EmptyCall"]}.items():
            path = SERVICE + name if name != "Unknown" else "/grpc.testing.UnimplementedService/UnimplementedCall"
            call = getattr(channel, kind)(path, M[request].SerializeToString, M[response].FromString)
            setattr(self, name, call)


def expect(found, expected):
    assert found == expected, f"got {found!r:.200}, expected {expected!r:.200}"


def sizes(wanted, **more):
    parameters = [M["ResponseParameters"](size=size, **more) for size in wanted]
    return M["StreamingOutputCallRequest"](response_parameters=parameters)


def fails(code, details, call):
    try:
        call()
    except grpc.RpcError as error:
        expect(error.code(), code)
        if details is not None:
            expect(error.details(), details)
        return
    raise AssertionError(f"it succeeded, instead of {code}")


def empty_unary(client):
    expect(client.EmptyCall(M["Empty"](), timeout=10), M["Empty"]())


def large_unary(client, compression=None, **more):
    request = M["SimpleRequest"](response_size=314159, payload=payload(271828), **more)
    expect(client.UnaryCall(request, timeout=10, compression=compression).payload.body, bytes(314159))


def client_compressed_unary(client):
    large_unary(client, grpc.Compression.Gzip, expect_compressed=M["BoolValue"](value=True))


def server_compressed_unary(client):
    large_unary(client, response_compressed=M["BoolValue"](value=True))


INPUT, OUTPUT = [27182, 8, 1828, 45904], [31415, 9, 2653, 58979]


def client_streaming(client, compression=None):
    requests = (M["StreamingInputCallRequest"](payload=payload(size)) for size in INPUT)
    answer = client.StreamingInputCall(requests, timeout=10, compression=compression)
    expect(answer.aggregated_payload_size, 74922)


def client_compressed_streaming(client):
    client_streaming(client, grpc.Compression.Gzip)


def server_streaming(client, **more):
    answers = client.StreamingOutputCall(sizes(OUTPUT, **more), timeout=10)
    expect([len(answer.payload.body) for answer in answers], OUTPUT)


def server_compressed_streaming(client):
    server_streaming(client, compressed=M["BoolValue"](value=True))


class Pipe:
    """Requests that are handed over one by one; `None` ends them."""

    def __init__(self):
        from queue import Queue

        self.queue = Queue()

    def send(self, request):
        self.queue.put(request)

    def __iter__(self):
        return iter(self.queue.get, None)


def ping_pong(client):
    pipe = Pipe()
    answers = client.FullDuplexCall(iter(pipe), timeout=10)
    for asked, wanted in zip(INPUT, OUTPUT):
        request = sizes([wanted])
        request.payload.CopyFrom(payload(asked))
        pipe.send(request)
        expect(len(next(answers).payload.body), wanted)
    pipe.send(None)
    expect(list(answers), [])


def empty_stream(client):
    expect(list(client.FullDuplexCall(iter([]), timeout=10)), [])


def custom_metadata(client):
    sent = ((INITIAL, "test_initial_metadata_value"), (TRAILING, b"\xab\xab\xab"))
    request = M["SimpleRequest"](response_size=314159, payload=payload(271828))
    _, call = client.UnaryCall.with_call(request, metadata=sent, timeout=10)
    expect(dict(call.initial_metadata()).get(INITIAL), sent[0][1])
    expect(dict(call.trailing_metadata()).get(TRAILING), sent[1][1])
    answers = client.FullDuplexCall(iter([sizes([314159])]), metadata=sent, timeout=10)
    expect(len(list(answers)), 1)
    expect(dict(answers.initial_metadata()).get(INITIAL), sent[0][1])
    expect(dict(answers.trailing_metadata()).get(TRAILING), sent[1][1])


def status_code_and_message(client, words="test status message"):
    status = M["EchoStatus"](code=2, message=words)
    unknown = grpc.StatusCode.UNKNOWN
    fails(unknown, words, lambda: client.UnaryCall(M["SimpleRequest"](response_status=status), timeout=10))
    request = M["StreamingOutputCallRequest"](response_status=status)
    fails(unknown, words, lambda: list(client.FullDuplexCall(iter([request]), timeout=10)))


def special_status_message(client):
    status_code_and_message(client, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")


def unimplemented_method(client):
    fails(grpc.StatusCode.UNIMPLEMENTED, None, lambda: client.UnimplementedCall(M["Empty"](), timeout=10))


def unimplemented_service(client):
    fails(grpc.StatusCode.UNIMPLEMENTED, None, lambda: client.Unknown(M["Empty"](), timeout=10))


def cancel_after_begin(client):
    call = client.StreamingInputCall.future(iter(Pipe()), timeout=10)
    call.cancel()
    expect(call.code(), grpc.StatusCode.CANCELLED)


def cancel_after_first_response(client):
    pipe = Pipe()
    answers = client.FullDuplexCall(iter(pipe), timeout=10)
    pipe.send(sizes([31415]))
    expect(len(next(answers).payload.body), 31415)
    answers.cancel()
    expect(answers.code(), grpc.StatusCode.CANCELLED)
    pipe.send(None)


def timeout_on_sleeping_server(client):
    pipe = Pipe()
    pipe.send(sizes([31415], interval_us=1_000_000))
    fails(grpc.StatusCode.DEADLINE_EXCEEDED, None, lambda: list(client.FullDuplexCall(iter(pipe), timeout=0.2)))
    pipe.send(None)


def many_at_once(client):
    """Beside the specification: a hundred large calls at once on one connection."""
    request = M["SimpleRequest"](response_size=31415, payload=payload(27182))
    calls = [client.UnaryCall.future(request, timeout=20) for _ in range(100)]
    expect({len(call.result().payload.body) for call in calls}, {31415})


TESTS = [
    empty_unary,
    large_unary,
    client_compressed_unary,
    server_compressed_unary,
    client_streaming,
    client_compressed_streaming,
    server_streaming,
    server_compressed_streaming,
    ping_pong,
    empty_stream,
    custom_metadata,
    status_code_and_message,
    special_status_message,
    unimplemented_method,
    unimplemented_service,
    cancel_after_begin,
    cancel_after_first_response,
    timeout_on_sleeping_server,
    many_at_once,
]


def cases(world, everything):
    server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[Server()])
    identity = [(world.folder / file).read_bytes() for file in ["leaf.key", "leaf.pem"]]
    plain = server.add_insecure_port("127.0.0.1:0")
    tls = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([tuple(identity)]))
    server.start()
    roots = grpc.ssl_channel_credentials(world.roots().read_bytes())
    through = [("grpc.http_proxy", f"http://{world.proxy}")]
    ways = {
        "intercepted": grpc.secure_channel(f"seen.test:{tls}", roots, through),
        "in a blind tunnel": grpc.secure_channel(f"blind.test:{tls}", roots, through),
        "without TLS": grpc.insecure_channel(f"seen.test:{plain}", through),
    }
    for way, channel in ways.items():
        with channel:
            client = Client(channel)
            for _ in range(10 if everything else 1):
                for test in TESTS:
                    yield attempt(f"{test.__name__}, {way}", test, client)
    server.stop(1).wait()
