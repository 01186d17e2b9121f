"""``rackpin check``. Exit codes: 0 no error (warnings and hints may be), 1 errors, 2 bad input."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import click

from rackpin.compat.check import check, lines
from rackpin.options import STACKS_DIR
from rackpin.stack.model import StackError


@click.command("check")
@click.argument("stack")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
@click.option("--gpu", "gpus", multiple=True, metavar="NAME", help="Judge for this card instead.")
@click.option(
    "--on",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Judge ends of life as on that day; default: today.",
)
@STACKS_DIR
def check_command(
    stack: str, as_json: bool, gpus: tuple[str, ...], on: datetime | None, root: Path
) -> None:
    """Does what STACK pins work together, and for how long yet?

    Errors won't work or aren't safe, warnings will hurt, hints are worth knowing. Exit code 0
    without an error, 1 with one, 2 when STACK or its pins can't be read.
    """
    day: date | None = on.date() if on else None
    try:
        verdict = check(stack, root, day, gpus)
    except StackError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(2) from None
    if as_json:
        click.echo(verdict.as_json(), nl=False)
    else:
        for line in lines(verdict):
            click.echo(line)
    raise SystemExit(0 if verdict.ok else 1)
