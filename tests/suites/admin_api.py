"""Schemathesis against the admin API: every answer to requests made of its OpenAPI description is one that this allows."""

import os
import re
import subprocess
import sys

from install import PLACE
from upstream import free_ports
from world import attempt

TOKEN = "token-of-a-test-suite"
# Operation that is left out, because it ends andante, or never ends.
LEFT_OUT = "drain"


def cases(world, everything):
    """A single case: Schemathesis prints its own count of cases."""
    yield attempt("answers are as openapi.json says", run, world, everything)


def run(world, everything):
    proxy, admin = free_ports(2)
    folder = world.folder / "admin-api"
    folder.mkdir()
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    program = os.environ.get("ANDANTE") or PLACE.parent / "debug" / "andante"
    command = ["setpriv", "--pdeathsig", "TERM", program, "serve", "--state", "off", "--data", folder]
    command += ["--listen", f"127.0.0.1:{proxy}", "--admin", f"127.0.0.1:{admin}", "--admin-token", token]
    command += ["--limit", "api.test=10/s"]
    with open(folder / "log", "w") as log:
        andante = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)
    try:
        found = schemathesis(f"http://127.0.0.1:{admin}/api/v1/openapi.json", everything)
        assert andante.poll() is None, f"andante has ended: {(folder / 'log').read_text()[-2000:]}"
    finally:
        andante.kill()
        andante.wait()
    assert found.returncode == 0, re.sub(r"\x1b\[[0-9;]*m", "", found.stdout)[-4000:]


def schemathesis(description, everything):
    command = [sys.executable, "-m", "schemathesis.cli", "run", description, "--wait-for-schema", "15"]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--exclude-path-regex", LEFT_OUT]
    # A schema of strings does not say what a URL or a limit is: some that it allows are answered 400.
    command += ["--exclude-checks", "positive_data_acceptance"]
    phases = "examples,coverage,fuzzing" if everything else "examples,coverage"
    command += ["--phases", phases, "--max-examples", "50" if everything else "10", "--seed", "1"]
    without_proxy = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=without_proxy, check=False)
