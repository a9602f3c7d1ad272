"""What the servers have to offer: files for nginx, made anew in each run."""

import base64
import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile

LARGE = b"andante\n" * (512 * 1024)
EVENTS = b"".join(b"id: %d\ndata: event %d\n\n" % (n, n) for n in range(20))


def make(root):
    """Fills the folder `root`; returns what npm's registry says of its one package."""
    root.mkdir()
    (root / "large").write_bytes(LARGE)
    (root / "events").write_bytes(EVENTS)
    repository(root / "git")
    wheel(root / "simple" / "tiny")
    return tarball(root)


def repository(folder):
    """A git repository for the dumb protocol, which is files: `repo.git`, with more than one object to fetch."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "hello").write_text("hello\n")
    # The configuration of whoever runs the tests is not part of the test.
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=andante", "-c", "user.email=andante@invalid"]
    for command in (
        ["-C", work, "init", "--quiet", "--initial-branch=main"],
        ["-C", work, "add", "hello"],
        ["-C", work, *who, "commit", "--quiet", "--message=hello"],
        ["clone", "--quiet", "--bare", work, folder / "repo.git"],
        ["-C", folder / "repo.git", "update-server-info"],
    ):
        subprocess.run(["git", *map(str, command)], check=True, env=quiet)


def wheel(folder):
    """A simple index with one project, and one wheel of it."""
    folder.mkdir(parents=True)
    name = "tiny-1.0-py3-none-any.whl"
    about = "tiny-1.0.dist-info"
    files = {
        "tiny.py": "hello = 'hello'\n",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: andante\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},sha256={digest(text)},{len(text)}\n" for path, text in files.items()]
    files[f"{about}/RECORD"] = "".join(record) + f"{about}/RECORD,,\n"
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    (folder / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{name}">{name}</a></body></html>\n')


def digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def tarball(folder):
    """A registry with one package. The address of its tarball is nginx's to fill in: it has to be absolute."""
    tarballs = folder / "tiny" / "-"
    tarballs.mkdir(parents=True)
    package = {"name": "tiny", "version": "1.0.0", "main": "index.js"}
    files = {"package.json": json.dumps(package), "index.js": "module.exports = 'hello'\n"}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    (tarballs / "tiny-1.0.0.tgz").write_bytes(packed.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed.getvalue()).digest()).decode()
    dist = {"tarball": "$scheme://$http_host/tiny/-/tiny-1.0.0.tgz", "integrity": integrity}
    described = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}
    return json.dumps(described)
