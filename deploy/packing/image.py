"""The container image, as an OCI layout in a tar archive, written without a daemon.

deploy/image-root lays out the content; the configuration is the last stage of deploy/Dockerfile. `docker load`,
`podman load` and `skopeo copy oci-archive:…` read it. Its SBOM refers to it, as registries know attached documents.
"""

import hashlib
import json
import subprocess
import time

from .release import ROOT, File, Folder

LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
SBOM = "application/vnd.cyclonedx+json"
# Origin of the binary in the image's description, which tells it from an image of deploy/Dockerfile with the same name.
BUILD = "packed by deploy/pack from a finished binary"
# The image's user, and the folders that it may write to.
WRITABLE = {"data": 65532, "trust": 65532}


def pack(release, folder):
    blobs = {}

    def blob(kind, content):
        """Adds a blob, and returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    files = release.tar(_files(release))
    layer = blob(LAYER, release.gzip(files))
    settings = _settings(release)
    config = blob(CONFIG, _json({
        "created": created,
        "architecture": release.processor.debian,
        "os": "linux",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "deploy/pack", "comment": "deploy/image-root"}],
    }))
    image = blob(MANIFEST, _json({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": settings["Labels"],
    }))
    # containerd and Docker take the first annotation for the name, others the second.
    named = {"io.containerd.image.name": f"docker.io/library/andante:{release.version}",
             "org.opencontainers.image.ref.name": release.version}
    manifests = [{**image, "annotations": named, "platform": {"architecture": release.processor.debian, "os": "linux"}}]
    for bom in release.boms:
        manifests.append({**blob(MANIFEST, _json({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": SBOM, "config": blob(EMPTY, b"{}"),
            "layers": [{**blob(SBOM, bom.content), "annotations": {"org.opencontainers.image.title": bom.path}}],
            "subject": image,
        })), "artifactType": SBOM})
    entries = [
        File("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        # Docker before version 25 reads no OCI layout, and finds the blobs by this file.
        File("manifest.json", _json([{
            "Config": _path(config), "RepoTags": [f"andante:{release.version}"], "Layers": [_path(layer)],
        }])),
        File("index.json", _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})),
        *(File(f"blobs/sha256/{digest}", content) for digest, content in blobs.items()),
    ]
    path = folder / f"andante-{release.version}-image-{release.processor.debian}.tar"
    path.write_bytes(release.tar(entries))
    yield path


def _path(descriptor):
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _json(content):
    return json.dumps(content, separators=(",", ":")).encode()


def _files(release):
    """The root file system."""
    root = release.scratch / "root"
    subprocess.run([ROOT / "deploy/image-root", release.path, root], check=True)
    papers = root / "usr/share/doc/andante"
    papers.mkdir(parents=True)
    for paper in [*release.licences, *release.boms]:
        (papers / paper.path).write_bytes(paper.content)
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir():
            yield Folder(name, owner=WRITABLE.get(name, 0))
        else:
            yield File(name, path.read_bytes(), 0o755 if path.stat().st_mode & 0o100 else 0o644)


def _settings(release):
    """Settings of the image in the last stage of deploy/Dockerfile."""
    stage = release.text("deploy/Dockerfile").decode().replace("\\\n", "").split("\nFROM ")[-1]
    settings = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "ExposedPorts": {}, "Labels": {}}
    for line in stage.splitlines()[1:]:
        word, _, rest = line.partition(" ")
        if word in ("", "#", "ARG", "COPY"):
            continue
        if word == "ENV":
            settings["Env"].append(rest)
        elif word == "USER":
            settings["User"] = rest
        elif word == "EXPOSE":
            settings["ExposedPorts"].update({f"{port}/tcp": {} for port in rest.split()})
        elif word == "LABEL":
            name, _, value = rest.partition("=")
            settings["Labels"][name] = value.strip('"').replace("$VERSION", release.version).replace("$BUILD", BUILD)
        elif word in ("ENTRYPOINT", "CMD"):
            settings[word.capitalize()] = json.loads(rest)
        elif word == "HEALTHCHECK":
            settings["Healthcheck"] = _health_check(rest)
        else:
            raise SystemExit(f"error: deploy/Dockerfile has {word}, which deploy/packing/image.py cannot read")
    return settings


def _health_check(rest):
    """Docker's form of a health check. OCI has none, yet Docker reads it from OCI's configuration, too."""
    options, _, command = rest.partition("CMD ")
    durations = dict(option.removeprefix("--").split("=") for option in options.split())
    nanoseconds = {name: int(value.removesuffix("s")) * 10**9 for name, value in durations.items()}
    return {"Test": ["CMD", *json.loads(command)], "Interval": nanoseconds["interval"], "Timeout": nanoseconds["timeout"],
            "StartPeriod": nanoseconds["start-period"]}
