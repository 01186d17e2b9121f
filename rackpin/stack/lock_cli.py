"""``rackpin lock`` and ``rackpin diff``. Exit codes as in :mod:`rackpin.cli`."""

from __future__ import annotations

from pathlib import Path

import click

from rackpin.compat.check import check
from rackpin.compat.check import lines as compat_lines
from rackpin.options import MIRRORS, STACKS_DIR, BadInput
from rackpin.stack.changes import compare, find_lock
from rackpin.stack.changes_text import lines, reasons
from rackpin.stack.lock import stack_pins, write_lock
from rackpin.stack.model import StackError
from rackpin.stack.models import manifest_of


@click.command("lock")
@click.argument("stack")
@click.option(
    "--update",
    multiple=True,
    metavar="NAME",
    help="Let this distribution, deb or image move too; debs: all of them.",
)
@click.option("--update-all", is_flag=True, help="Let everything move that the pins leave open.")
@MIRRORS
@click.option("--keys", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Vendors' key files of your own, e.g. nvidia-cuda.asc.")  # fmt: skip
@STACKS_DIR
def lock_command(
    stack: str,
    update: tuple[str, ...],
    update_all: bool,
    mirrors: dict[str, str],
    keys: Path | None,
    root: Path,
) -> None:
    """Resolve STACK's pins into its lock and print what changed.

    Versions in the present lock stay unless the pins, --update or --update-all move them. A
    repository that does not answer leaves its packages unresolved, with the reason.
    """
    from rackpin.stack.resolve import resolve  # starts uv; not needed by the other commands

    try:
        old, new, wanted_by = resolve(stack, root, update, update_all, mirrors, keys)
        directory = write_lock(new, root)
    except StackError as error:
        raise BadInput(str(error)) from None
    if old and old.digest == new.digest:
        click.echo(f"{stack}: unchanged, {new.short}")
        return
    found = compare(old, new, stack if old else "nothing", stack)
    for line in lines(found):
        click.echo(line)
    pins = stack_pins(stack, root)
    for line in reasons(found.wheels, pins, update, wanted_by) if old else ():
        click.echo(line)
    for key, item in new.unresolved.items():
        click.echo(f"unresolved: {key} ({item.wanted}): {item.unresolved.reason}")
    *_, verdict = compat_lines(check(stack, root))
    click.echo(f"rackpin check {verdict}")
    click.echo(f"{stack}: {old.short if old else '–'} → {new.short}, in {directory}")


@click.command("model")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--url", default="", help="Where the same files lie publicly (https://…).")
def model_command(directory: Path, url: str) -> None:
    """Print the manifest of the model in DIRECTORY: every file with its sha256.

    Put it beside the pins and name it there: models: {NAME: {manifest: FILE.json}}.
    """
    try:
        text = manifest_of(directory, url, lambda path: click.echo(f"reading {path}", err=True))
    except StackError as error:
        raise BadInput(str(error)) from None
    click.echo(text, nl=False)


@click.command("diff")
@click.argument("was")
@click.argument("now")
@click.option("--wheels", is_flag=True, help="List every distribution that moves.")
@click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")
@STACKS_DIR
def diff_command(was: str, now: str, wheels: bool, as_json: bool, root: Path) -> None:
    """What a change from stack WAS to stack NOW moves, and what it interrupts.

    Either may be the path of a lock.json, for example one of an older commit.
    """
    try:
        found = compare(find_lock(was, root), find_lock(now, root), was, now)
    except StackError as error:
        raise BadInput(str(error)) from None
    if as_json:
        click.echo(found.as_json(), nl=False)
        return
    for line in lines(found, wheels):
        click.echo(line)
