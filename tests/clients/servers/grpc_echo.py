"""An echo by gRPC, with TLS and without; no generated code, raw bytes.
Usage: grpc_echo.py PLAIN-PORT TLS-PORT CERTIFICATE KEY LOG"""

import sys
from concurrent import futures
from pathlib import Path

import grpc


class Echo(grpc.GenericRpcHandler):
    def __init__(self, log):
        self.log = log

    def service(self, call):
        if call.method == "/clients.Echo/Once":
            return grpc.unary_unary_rpc_method_handler(self.once)
        if call.method == "/clients.Echo/Often":
            return grpc.stream_stream_rpc_method_handler(self.often)
        return None

    def once(self, message, context):
        self.see(context, "Once")
        context.set_trailing_metadata((("echo-length", str(len(message))),))
        return message

    def often(self, messages, context):
        self.see(context, "Often")
        for message in messages:
            yield message
        context.set_trailing_metadata((("echo-end", "yes"),))

    def see(self, context, method):
        with open(self.log, "a") as seen:
            seen.write(f"HTTP/2.0 {context.peer()} POST /clients.Echo/{method}\n")


def main(plain, tls, certificate, key, log):
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo(log)])
    identity = (Path(key).read_bytes(), Path(certificate).read_bytes())
    server.add_insecure_port(f"127.0.0.1:{plain}")
    server.add_secure_port(f"127.0.0.1:{tls}", grpc.ssl_server_credentials([identity]))
    server.start()
    server.wait_for_termination()


main(*sys.argv[1:])
