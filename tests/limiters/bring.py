"""Installs the limiters that Python and npm have, once, in target/limiters, and says where they are."""

import os
import shutil
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
SITE_PACKAGES = Path(sysconfig.get_path("purelib", vars={"base": str(VENV)}))
# Debian's packages.
PROGRAMS = ["nginx", "haproxy", "npm", "setpriv"]


def bring():
    """Installs what is missing, and goes on with the Python that has it."""
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
