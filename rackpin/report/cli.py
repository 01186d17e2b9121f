"""``rackpin report``: the terminal summary of a saved report."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from rackpin.report.store import ReportError, load, locate
from rackpin.report.summary import terminal
from rackpin.report.verdict import judge

NOT_READY, UNREADABLE = 1, 2


@click.command("report")
@click.argument(
    "path", type=click.Path(path_type=Path), default=Path("reports/latest.json"), required=False
)
@click.option("--all", "everything", is_flag=True, help="Show every finding to act on, uncut.")
@click.pass_context
def report(ctx: click.Context, path: Path, everything: bool) -> None:
    """Print the summary of a saved report (default: reports/latest.json).

    PATH is a report.json, or a directory that holds one. Exit status: 0 the fleet was ready,
    1 it was not, 2 the report can't be read.
    """
    try:
        loaded = load(path)
    except ReportError as error:
        click.echo(f"rackpin report: {error}", err=True)
        ctx.exit(UNREADABLE)
    page = locate(path).with_suffix(".html")  # where write() puts it
    terminal(loaded, Console(), html=page if page.is_file() else None, everything=everything)
    if not judge(loaded).ready:
        ctx.exit(NOT_READY)
