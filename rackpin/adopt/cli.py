"""``rackpin adopt``: look at a host that somebody built by hand, before the first run."""

from __future__ import annotations

from typing import NoReturn

import click

from rackpin.options import inventory_data

WRONG = 2


def stop(message: str) -> NoReturn:
    click.echo(f"rackpin adopt: {message}", err=True)
    raise SystemExit(WRONG)


@click.command("adopt")
@click.argument("host")
@click.option("-i", "--inventory", envvar="RACKPIN_INVENTORY",
              type=click.Path(exists=True, dir_okay=False),
              help="The inventory FILE.py that the host is in ($RACKPIN_INVENTORY).")  # fmt: skip
@inventory_data
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
def adopt_command(
    host: str,
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say what a first run would change on HOST, and what that interrupts. Changes nothing.

    Exit status: 0 nothing is interrupted, 1 something is or the run would be refused, 2 wrong
    usage, 3 something could not be looked at.
    """
    from rich.console import Console

    from rackpin.adopt.compare import compare
    from rackpin.adopt.look import look
    from rackpin.adopt.show import show
    from rackpin.desired import Target
    from rackpin.inventory_open import OpenError, opened
    from rackpin.verify.connect import Connections

    try:
        found = opened(inventory, data, group_data)
    except OpenError as error:
        stop(str(error))
    if host not in found.fleet.nodes:
        stop(f"{found.file}: has no host {host}; it has {', '.join(found.fleet.nodes)}. Write it "
             "into the inventory first: that says what it is to be")  # fmt: skip
    target = Target(found.fleet, found.fleet.nodes[host], found.lock)
    with Connections(found.made) as ways:
        seen, target, _ = look(target, ways)
    document = compare(target, seen)
    if as_json:
        click.echo(document.model_dump_json(indent=1))
    else:
        show(document, Console())
    raise SystemExit(document.exit_code)
