"""An audit for a terminal: differences only, unless everything is asked for."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackpin.audit.document import Document, Target
from rackpin.report.text import clean

SHOWN = 10  # of one kind on one node
COLOURS = {"same": "green", "drift": "red", "could_not_look": "yellow"}
WORDS = {"same": "same", "drift": "drift", "could_not_look": "could not look"}


def show(document: Document, console: Console, everything: bool) -> None:
    rows = [row for target in document.targets for row in rows_of(target, everything)]
    if rows:
        table = Table(box=None, pad_edge=False, show_edge=False)
        for title in ("node", "kind", "what"):
            table.add_column(title, overflow="fold")
        for cells in rows:
            table.add_row(*(Text(clean(cell)) for cell in cells))
        console.print(table)
    for text in remedies(document):
        console.print(Text(clean(text)), soft_wrap=True)
    if everything:
        for said in dict.fromkeys(p for t in document.targets for p in t.proves):
            console.print(Text(clean(said)), soft_wrap=True)
    for target in document.targets:
        console.print(Text(summary(target), style=COLOURS[target.state]), soft_wrap=True)
    total = sum(sum(target.counts.values()) for target in document.targets)
    looked = "every file read" if document.deep else "quick; --deep reads every file"
    console.print(
        f"{len(document.targets)} looked at, {total} difference(s) from lock "
        f"{document.stack} {document.lock[:12]} ({looked}): {WORDS[document.outcome]}",
        soft_wrap=True,
    )


def rows_of(target: Target, everything: bool) -> list[tuple[str, str, str]]:
    """Node, kind, and what differs; a kind that fills the screen is cut short."""
    rows: list[tuple[str, str, str]] = []
    shown = dict.fromkeys(target.counts, 0)
    for d in target.drift:
        if shown[d.kind] < SHOWN or everything:
            text = f"{d.subject}\n  expected {d.expected}, found {d.found}"
            rows.append((target.name, d.kind, text))
            shown[d.kind] += 1
    for kind, count in target.counts.items():
        if count > shown[kind]:
            rows.append((target.name, kind, f"{count - shown[kind]} more"))
    rows += [(target.name, "could not look", f"{u.area}: {u.why}") for u in target.unseen]
    if everything:
        rows += [(target.name, "same", f"{s.area}: {s.subject}: {s.found}") for s in target.same]
    return rows


def remedies(document: Document) -> list[str]:
    """What to do, once for each kind that was found."""
    found = {item.kind: item.remedy for target in document.targets for item in target.drift}
    return [f"{kind} -> {remedy}" for kind, remedy in sorted(found.items())]


def summary(target: Target) -> str:
    parts = [f"{count} {kind}" for kind, count in sorted(target.counts.items())]
    parts += [f"{len(target.unseen)} not seen"] if target.unseen else []
    took = f" in {target.seconds:.1f} s" if target.seconds else ""
    return f"{target.name}: {WORDS[target.state]}{took}" + (
        f": {', '.join(parts)}" if parts else ""
    )
