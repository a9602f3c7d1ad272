"""Usage: with_grpcio.py https://HOST:PORT, or http://HOST:PORT for a channel without TLS."""

import sys

import grpc

scheme, target = sys.argv[1].split("://")
secure = scheme == "https"
channel = grpc.secure_channel(target, grpc.ssl_channel_credentials()) if secure else grpc.insecure_channel(target)
with channel:
    once = channel.unary_unary("/clients.Echo/Once")
    for n in range(5):
        message = b"message %d" % n
        answer, call = once.with_call(message, timeout=10)
        trailers = dict(call.trailing_metadata())
        if answer != message or trailers.get("echo-length") != str(len(message)):
            sys.exit(f"sent {message}, got {answer} with the trailers {trailers}")
    messages = [b"stream %d" % n * 1000 for n in range(5)]
    often = channel.stream_stream("/clients.Echo/Often")(iter(messages), timeout=10)
    if list(often) != messages or dict(often.trailing_metadata()).get("echo-end") != "yes":
        sys.exit("the stream came back incomplete")
print("spoke HTTP/2")
