"""The wheel, and the source distribution that pip takes where no wheel fits.

Maturin makes the source distribution, from deploy/python/pyproject.toml. The wheel has the same metadata.
"""

import base64
import hashlib
import os
import subprocess
import tarfile
import time
import zipfile

from .release import ROOT, File


def pack(release, folder):
    sdist = _sdist(release)
    with tarfile.open(sdist) as archive:
        metadata = archive.extractfile(f"andante-{release.version}/PKG-INFO").read().decode()
    # Maturin would look for the texts beside pyproject.toml.
    texts = "".join(f"License-File: {licence.path}\n" for licence in release.licences)
    metadata = metadata.replace("License-Expression:", f"{texts}License-Expression:", 1).encode()
    source = folder / sdist.name
    source.write_bytes(sdist.read_bytes())
    yield source

    major, minor = release.glibc
    tag = f"py3-none-manylinux_{major}_{minor}_{release.processor.rust}"
    if (major, minor) == (2, 17):
        tag += f".manylinux2014_{release.processor.rust}"
    info = f"andante-{release.version}.dist-info"
    tags = [f"py3-none-{platform}" for platform in tag.removeprefix("py3-none-").split(".")]
    wheel = ["Wheel-Version: 1.0", "Generator: deploy/pack", "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
    files = [
        File(f"andante-{release.version}.data/scripts/andante", release.binary, 0o755),
        File(f"{info}/METADATA", metadata),
        File(f"{info}/WHEEL", "".join(f"{line}\n" for line in wheel).encode()),
        *(licence._replace(path=f"{info}/licenses/{licence.path}") for licence in release.licences),
        *(bom._replace(path=f"{info}/sboms/{bom.path}") for bom in release.boms),
    ]
    record = "".join(f"{file.path},sha256={_hash(file.content)},{len(file.content)}\n" for file in files)
    files.append(File(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    path = folder / f"andante-{release.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.path, time.gmtime(release.epoch)[:6])
            entry.external_attr = (0o100000 | file.mode) << 16
            level = 1 if release.quick else 9
            archive.writestr(entry, file.content, zipfile.ZIP_DEFLATED, compresslevel=level)
    yield path


def _hash(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _sdist(release):
    """The source distribution, made by maturin."""
    command = ["maturin", "sdist", "--out", release.scratch]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.epoch)}
    try:
        subprocess.run(command, cwd=ROOT / "deploy/python", env=environment, check=True, capture_output=True)
    except FileNotFoundError:
        raise SystemExit("error: maturin not found\nhint: pip install maturin") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: maturin sdist failed\n{error.stderr.decode()}") from None
    return release.scratch / f"andante-{release.version}.tar.gz"
