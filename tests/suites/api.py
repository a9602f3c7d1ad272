"""An API that answers each request of HTTP/1.1 with "ok", once it has read it all; with TLS and without."""

import socketserver
import ssl
import threading


class Api:
    """`plain` and `tls` are its ports."""

    def __init__(self, world):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(world.folder / "leaf.pem", world.folder / "leaf.key")
        self.servers = [Server(("127.0.0.1", 0), Connection) for _ in range(2)]
        self.servers[1].context = context
        self.plain, self.tls = (server.server_address[1] for server in self.servers)

    def __enter__(self):
        for server in self.servers:
            threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128
    context = None

    def handle_error(self, *_):
        pass


class Connection(socketserver.StreamRequestHandler):
    def setup(self):
        if self.server.context:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self):
        while self.request_line():
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")

    def request_line(self):
        """Reads a request; false if there is none."""
        if not self.rfile.readline():
            return False
        fields = {}
        while (line := self.rfile.readline()).strip():
            name, value = line.decode("latin-1").split(":", 1)
            fields[name.lower()] = value.strip()
        if fields.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            while self.rfile.readline().strip():
                pass
        self.rfile.read(int(fields.get("content-length", 0)))
        return True
