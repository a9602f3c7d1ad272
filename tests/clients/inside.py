"""Runs inside of `andante run`: the client, and then andante's own account of it. Changes no variable, but in the
gateway way removes all that andante set: a client with a base URL needs none.
Usage: inside.py REPORT ADMIN WAY KEEP COMMAND…"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

# Time in seconds that a client may take.
PATIENCE = 30


def main(report, admin, way, keep, *command):
    before = dict(os.environ)
    address = before["HTTP_PROXY"].removeprefix("http://")
    environment = {name: before[name] for name in keep.split(",")} if way == "gateway" else before
    started = time.monotonic()
    code, out, err = run([part.replace("GATEWAY", address) for part in command], environment)
    took = time.monotonic() - started
    said = {"code": code, "out": out, "err": err, "took": took, "status": status(admin), "upgrades": upgrades(admin)}
    with open(report, "w") as file:
        json.dump(said, file)
    return code


def run(command, environment):
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as client:
        try:
            out, err = client.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            # Ends the client's child processes, too.
            os.killpg(client.pid, signal.SIGKILL)
            out, err = client.communicate()
            err += f"\nno end after {PATIENCE} s"
    return client.returncode, out, err


def status(admin):
    """andante's status, once everything has ended that the client left behind."""
    until = time.monotonic() + 1
    while True:
        found = json.loads(page(admin, "status"))
        busy = found["tunnels"] or sum(lane["in_flight"] for lane in found["lanes"])
        if not busy or time.monotonic() > until:
            return found
        time.sleep(0.02)


def upgrades(admin):
    """Number of connections that have become WebSockets."""
    lines = [line for line in page(admin, "metrics").splitlines() if line.startswith("andante_answers_total{")]
    return sum(int(line.split()[-1]) for line in lines if 'code="101"' in line)


def page(admin, name):
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{admin}/{name}", timeout=5) as answer:
        return answer.read().decode()


sys.exit(main(*sys.argv[1:]))
