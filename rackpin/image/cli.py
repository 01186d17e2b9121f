"""``rackpin image``. Exit codes as in :mod:`rackpin.cli`."""

from __future__ import annotations

from pathlib import Path

import click

from rackpin.image.engine import ImageError
from rackpin.inventory import ROOT
from rackpin.options import BadInput
from rackpin.stack.lock import STACKS, Lock, load_stack
from rackpin.stack.pins import StackError

INVENTORY = ROOT / "inventories" / "prod.py"


def _lock(name: str) -> Lock:
    try:
        return load_stack(name, STACKS).lock
    except StackError as error:
        raise BadInput(str(error)) from None


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.group()
def image() -> None:
    """The serving image of a stack."""


@image.command("build")
@click.argument("stack")
@click.option("--base", metavar="REF", help="Default: the lock's. NAME@sha256:… or a local image.")
@click.option("--tag", help="Default: rackpin/STACK:LOCK.")
def build_command(stack: str, base: str | None, tag: str | None) -> None:
    """Build STACK's image from its lock. Needs its wheelhouse and a Docker with BuildKit."""
    from rackpin.image import build as builds

    lock = _lock(stack)
    try:
        made = builds.build(
            lock, base or builds.locked_base(lock), tag or builds.image_tag(lock), _say
        )
    except (ImageError, StackError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{made.tag} {made.id} {made.size / 1e9:.2f} GB in {made.seconds:.0f} s")


@image.command("context")
@click.argument("stack")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def context_command(stack: str, directory: Path) -> None:
    """Only prepare the build context of STACK in DIRECTORY, for another builder."""
    from rackpin.image.context import prepare

    try:
        prepare(_lock(stack), directory)
    except ImageError as error:
        raise click.ClickException(str(error)) from None
    click.echo(directory)


@image.command("run-line")
@click.argument("stack")
@click.argument("instances", nargs=-1, metavar="[ENGINE]...")
@click.option(
    "--inventory",
    default=INVENTORY,
    show_default="inventories/prod.py",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--tag", help="Default: rackpin/STACK:LOCK.")
@click.option("--rdma/--no-rdma", default=None, help="Default: where the SKU has a GPU.")
def run_line_command(
    stack: str, instances: tuple[str, ...], inventory: Path, tag: str | None, rdma: bool | None
) -> None:
    """Print the `docker run` line of each ENGINE of the inventory, all without a name."""
    from rackpin.image import runline
    from rackpin.image.build import image_tag
    from rackpin.inventory_check import InventoryError, fleet_from_file

    name = tag or image_tag(_lock(stack))
    try:
        fleet = fleet_from_file(str(inventory), {}, ())
        for engine in runline.pick(fleet, stack, instances, inventory):
            click.echo(runline.text(runline.words(fleet, engine, name, rdma)))
    except (ImageError, InventoryError) as error:
        raise BadInput(str(error)) from None
