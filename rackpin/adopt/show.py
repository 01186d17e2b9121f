"""The report on a host for a terminal: what is interrupted first, then what changes, by stage."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackpin.adopt.document import Document, Stage
from rackpin.report.text import clean

SHOWN = 12  # lines of one stage; --json has all
COLOURS = {"nothing": "green", "interrupts": "red", "could_not_look": "yellow"}
WORDS = {
    "nothing": "a first run interrupts nothing that runs there",
    "interrupts": "a first run interrupts what is named above, or does not begin",
    "could_not_look": "not all of it could be looked at, so nothing can be said for sure",
}


def show(found: Document, console: Console) -> None:
    if found.stages:
        table = Table(box=None, pad_edge=False, show_edge=False)
        for title in ("stage", "would change"):
            table.add_column(title, overflow="fold")
        for stage in found.stages:
            lines = list(lines_of(stage))
            more = [f"and {len(lines) - SHOWN} more (--json)"] if len(lines) > SHOWN else []
            for number, line in enumerate([*lines[:SHOWN], *more]):
                table.add_row("" if number else stage.name, Text(clean(line)))
        console.print(table)
    for text in found.foreign:
        console.print(Text(clean(text)), soft_wrap=True)
    for one in found.interruptions:
        text = f"{one.interrupts}: {one.what}: {one.why}\n    → {one.remedy}"
        console.print(Text(clean(text), style="red"), soft_wrap=True)
    for unseen in found.unseen:
        text = clean(f"could not look: {unseen.area}: {unseen.why}")
        console.print(Text(text, style="yellow"), soft_wrap=True)
    before = "rackpin was there before" if found.known else "rackpin was never there"
    last = f"{found.node}: {before}; against {found.stack} {found.lock[:12]}: "
    console.print(Text(last + WORDS[found.outcome], style=COLOURS[found.outcome]), soft_wrap=True)


def lines_of(stage: Stage) -> Iterable[str]:
    """Other people's files first: they are what a person wants to know of."""
    for file in sorted(stage.files, key=lambda one: not one.backup):
        kept = f", kept as {file.backup}" if file.backup else ""
        yield f"file {file.path}: {file.what}{kept}"
    for package in sorted(stage.packages, key=lambda one: one.what):
        was = f"{package.was} → " if package.what == "change" else package.was
        now = "" if package.what == "hold" else package.now or "the OS's version"
        yield f"package {package.name}: {package.what} {was}{now}"
    yield from (f"unit {unit}" for unit in stage.units)
    yield from stage.other
