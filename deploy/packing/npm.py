"""The npm packages: one with a few lines of JavaScript, and one per platform with the binary, of which npm installs one."""

import json

from .release import File

# `andante` belongs to another project on npm.
NAME = "andante-proxy"


def pack(release, folder):
    main = json.loads(release.text("deploy/npm/package.json"))
    main["version"] = release.version
    main["optionalDependencies"] = dict.fromkeys(main["optionalDependencies"], release.version)
    platform = f"{NAME}-linux-{release.processor.npm}"
    assert platform in main["optionalDependencies"], f"deploy/npm/package.json does not name {platform}"
    own = {
        "name": platform,
        "version": release.version,
        "description": f"The binary of {NAME} for Linux with glibc on {release.processor.npm}",
        **{key: main[key] for key in ("homepage", "license", "repository")},
        "type": "commonjs",
        "os": ["linux"],
        "cpu": [release.processor.npm],
        "libc": ["glibc"],
        # A binary cannot be run out of a zip file, which is where Yarn would leave it.
        "preferUnplugged": True,
        "files": ["bin", "LICENSE-*", "THIRD-PARTY-LICENSES.txt", "andante.cdx.json"],
    }
    yield _write(release, folder, main, [
        File("bin/andante.js", release.text("deploy/npm/bin/andante.js"), 0o755),
        File("README.md", release.text("deploy/npm/README.md")),
        *release.licences[:2],
    ])
    yield _write(release, folder, own, [
        File("bin/andante", release.binary, 0o755),
        File("README.md", f"# {platform}\n\nThe binary of `{NAME}`. Install that package instead.\n".encode()),
        *release.licences,
        *release.boms,
    ])


def _write(release, folder, manifest, files):
    files = [File("package.json", (json.dumps(manifest, indent=2) + "\n").encode()), *files]
    path = folder / f"{manifest['name']}-{release.version}.tgz"
    path.write_bytes(release.gzip(release.tar(file._replace(path=f"package/{file.path}") for file in files)))
    return path
