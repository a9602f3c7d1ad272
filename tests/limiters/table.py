"""Results: as a table, on the page, and against the bounds."""

from bring import REPOSITORY

PAGE = REPOSITORY / "tests" / "limiters" / "results.md"
BEGIN = "<!-- Written by tests/limiters/run --all --write. -->\n"
END = "<!-- Until here. -->\n"

NAMES = {"careful": "careful, without andante", "alone": "andante", "configured": "andante, `--limit`"}
HEAD = ["limiter", "allows", "client", "accepted", "refused", "seen", "share", "late", "stall"]


def render(rows, found):
    """Markdown: a line for each client, and why a row has bounds of its own."""
    lines = [HEAD, ["---"] * 3 + ["--:"] * 6]
    for row in rows:
        title = [f"{row.name}[^{row.key}]" if row.because else row.name, row.allows.limit or ""]
        for client, name in NAMES.items():
            figures = found.get((row.key, client))
            if figures:
                lines.append([*title, name, *cells(figures, client)])
                title = ["", ""]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    notes = "".join(f"[^{row.key}]: {row.because}\n" for row in rows if row.because)
    return f"{table}\n{notes}" if notes else table


def cells(figures, client):
    if "error" in figures:
        return ["failed", *([""] * 5)]
    counts = [f"{figures[name]:,}" for name in ["accepted", "refused", "seen"]]
    # A careful client sees all of them.
    counts[2] = counts[2] if client != "careful" else ""
    return [*counts, f"{figures['share']:.3f}", f"{figures['late']:.1f}%", f"{figures['stall']:.1f} s"]


def missed(row, bounds, found):
    """The bounds that a row misses, a line for each."""
    measured = [found.get((row.key, client)) for client in ["careful", "alone", "configured"]]
    broken = [figures["error"] for figures in measured if figures and "error" in figures]
    if broken:
        return [f"{row.key}: {error}" for error in broken]
    careful, alone, configured = measured
    # Two answers are never a window apart to the millisecond.
    stall = 1.05 * row.allows.window + 0.05 if bounds.stall is None else bounds.stall
    checks = [
        (alone["share"] >= bounds.share, f"share {alone['share']:.3f}, not {bounds.share}"),
        (alone["late"] <= bounds.late, f"refused after 10 s: {alone['late']:.1f}%, more than {bounds.late}%"),
        (alone["seen"] <= bounds.seen, f"workers see {alone['seen']} refusals"),
        (alone["stall"] <= stall, f"nothing is served for {alone['stall']:.1f} s, more than {stall:.1f} s"),
    ]
    if configured:
        share, refused = configured["share"], configured["refused"]
        checks += [
            (share >= bounds.configured_share, f"with --limit: share {share:.3f}, not {bounds.configured_share}"),
            (
                refused <= bounds.configured_refused,
                f"with --limit: {refused} refused, more than {bounds.configured_refused}",
            ),
        ]
    if careful:
        least = bounds.careful_accepted * careful["accepted"]
        most = max(1, bounds.careful_refused * careful["refused"])
        checks += [
            (
                alone["accepted"] >= least,
                f"accepted {alone['accepted']}, beside the careful client's {careful['accepted']}",
            ),
            (alone["refused"] <= most, f"refused {alone['refused']}, beside the careful client's {careful['refused']}"),
        ]
    return [f"{row.key}: {complaint}" for held, complaint in checks if not held]


def write(rows, found, complaints):
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    short = "".join(f"- {line}\n" for line in complaints)
    seen = render(rows, found) + (f"\nMissed:\n\n{short}" if short else "")
    PAGE.write_text(text[:start] + seen + text[end:])
