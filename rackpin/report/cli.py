"""``rackpin report``: the terminal summary of a saved report, or what changed since another."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click
from rich.console import Console

from rackpin.report.compare import NOT_ASKED, Difference, before, compare
from rackpin.report.compare_measured import Moved
from rackpin.report.files import ReportError
from rackpin.report.prometheus import write_textfile
from rackpin.report.store import load, locate
from rackpin.report.summary import terminal
from rackpin.report.text import clean, plural
from rackpin.report.verdict import judge

NOT_READY, UNREADABLE = 1, 2


@click.command("report")
@click.argument(
    "path", type=click.Path(path_type=Path), default=Path("reports/latest.json"), required=False
)
@click.option("--all", "everything", is_flag=True, help="Show every finding to act on, uncut.")
@click.option("--compare", "against", is_flag=False, flag_value="", metavar="OLDER",
              help="What changed since OLDER; without a value, since the run before.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="With --compare: everything as JSON.")
@click.option("--textfile", type=click.Path(path_type=Path), metavar="PLACE",
              help="Also write it for Prometheus: a file, or a collector's directory.")  # fmt: skip
@click.pass_context
def report(
    ctx: click.Context,
    path: Path,
    everything: bool,
    against: str | None,
    as_json: bool,
    textfile: Path | None,
) -> None:
    """Print the summary of a saved report (default: reports/latest.json).

    PATH is a report.json, or a directory that holds one. Exit status: 0 the fleet was ready
    (with --compare: nothing is worse), 1 it was not, 2 the report can't be read or written.
    """
    try:
        loaded = load(path)
        if textfile is not None:
            click.echo(f"{write_textfile(loaded, textfile)}: written", err=True)
        if against is not None:
            older = load(Path(against) if against else before(path))
            found = compare(older, loaded)
            shown = json.dumps(found.as_dict(), indent=1, ensure_ascii=False)
            click.echo(shown if as_json else "\n".join(lines(found)))
            ctx.exit(NOT_READY if found.worse else 0)
    except ReportError as error:
        click.echo(f"rackpin report: {error}", err=True)
        ctx.exit(UNREADABLE)
    page = locate(path).with_suffix(".html")  # where write() puts it
    terminal(loaded, Console(), html=page if page.is_file() else None, everything=everything)
    if not judge(loaded).ready:
        ctx.exit(NOT_READY)


def lines(found: Difference) -> list[str]:
    """The difference for people: what is worse first in each part."""
    text = [f"{found.older} → {found.newer}"]
    unasked = [one for one in found.outcomes if one.why.startswith(NOT_ASKED)]
    checks = [one for one in found.outcomes if one not in unasked]
    parts = (("", found.about), ("Nodes", found.nodes), ("Checks", checks),
             ("Measured, by more than a tenth", found.values),
             ("Collectives over nodes", found.measurements),
             ("Outliers among siblings", found.outliers))  # fmt: skip
    for title, moves in parts:
        if moves and title:
            text.append(f"{title}:")
        text += [_line(one) for one in moves]
    # What was left out on purpose is one line for each reason, not one for each check.
    for why, count in Counter(one.why for one in unasked).items():
        text.append(f"{plural(count, 'check')} {why}; --json lists them")
    return text if len(text) > 1 else [*text, "nothing changed"]


def _line(one: Moved) -> str:
    mark = "✕" if one.worse else " "
    why = f"  ({one.why})" if one.why else ""
    return clean(f" {mark} {one.node}  {one.what}: {one.was} → {one.now}{why}")
