"""The Helm chart, as `helm package` packs it: a folder in a tar archive, with the version of the release."""

import re

from .release import ROOT, File

CHART = ROOT / "deploy/helm/andante"


def pack(release, folder):
    if not CHART.exists():
        return
    about = (CHART / "Chart.yaml").read_text()
    for key in ("version", "appVersion"):
        found = re.search(rf'^{key}: "?([^"\n]+)"?$', about, re.M)
        if not found or found.group(1) != release.version:
            raise SystemExit(f"error: {key} of deploy/helm/andante/Chart.yaml is not {release.version}, as in Cargo.toml")
    files = [path for path in CHART.rglob("*") if path.is_file()]
    path = folder / f"andante-{release.version}.tgz"
    path.write_bytes(release.gzip(release.tar(File(f"andante/{file.relative_to(CHART)}", file.read_bytes()) for file in files)))
    yield path
