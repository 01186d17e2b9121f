"""``rackpin wheelhouse``. Exit codes as in :mod:`rackpin.cli`."""

from __future__ import annotations

from pathlib import Path

import click

from rackpin.options import STACKS_DIR, BadInput, limits
from rackpin.stack import serve as server
from rackpin.stack import wheelhouse as house
from rackpin.stack.lock import Stack, load_stack
from rackpin.stack.model import StackError

DIR = click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="The wheelhouse; default: wheelhouse/ in $RACKPIN_CACHE or /var/cache/rackpin.",
)


def _load(name: str, root: Path) -> Stack:
    try:
        return load_stack(name, root)
    except StackError as error:
        raise BadInput(str(error)) from None


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.group("wheelhouse")
def wheelhouse_command() -> None:
    """Build, prove and serve the wheels of the locks."""


@wheelhouse_command.command("build")
@click.argument("stack")
@DIR
@STACKS_DIR
def build_command(stack: str, directory: Path | None, root: Path) -> None:
    """Fetch every wheel of STACK's lock and prove its sha256."""
    found = _load(stack, root)
    try:
        house.build(found, directory, root, _say)
    except StackError as error:
        raise click.ClickException(str(error)) from None


@wheelhouse_command.command("verify")
@click.argument("stack")
@DIR
@STACKS_DIR
def verify_command(stack: str, directory: Path | None, root: Path) -> None:
    """Say what the wheelhouse lacks for STACK's lock; exit 1 if anything."""
    directory = directory or house.default_dir()
    problems = house.verify(_load(stack, root).lock, directory)
    for problem in problems:
        click.echo(f"{directory}: {problem}")
    if problems:
        raise click.ClickException(f"run: rackpin wheelhouse build {stack}")
    click.echo(f"{directory}: complete for {stack}")


@wheelhouse_command.command("serve")
@click.option("--bind", required=True, help="Address of this machine in the nodes' network.")
@click.option("--port", default=server.PORT, show_default=True, type=click.IntRange(1, 65535))
@limits
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Default: stderr.")
@DIR
def serve_command(
    bind: str, port: int, log: Path | None, directory: Path | None, at_once: int, limit_mbit: int
) -> None:
    """Serve the wheelhouse to the nodes, GET and HEAD only, until ended."""
    directory = directory or house.default_dir()
    try:
        server.serve(directory, bind, port, log, at_once=at_once, limit_mbit=limit_mbit)
    except StackError as error:
        raise BadInput(str(error)) from None
