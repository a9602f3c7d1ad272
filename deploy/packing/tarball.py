"""The tarball: for `cargo binstall`, for packagers, and for everybody else."""

from .release import File


def pack(release, folder):
    name = f"andante-{release.version}-{release.processor.rust}-unknown-linux-gnu"
    files = [
        File("andante", release.binary, 0o755),
        *(File(path, release.text(path)) for path in ("README.md", "SECURITY.md")),
        File("andante.toml", release.text("config/minimal.toml")),
        *(File(name, release.text(f"deploy/{name}")) for name in ("andante.service", "andante.socket", "andante.sysusers")),
        *release.licences,
        *release.boms,
        *(File(f"man/man1/{name}", page) for name, page in release.pages.items()),
        *(File(f"completions/andante.{shell}", release.completions(shell)) for shell in ("bash", "zsh", "fish")),
    ]
    path = folder / f"{name}.tar.gz"
    path.write_bytes(release.gzip(release.tar(file._replace(path=f"{name}/{file.path}") for file in files)))
    yield path
