"""A client in one way: runs it under `andante run`, and checks the results."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from install import HERE, MORE_NODE, NODE, search_path
from matrix import Not
from upstream import free_ports

# Limits that delay no request.
RULE = """
[[rule]]
name = "test"
host = "*.test"
limits = ["1000/s burst 1000"]
resolve = "127.0.0.1"
"""
TUNNEL = 'https = "tunnel"\n'
# The one client that has no base path.
ROUTE = """
[[gateway]]
path = "/clients.Echo"
to = "https://grpc.test:{grpcs}/clients.Echo"
"""

# Where clients look for the roots that they trust. In a tunnel the upstream's certificate is theirs to check, so there
# the machine trusts our authority, in each client's own words, before andante is started.
TRUST = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "PERL_LWP_SSL_CA_FILE",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "npm_config_cafile",
    "YARN_HTTPS_CA_FILE_PATH",
]


class Outcome(NamedTuple):
    """`complaints` is empty if all was well."""

    complaints: list
    summary: str


def run(andante, client, way, upstream):
    """Runs the cell; `Not` if there is none."""
    command = client.command_for(way, upstream.ports)
    if isinstance(command, Not):
        return command
    upstream.seen()
    with tempfile.TemporaryDirectory(dir=upstream.folder, prefix=f"{client.key}-{way}-") as folder:
        folder = Path(folder)
        said, report = around(andante, command, way, upstream, folder)
    if report is None:
        return Outcome([f"andante run ended before the client did: {said.strip()[-2000:]}"], "")
    return judge(client, way, report, upstream.seen(), said)


def around(andante, command, way, upstream, folder):
    """Output of andante, and the report of `inside.py`."""
    admin = f"127.0.0.1:{free_ports(1)[0]}"
    config = f'admin = "{admin}"\n' + (ROUTE.format(**upstream.ports) if way == "gateway" else "")
    config += RULE + (TUNNEL if way == "tunnel" else "")
    (folder / "andante.toml").write_text(config)
    environment = bare(folder)
    if way == "tunnel":
        environment.update(trust(upstream, folder))
    keep = ",".join(bare(folder))
    (folder / "work").mkdir()
    arguments = ["run", "--config", str(folder / "andante.toml")]
    if way != "plain":
        arguments += ["--upstream-ca", str(upstream.folder / "ca.pem")]
    inside = [sys.executable, str(HERE / "inside.py"), str(folder / "report"), admin, way, keep]
    ran = subprocess.run(
        [andante, *arguments, "--", *inside, *command],
        cwd=folder / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    report = folder / "report"
    return ran.stderr, json.loads(report.read_text()) if report.exists() else None


def bare(folder):
    """An environment without proxy and certificate variables, and without a user's configuration."""
    return {
        "PATH": search_path(),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TMPDIR": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "NODE_CLIENTS": str(NODE / "package.json"),
        "MORE_NODE_CLIENTS": str(MORE_NODE / "package.json"),
    }


def trust(upstream, folder):
    roots = str(upstream.folder / "ca.pem")
    # wget has no variable for the file, but one for a configuration that may name it.
    (folder / "wgetrc").write_text(f"ca_certificate = {roots}\n")
    return {**{name: roots for name in TRUST}, "SYSTEM_WGETRC": str(folder / "wgetrc")}


def judge(client, way, report, seen, said):
    complaints = []
    if report["code"] != 0:
        complaints.append(f"exit code {report['code']}: {(report['out'] + report['err']).strip()[-2000:]}")
    spoken = " ".join(report["out"].split("spoke", 1)[-1].split())
    if client.speaks and report["code"] == 0 and spoken != client.speaks:
        complaints.append(f"the client spoke {spoken}, not {client.speaks}")
    protocols = {request.protocol for request in seen}
    if protocols != {client.upstream}:
        complaints.append(f"the upstream was spoken to by {sorted(protocols)}, not {client.upstream}")
    count = len(seen)
    if client.requests is not None and count != client.requests:
        complaints.append(f"the upstream saw {count} requests, not {client.requests}")
    complaints += counted(client, way, report, seen)
    if complaints and said.strip():
        complaints.append(f"andante said: {said.strip()[-2000:]}")
    connections = len({request.connection for request in seen})
    summary = f"{report['took']:.1f} s, {count} requests on {connections} connections, {'/'.join(sorted(protocols))}"
    return Outcome(complaints, summary)


def counted(client, way, report, seen):
    """Whether andante paced each request, or each tunnel."""
    status = report["status"]
    sent, requests = sum(lane["sent_total"] for lane in status["lanes"]), status["requests"]
    tunnels = requests["tunnelled"] + status["tunnels"]
    if way == "tunnel":
        connections = len({request.connection for request in seen})
        expected = (connections, connections)
        complaints = []
        if client.tunnels is not None and connections != client.tunnels:
            complaints.append(f"the upstream saw {connections} connections, not {client.tunnels}")
    else:
        expected, complaints = (len(seen), 0), []
    if (sent, tunnels) != expected:
        complaints.append(f"andante sent {sent}, {tunnels} of them tunnels; the upstream saw {expected}")
    trouble = {name: requests[name] for name in ["refused", "failed", "left", "rejected"] if requests[name]}
    return [*complaints, f"andante counted {trouble}"] if trouble else complaints
