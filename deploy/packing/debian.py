"""The Debian package, written without Debian's tools: two archives in a third (deb(5))."""

import gzip
import hashlib
import lzma
from email.utils import formatdate

from .release import File, Folder

MAINTAINER = "The andante authors <andante@example.com>"
# Beside the binary: path in the package, file of the repository.
COPIED = {
    "etc/andante/andante.toml": "config/minimal.toml",
    "usr/lib/systemd/system/andante.socket": "deploy/andante.socket",
    "usr/lib/sysusers.d/andante.conf": "deploy/andante.sysusers",
    "usr/share/doc/andante/README.md": "README.md",
    "usr/share/doc/andante/examples/full.toml": "config/full.toml",
    "usr/share/lintian/overrides/andante": "deploy/debian/lintian-overrides",
}
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/andante",
    "zsh": "usr/share/zsh/vendor-completions/_andante",
    "fish": "usr/share/fish/vendor_completions.d/andante.fish",
}


def pack(release, folder):
    files = [
        File("usr/bin/andante", release.binary, 0o755),
        *(File(path, release.text(source)) for path, source in COPIED.items()),
        File("usr/lib/systemd/system/andante.service", _unit(release)),
        *(File(path, release.completions(shell)) for shell, path in COMPLETIONS.items()),
        *(File(f"usr/share/man/man1/{name}.gz", _gzip(page)) for name, page in release.pages.items()),
        File("usr/share/doc/andante/changelog.gz", _gzip(_changelog(release))),
        File("usr/share/doc/andante/copyright", _copyright(release)),
        *(paper._replace(path=f"usr/share/doc/andante/{paper.path}") for paper in [*release.licences[2:], *release.boms]),
    ]
    parents = {parent for file in files for parent in _parents(file.path)}
    data = release.tar([*(file._replace(path=f"./{file.path}") for file in files), *(Folder(f"./{path}") for path in parents)])
    control = release.tar([
        Folder("./"),
        File("./control", _control(release, files)),
        File("./conffiles", b"/etc/andante/andante.toml\n"),
        File("./md5sums", "".join(f"{hashlib.md5(file.content).hexdigest()}  {file.path}\n" for file in files
                                  if not file.path.startswith("etc/")).encode()),
        *(File(f"./{name}", release.text(f"deploy/debian/{name}"), 0o755) for name in ("postinst", "prerm", "postrm")),
    ])
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(control),
        "data.tar.xz": lzma.compress(data, preset=0 if release.quick else 6),
    }
    path = folder / f"andante_{release.version}_{release.processor.debian}.deb"
    path.write_bytes(_ar(release, members))
    yield path


def _parents(path):
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts))]


def _gzip(content):
    """Packed as the policy asks for, whatever the release's own compression is."""
    return gzip.compress(content, compresslevel=9, mtime=0)


def _unit(release):
    """The unit of the repository, for a binary that a package has installed."""
    lines = release.text("deploy/andante.service").decode().splitlines(keepends=True)
    first = lines.index("[Unit]\n")
    lines.insert(first + 2, "Documentation=man:andante(1) man:andante-serve(1)\n")
    return "".join(lines[first:]).replace("/usr/local/bin/", "/usr/bin/").encode()


def _control(release, files):
    libc = f"libc6 (>= {'.'.join(map(str, release.glibc))})"
    return f"""\
Package: andante
Version: {release.version}
Architecture: {release.processor.debian}
Maintainer: {MAINTAINER}
Installed-Size: {sum(-(-len(file.content) // 1024) for file in files)}
Depends: {libc}{', libgcc-s1' if release.needs_libgcc else ''}, passwd
Recommends: ca-certificates
Section: net
Priority: optional
Homepage: {release.homepage}
Description: forward proxy that keeps workers inside APIs' rate limits
 An API serves 500 requests a minute and refuses the rest with 429. Workers
 do not know of each other: together they send too much. In andante their
 requests wait in one queue and leave at the pace that each API allows.
 .
 Workers set HTTP_PROXY and HTTPS_PROXY and change nothing else. The package
 starts andante.service, which listens on loopback only.
""".encode()


def _changelog(release):
    date = formatdate(release.epoch)
    entry = "The changes are in docs/changelog.md of the source."
    return f"andante ({release.version}) unstable; urgency=medium\n\n  * {entry}\n\n -- {MAINTAINER}  {date}\n".encode()


def _copyright(release):
    mit = release.text("LICENSE-MIT").decode().strip().splitlines()
    # The first lines name the licence and the holder, which this format has fields for.
    text = mit[next(number for number, line in enumerate(mit) if line.startswith("Permission")):]
    holder = next(line for line in mit if line.startswith("Copyright")).split(" ", 1)[1].removeprefix("(c) ")
    lines = "\n".join(f" {line}" if line else " ." for line in text)
    return f"""\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: andante
Source: {release.homepage}

Files: *
Copyright: {holder}
License: Expat or Apache-2.0

License: Expat
{lines}

License: Apache-2.0
 On Debian systems the text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
""".encode()


def _ar(release, members):
    """An archive of ar(1), as dpkg reads it."""
    parts = [b"!<arch>\n"]
    for name, content in members.items():
        parts.append(f"{name:<16}{release.epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
        parts.append(content + b"\n" * (len(content) % 2))
    return b"".join(parts)
