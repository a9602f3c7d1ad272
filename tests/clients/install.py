"""Installs the clients that Python and npm have, once; a second run finds them. Owns target/clients, nothing else."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
PLACE = Path(os.environ.get("CARGO_TARGET_DIR") or REPOSITORY / "target") / "clients"
VENV = PLACE / "python"
NODE = PLACE / "node"


def install():
    """Brings what is missing, or was installed from other versions of the lists."""
    PLACE.mkdir(parents=True, exist_ok=True)
    once(VENV, [HERE / "requirements.txt"], python)
    once(NODE, [HERE / "package.json", HERE / "package-lock.json"], node)


def search_path():
    """PATH for the clients: what was installed here, then the system's."""
    own = [VENV / "bin", NODE / "node_modules" / ".bin"]
    return os.pathsep.join([*map(str, own), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def once(folder, lists, make):
    wanted = hashlib.sha256(platform.python_version().encode())
    for file in lists:
        wanted.update(file.read_bytes())
    # Written last, so that an installation that broke off is none.
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return
    print(f"clients: installing {' and '.join(file.name for file in lists)} in {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    make(folder)
    stamp.write_text(wanted.hexdigest())


def python(folder):
    check([sys.executable, "-m", "venv", str(folder)])
    # Without dependencies: the list is complete, and nothing that it does not name comes in.
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    check([*pip, "--no-deps", "--only-binary", ":all:", "--requirement", str(HERE / "requirements.txt")])


def node(folder):
    folder.mkdir(parents=True)
    for name in ["package.json", "package-lock.json"]:
        shutil.copy(HERE / name, folder)
    # No scripts: node-linux-* is the plain program.
    check(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)


def check(command, **where):
    try:
        subprocess.run(command, check=True, **where)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: cannot install the clients: {error}")
