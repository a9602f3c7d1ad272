"""The table in docs/clients.md."""

import json
import re

from install import HERE, REPOSITORY
from matrix import CLIENTS, WAYS, Not

PAGE = REPOSITORY / "docs" / "clients.md"
BEGIN = "<!-- Written by tests/clients/run --write-docs. -->\n"
END = "<!-- Until here. -->\n"


def render(outcomes):
    """Markdown; `outcomes` has an `Outcome` or a `Not` for every client and way."""
    versions = pinned()
    rows = [["client", "tested", *WAYS], ["---", "---", *([":-:"] * len(WAYS))]]
    notes = {}
    for client in CLIENTS:
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
    text = (HERE / "requirements.txt").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==(.+)$", text, re.MULTILINE))
    package = json.loads((HERE / "package.json").read_text())
    return {**versions, **package["dependencies"], **package["optionalDependencies"]}


def committed():
    """What the page has now."""
    return split()[1]


def write(table):
    before, _, after = split()
    PAGE.write_text(before + table + after)


def split():
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:start], text[start:end], text[end:]
