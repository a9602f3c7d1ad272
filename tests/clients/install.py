"""Installs the clients that Python and npm have, once; a second run finds them. Owns target/clients, nothing else, but for
the packages of Debian that `more` brings."""

import functools
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
MORE = HERE / "more"
MORE_VENV = PLACE / "more-python"
MORE_NODE = PLACE / "more-node"
GO = PLACE / "more-go"

# Packages for the clients of --all.
PACKAGES = [
    "command -v go => golang-go",
    "command -v javac => default-jdk-headless",
    """php -r 'exit(extension_loaded("curl") ? 0 : 1);' => php-cli php-curl""",
    "perl -MLWP::Protocol::https -e1 => libwww-perl liblwp-protocol-https-perl",
    "command -v ruby => ruby",
    "command -v aria2c => aria2",
    "command -v chromium => chromium",
    "command -v certutil => libnss3-tools",
]


def install():
    """Installs missing packages, and packages from other versions of the lists."""
    PLACE.mkdir(parents=True, exist_ok=True)
    once(VENV, [HERE / "requirements.txt"], python)
    once(NODE, [HERE / "package.json", HERE / "package-lock.json"], node)


def more():
    """Brings what `--all` takes besides."""
    check([str(HERE.parent / "packages"), *PACKAGES])
    once(MORE_VENV, [MORE / "requirements.txt"], python)
    once(MORE_NODE, [MORE / "package.json", MORE / "package-lock.json"], node)
    once(GO, sorted(HERE.glob("programs/*.go")), go)


def search_path():
    """PATH for the clients: the programs installed here, then the system's."""
    own = [VENV / "bin", NODE / "node_modules" / ".bin", toolchain()]
    return os.pathsep.join([*map(str, own), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@functools.cache
def toolchain():
    """Path of cargo itself: the program of that name may be rustup, which looks for cargo in the user's home."""
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip()) / "bin"


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
    make(folder, lists)
    stamp.write_text(wanted.hexdigest())


def python(folder, lists):
    check([sys.executable, "-m", "venv", str(folder)])
    # Without dependencies: the list is complete, and nothing that it does not name comes in.
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    check([*pip, "--no-deps", "--only-binary", ":all:", "--requirement", str(lists[0])])


def node(folder, lists):
    folder.mkdir(parents=True)
    for file in lists:
        shutil.copy(file, folder)
    # No scripts: node-linux-* is the plain program.
    check(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], cwd=folder)


def go(folder, programs):
    for file in programs:
        check(
            ["go", "build", "-o", str(folder / file.stem), str(file)],
            env={**os.environ, "GOCACHE": str(folder / "cache")},
        )


def check(command, **where):
    try:
        subprocess.run(command, check=True, **where)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: cannot install the clients: {error}")
