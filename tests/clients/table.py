"""The table in docs/clients.md."""

import json
import re

from install import HERE, MORE, REPOSITORY
from matrix import CLIENTS, WAYS, Not

PAGE = REPOSITORY / "docs" / "clients.md"
BEGIN = "<!-- Written by tests/clients/run --write-docs. -->\n"
END = "<!-- Until here. -->\n"


def render(outcomes):
    """Markdown; `outcomes` has an `Outcome` or a `Not` for every client that was run, and every way."""
    versions = pinned()
    rows = [["client", "tested", *WAYS], ["---", "---", *([":-:"] * len(WAYS))]]
    notes = {}
    for client in (client for client in CLIENTS if (client.key, next(iter(WAYS))) in outcomes):
        cells = []
        for way in WAYS:
            outcome = outcomes[client.key, way]
            if isinstance(outcome, Not):
                notes[outcome.label] = outcome.reason
                cells.append(f"–[^{outcome.label}]")
            else:
                cells.append("✗" if outcome.complaints else "✓")
        rows.append([client.name, versions.get(client.package, "the system's"), *cells])
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    footnotes = "".join(f"[^{label}]: {reason}\n" for label, reason in notes.items())
    return f"{table}\n{footnotes}" if footnotes else table


def pinned():
    """The versions that our lists name."""
    versions = {}
    for folder in [MORE, HERE]:
        text = (folder / "requirements.txt").read_text()
        python = dict(re.findall(r"^([\w.-]+)==(.+)$", text, re.MULTILINE))
        package = json.loads((folder / "package.json").read_text())
        # The same name for two packages.
        both = {f"{name} (Python)": version for name, version in python.items()}
        versions |= {**python, **both, **package["dependencies"], **package.get("optionalDependencies", {})}
    return versions


def committed():
    """The current table of the page."""
    return split()[1]


def write(table):
    before, _, after = split()
    PAGE.write_text(before + table + after)


def split():
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start], text[start:end], text[end:]
