"""Content of the servers: files and answers for nginx, generated in each run."""

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
    """Fills the folder `root`; returns the answers that are no files, by the names of `locations.conf`."""
    root.mkdir()
    (root / "large").write_bytes(LARGE)
    (root / "events").write_bytes(EVENTS)
    repository(root / "git")
    wheel(root / "simple" / "tiny")
    crate(root / "cargo")
    return {"described": tarball(root), **chats()}


def repository(folder):
    """A git repository for the dumb protocol, which is files: `repo.git`, with more than one object to fetch."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "hello").write_text("hello\n")
    # The git configuration of the user who runs the tests is not part of the test.
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
    with zipfile.ZipFile(folder / name, "w") as zipped:
        for path, text in files.items():
            zipped.writestr(path, text)
    (folder / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{name}">{name}</a></body></html>\n')


def digest(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def tarball(folder):
    """A registry with one package. The address of its tarball is nginx's to fill in: it has to be absolute."""
    tarballs = folder / "tiny" / "-"
    tarballs.mkdir(parents=True)
    package = {"name": "tiny", "version": "1.0.0", "main": "index.js"}
    files = {"package.json": json.dumps(package), "index.js": "module.exports = 'hello'\n"}
    packed = archive({f"package/{path}": text for path, text in files.items()})
    (tarballs / "tiny-1.0.0.tgz").write_bytes(packed)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
    dist = {"tarball": "$scheme://$http_host/tiny/-/tiny-1.0.0.tgz", "integrity": integrity}
    described = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**package, "dist": dist}}}
    return json.dumps(described)


def crate(folder):
    """A sparse registry with one crate. Where it is to be downloaded is nginx's to say: that has to be absolute."""
    download = folder / "dl" / "tiny" / "1.0.0"
    index = folder / "ti" / "ny"
    download.mkdir(parents=True)
    index.mkdir(parents=True)
    manifest = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    packed = archive({"tiny-1.0.0/Cargo.toml": manifest, "tiny-1.0.0/src/lib.rs": ""})
    (download / "download").write_bytes(packed)
    checksum = hashlib.sha256(packed).hexdigest()
    entry = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": checksum, "features": {}, "yanked": False}
    (index / "tiny").write_text(json.dumps(entry) + "\n")


def chats():
    """Answers of two chat APIs to "hello": at once, and in two words."""
    openai = {"id": "1", "created": 1, "model": "test"}
    choice = {"index": 0, "finish_reason": "stop"}
    whole = {"message": {"role": "assistant", "content": "hello"}}
    parts = [{"delta": {"content": word}} for word in ["hel", "lo"]]
    completion = {**openai, "object": "chat.completion", "choices": [{**choice, **whole}]}
    chunks = [{**openai, "object": "chat.completion.chunk", "choices": [{**choice, **part}]} for part in parts]
    message = {"id": "1", "type": "message", "role": "assistant", "model": "test", "content": []}
    message.update(stop_reason=None, stop_sequence=None, usage={"input_tokens": 1, "output_tokens": 1})
    deltas = [{"type": "text_delta", "text": word} for word in ["hel", "lo"]]
    events = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    content = [{"type": "text", "text": "hello"}]
    return {
        "openai": json.dumps(completion),
        "openai_stream": "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n",
        "anthropic": json.dumps({**message, "content": content, "stop_reason": "end_turn"}),
        "anthropic_stream": "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events),
    }


def archive(files):
    """A .tar.gz of texts by their paths."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()
