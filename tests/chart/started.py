"""Starts andante as a container of the chart would: with its arguments, variables, files and probes, on addresses of its own."""

import contextlib
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

START_SECONDS = 20


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def complaint(andante, container, config):
    """None, or the problem that kept a probe from succeeding."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        mounts = {mount["mountPath"]: folder / mount["name"] for mount in container["volumeMounts"]}
        for place in mounts.values():
            place.mkdir()
        (mounts["/etc/andante"] / "andante.toml").write_text(config)
        variables = {one["name"]: one["value"] for one in container["env"]}
        for path, place in mounts.items():
            variables = {
                name: value.replace(path, str(place), 1) if value.startswith(path) else value
                for name, value in variables.items()
            }
        # The store is another pod: the chart is not responsible for andante without it.
        variables["ANDANTE_STORE"] = "off"
        variables["ANDANTE_LISTEN"], admin = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        variables["ANDANTE_ADMIN"] = admin
        if "/ca" in mounts:
            subprocess.run([andante, "ca", "init", "--data", mounts["/ca"]], check=True, capture_output=True)
        environment = {**os.environ, **variables}
        arguments = [one.replace("/etc/andante", str(mounts["/etc/andante"])) for one in container["args"]]
        with open(folder / "log", "w") as log:
            process = subprocess.Popen([andante, *arguments], env=environment, stdout=log, stderr=log)
        try:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in container and not succeeds(container[probe], andante, admin, environment, process):
                    return f"{probe}: no; " + (folder / "log").read_text()
        finally:
            process.kill()
            process.wait()


def succeeds(probe, andante, admin, environment, process):
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        if "exec" in probe:
            command = [andante, *probe["exec"]["command"][1:]]
            if not subprocess.run(command, env=environment, capture_output=True).returncode:
                return True
        else:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{admin}{probe['httpGet']['path']}", timeout=3):
                return True
        time.sleep(0.05)
    return False
