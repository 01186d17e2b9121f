"""``rackpin verify``: ask nodes what they really are, without a deploy."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from rackpin.findings import LEVELS, Level, blocking, is_ready
from rackpin.options import inventory_data

if TYPE_CHECKING:
    from rackpin.verify.session import Session

NOT_READY, WRONG, INTERRUPTED = 1, 2, 130


def refuse(message: str) -> NoReturn:
    click.echo(f"rackpin verify: {message}", err=True)
    raise SystemExit(WRONG)


@click.command("verify")
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py of the hosts ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--level", type=click.Choice(LEVELS), help="How much is asked (default: node).")
@click.option("--read-only", is_flag=True, help="Give cards and engines no work, keep no marks.")
@click.option("--compare", "against", is_flag=False, flag_value="", metavar="OLDER",
              help="Say what changed since OLDER; else since the run before.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Show every finding to act on, uncut.")
def verify_command(
    hosts: tuple[str, ...],
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    level: Level | None,
    read_only: bool,
    against: str | None,
    everything: bool,
) -> None:
    """Ask HOSTs (names or groups; default: all) everything of a level, and write a report.

    quick: seconds a node. node: with a generation from each engine, and all_reduce over the cards
    of a node that nobody uses. pair: pairs of idle nodes too. fleet: all of them together, and a
    short load on each engine. burnin: for long.

    Changes nothing on a node but its mark /var/lib/rackpin/ready.json. Exit status: 0 all nodes
    asked are ready, 1 something isn't, 2 wrong usage, 130 interrupted (the report has what was
    found until then).
    """
    from rackpin.inventory_open import OpenError, opened

    try:
        found = opened(inventory, data, group_data)
        names = found.nodes(hosts)
    except OpenError as error:
        refuse(str(error))
    from rich.console import Console

    from rackpin import report as reports
    from rackpin.report.history import history
    from rackpin.report.progress import Progress
    from rackpin.report.store import ReportError
    from rackpin.verify.connect import Connections
    from rackpin.verify.document import make
    from rackpin.verify.run import go, new_course
    from rackpin.verify.session import Session

    fleet = found.fleet
    directory = Path(fleet.config.report_dir)
    earlier = history(directory, found.lock.digest)
    wanted = level or fleet.config.verify_level
    session = Session(fleet, found.lock, wanted, loads=not read_only, history=earlier)
    course = new_course(names)
    console, code = Console(stderr=True), 0
    connections = Connections(found.made)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # a timer's stop is a ^C too
    try:
        with connections, Progress({n: fleet.nodes[n].groups for n in names}, console) as progress:
            go(session, course, connections, progress, write=not read_only)
    except KeyboardInterrupt:
        code = INTERRUPTED
    document = make(session, course)
    try:
        written = reports.publish(document, directory, fleet.config)
    except ReportError as error:
        click.echo(f"rackpin verify: {error}", err=True)
        leave(code or NOT_READY)
    reports.terminal(document, console, html=written.html, everything=everything)
    if against is not None:
        show_changes(written.json, against)
    good = document.ready
    if hosts and (out := [name for name in names if name in fleet.kept_out]):
        good = show_kept_out(session, out) and (good or set(out) == set(names))
    leave(code or (0 if good else NOT_READY))


def show_kept_out(session: Session, names: Sequence[str]) -> bool:
    """What was found of quarantined nodes that were asked by name; whether they could serve."""
    good = True
    for name in names:
        findings = session.nodes[name].findings if name in session.nodes else []
        bad = blocking(findings)
        if is_ready(findings):
            click.echo(f"{name} is quarantined, and nothing that was asked speaks against it; "
                       f"let it in: rackpin quarantine {name} --lift")  # fmt: skip
            continue
        good = False
        click.echo(f"{name} is quarantined, and for good reason: {len(bad)} finding(s)")
        for finding in bad:
            click.echo(f"  {finding.check}: {finding.summary}\n    → {finding.remedy}")
    return good


def show_changes(newer: Path, against: str) -> None:
    from rackpin.report.cli import lines
    from rackpin.report.compare import before, compare
    from rackpin.report.store import ReportError, load

    try:
        older = load(Path(against) if against else before(newer))
        click.echo("\n".join(lines(compare(older, load(newer)))))
    except ReportError as error:
        click.echo(f"rackpin verify: nothing to compare with: {error}", err=True)


def leave(code: int) -> NoReturn:
    """Without waiting for threads whose nodes hang."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
