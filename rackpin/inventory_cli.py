"""``rackpin inventory check FILE``: read an inventory as pyinfra does, without connecting."""

from __future__ import annotations

import click

from rackpin.inventory import Fleet
from rackpin.options import inventory_data

INVALID = 2  # exit code: something in the inventory is wrong; also click's own for bad usage


@click.group()
def inventory() -> None:
    """The fleet as data."""


@inventory.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@inventory_data
def check(file: str, data: tuple[str, ...], group_data: tuple[str, ...]) -> None:
    """Check the inventory FILE whole, and list everything that is wrong with it.

    Connects to nothing. Exit code 0: it can be deployed. 2: it can't, or FILE can't be read.
    """
    from rackpin.inventory_check import InventoryError, fleet_from_file  # late: pyinfra is slow
    from rackpin.inventory_source import parse_data

    try:
        overrides = parse_data(data)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--data") from error
    try:
        fleet = fleet_from_file(file, overrides, group_data)
    except InventoryError as error:
        click.echo(str(error), err=True)
        raise SystemExit(INVALID) from error
    _print(fleet, file)


def nccl_hints(fleet: Fleet) -> list[str]:
    from rackpin.fabric.versions import nccl_versions
    from rackpin.inventory_nccl import hints
    from rackpin.stack.lock import StackError, read_lock

    try:
        versions = nccl_versions(read_lock(fleet.config.stack))
    except StackError as error:
        return [f"NCCL's release is unknown, so hints are for any: {error}", *hints(fleet, [])]
    return hints(fleet, versions)


def _print(fleet: Fleet, file: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("node", "groups", "address", "SKU", "GPUs", "engines (GPUs here)")
    for node in fleet.nodes.values():
        engines = [i for i in fleet.config.instances if node.name in i.nodes]
        table.add_row(
            node.name,
            ", ".join(node.groups),
            node.address,
            node.sku,
            str(node.gpus),
            ", ".join(f"{i.name} ({i.gpus_per_node})" for i in engines),
        )
    console = Console()
    console.print(table)
    for hint in nccl_hints(fleet):
        click.echo(f"hint: {hint}")
    click.echo(
        f"OK: {file}: fleet {fleet.config.fleet}, stack {fleet.config.stack}, "
        f"{len(fleet.nodes)} nodes, {len(fleet.config.instances)} engines"
    )
