"""A release: one binary, the version and texts of the repository, and archives of them that are the same each time."""

import functools
import gzip
import io
import pathlib
import re
import subprocess
import tarfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]


class File(NamedTuple):
    """A file in a package."""

    path: str
    content: bytes
    mode: int = 0o644


class Folder(NamedTuple):
    """A folder that a package names because of its owner, or because it is empty."""

    path: str
    mode: int = 0o755
    owner: int = 0


class Link(NamedTuple):
    """A symbolic link."""

    path: str
    target: str


class Processor(NamedTuple):
    """A processor, as each world of packages calls it."""

    rust: str
    debian: str
    npm: str


# By e_machine of the ELF header.
PROCESSORS = {62: Processor("x86_64", "amd64", "x64"), 183: Processor("aarch64", "arm64", "arm64")}
# Libraries that glibc's packages bring. Every other one but libgcc_s is unexpected.
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|libutil|ld-linux[^.]*)\.so\.\d+")


class Release:
    """Everything that packages are made of."""

    def __init__(self, binary, manual, papers, epoch, quick, scratch):
        self.path = binary
        self.binary = binary.read_bytes()
        self.manual = manual
        self.epoch = epoch
        self.quick = quick
        self.scratch = scratch
        self.papers = sorted(papers.iterdir()) if papers else []
        manifest = (ROOT / "Cargo.toml").read_text()
        self.version = re.search(r'^version = "(.+)"', manifest, re.M).group(1)
        self.summary = re.search(r'^description = "(.+)"', manifest, re.M).group(1)
        self.homepage = re.search(r'^homepage = "(.+)"', manifest, re.M).group(1)
        self.processor = PROCESSORS[int.from_bytes(self.binary[18:20], "little")]

    def text(self, path):
        """A file of the repository."""
        return (ROOT / path).read_bytes()

    @property
    def licences(self):
        """Licence texts: andante's own, and those of the crates in it if there are papers."""
        own = [File(name, self.text(name)) for name in ("LICENSE-APACHE", "LICENSE-MIT")]
        return own + [File(path.name, path.read_bytes()) for path in self.papers if path.suffix == ".txt"]

    @property
    def boms(self):
        """Bills of materials: the crates in the binary."""
        return [File(path.name, path.read_bytes()) for path in self.papers if path.suffix == ".json"]

    @functools.cached_property
    def glibc(self):
        """The oldest glibc that the binary runs on, as (2, 17)."""
        said = self._readelf("--version-info")
        return max(tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([\d.]+)", said))

    @functools.cached_property
    def needs_libgcc(self):
        """Whether the binary needs libgcc_s.so.1 beside glibc. Fails on any other library."""
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", self._readelf("--dynamic"))
        other = {name for name in needed if not GLIBC.fullmatch(name)}
        if other - {"libgcc_s.so.1"}:
            raise SystemExit(f"error: {self.path} needs libraries that no package names: {', '.join(sorted(other))}")
        return bool(other)

    @functools.cached_property
    def pages(self):
        """Manual pages, by name."""
        folder = self.scratch / "man"
        subprocess.run([self.manual.resolve(), "man", folder], check=True, stdout=subprocess.DEVNULL)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def completions(self, shell):
        """The completions for a shell."""
        return subprocess.run([self.manual.resolve(), "completions", shell], check=True, stdout=subprocess.PIPE).stdout

    def _readelf(self, what):
        return subprocess.run(["readelf", "-W", what, self.path], check=True, stdout=subprocess.PIPE, text=True).stdout

    def tar(self, entries):
        """A tar archive: sorted, dated by the release, owned by root unless a folder says otherwise."""
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for entry in sorted(entries, key=lambda entry: entry.path):
                info = tarfile.TarInfo(entry.path)
                info.mtime = self.epoch
                if isinstance(entry, File):
                    info.size, info.mode = len(entry.content), entry.mode
                    archive.addfile(info, io.BytesIO(entry.content))
                    continue
                if isinstance(entry, Link):
                    info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
                else:
                    info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, entry.mode, entry.owner, entry.owner
                archive.addfile(info)
        return target.getvalue()

    def gzip(self, content):
        """Compressed without a date and a name."""
        return gzip.compress(content, compresslevel=1 if self.quick else 9, mtime=0)
