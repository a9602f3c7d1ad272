"""Installs the limiters that Python and npm have, once, in target/limiters, and says where they are."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "clients"))

import install  # noqa: E402

REPOSITORY = install.REPOSITORY
PLACE = install.PLACE.parent / "limiters"
VENV = PLACE / "python"
NODE = PLACE / "node"
GO = PLACE / "go" / "bucket"
SITE_PACKAGES = Path(sysconfig.get_path("purelib", vars={"base": str(VENV)}))
# Debian's packages.
PROGRAMS = ["nginx", "haproxy", "npm", "setpriv"]
# Packages for single rows, by their server. Only users who measure these rows need them.
ROW_PROGRAMS = {"go": ("go", "golang-go golang-golang-x-time-dev"), "varnish": ("varnishd", "varnish varnish-modules")}
# Debian has Go's packages as sources here.
GOPATH = "/usr/share/gocode"


def bring():
    """Installs missing tools, and continues with the Python that has them."""
    # Debian keeps nginx and HAProxy where only root looks.
    os.environ["PATH"] += os.pathsep + "/usr/sbin:/sbin"
    if Path(sys.prefix) == VENV:
        return
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        sys.exit(f"error: {', '.join(missing)} not found\nhint: tests/run installs what is missing")
    PLACE.mkdir(parents=True, exist_ok=True)
    install.once(VENV, [HERE / "requirements.txt"], install.python)
    install.once(NODE, [HERE / "package.json", HERE / "package-lock.json"], install.node)
    program = str(VENV / "bin" / "python")
    os.execv(program, [program, *sys.argv])


def for_rows(rows):
    """Installs packages for single `rows`."""
    kinds = {row.server[0] for row in rows}
    missing = [need for kind, need in ROW_PROGRAMS.items() if kind in kinds and not shutil.which(need[0])]
    if missing:
        programs, packages = (" ".join(part) for part in zip(*missing))
        sys.exit(f"error: not found: {programs}\nhint: apt-get install --no-install-recommends {packages}")
    if "go" in kinds:
        install.once(GO.parent, [HERE / "servers" / "bucket.go"], go)


def go(folder, sources):
    folder.mkdir()
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": GOPATH, "GOCACHE": str(folder / "cache")}
    subprocess.run(["go", "build", "-o", str(GO), *map(str, sources)], check=True, env=environment)
