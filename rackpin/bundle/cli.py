"""``rackpin bundle``: make, verify and serve a bundle.

Exit codes: 0 done, or whole; 1 something is missing, damaged or could not be had, each named;
2 bad input, or no bundle there; 3 (verify) files could not be read, so nothing is known of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from rackpin.bundle.model import BundleError, Contents, Manifest, read_manifest
from rackpin.options import MIRRORS, STACKS_DIR, BadInput, limits
from rackpin.stack.lock import Stack, load_stack
from rackpin.stack.pins import StackError

EVERY_S = 10  # without a terminal, a line so often
Moved = Callable[[int], None]


class CouldNotLook(click.ClickException):
    """Some of the bundle could not be read."""

    exit_code = 3


class BundleGroup(click.Group):
    """``rackpin bundle STACK`` is ``rackpin bundle make STACK``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = next((word for word in args if not word.startswith("-")), "")
        if first not in self.commands and args and args != ["--help"]:
            args = ["make", *args]
        return super().parse_args(ctx, args)


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], Moved]]:
    """Gives a function that takes the bytes to come and gives one that counts them."""
    console = Console(stderr=True)
    bar = Progress(
        "{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal,
    )  # fmt: skip
    told = [time.monotonic(), 0, 0]  # when last, bytes so far, of how many

    def start(total: int) -> Moved:
        task = bar.add_task(what, total=total or None)
        told[2] = total

        def moved(size: int) -> None:
            bar.advance(task, size)
            told[1] += size
            if not console.is_terminal and time.monotonic() - told[0] >= EVERY_S:
                told[0] = time.monotonic()
                _say(f"{what}: {told[1] / 1e6:.0f} of {told[2] / 1e6:.0f} MB")

        return moved

    with bar:
        yield start


@click.group("bundle", cls=BundleGroup)
def bundle_command() -> None:
    """Everything of a lock in one directory: rackpin bundle STACK -o DIR, verify, serve."""


def _models(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, Path]:
    found = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not Path(place).is_dir():
            raise BadInput(f"--model {text}: write it as NAME=DIRECTORY of this machine")
        found[name] = Path(place)
    return found


def _load(
    name: str, root: Path, mirrors: dict[str, str], models: dict[str, Path] | None = None
) -> tuple[Stack, Contents]:
    from rackpin.bundle.contents import contents

    try:
        stack = load_stack(name, root)
        return stack, contents(stack, mirrors, models)
    except (StackError, BundleError) as error:
        raise BadInput(str(error)) from None


def _read(directory: Path) -> Manifest:
    try:
        return read_manifest(directory)
    except BundleError as error:
        if "damaged" in str(error):
            raise click.ClickException(str(error)) from None
        raise BadInput(str(error)) from None


@bundle_command.command("make")
@click.argument("stack")
@click.option(
    "-o", "--output", "directory", required=True, help="The bundle's directory.",
    type=click.Path(file_okay=False, path_type=Path),
)  # fmt: skip
@click.option("--jobs", default=4, show_default=True, type=click.IntRange(1, 32), help="At once.")
@click.option("--sign-key", metavar="FINGERPRINT", help="Sign the apt repositories with this key.")
@click.option("--model", "models", multiple=True, metavar="NAME=DIR", callback=_models,
              help="Where this machine has a model of the lock.")  # fmt: skip
@MIRRORS
@click.option("--without-unresolved", is_flag=True, help="Leave out what the lock lacks.")
@STACKS_DIR
def make_command(
    stack: str,
    directory: Path,
    jobs: int,
    sign_key: str | None,
    models: dict[str, Path],
    mirrors: dict[str, str],
    without_unresolved: bool,
    root: Path,
) -> None:
    """Fetch, prove and index all that STACK's lock names. Killed at any moment: run it again."""
    from rackpin.bundle.build import build

    loaded, wanted = _load(stack, root, mirrors, models)
    if wanted.unresolved and not without_unresolved:
        lines = [f"  {key}: {why}" for key, why in sorted(wanted.unresolved.items())]
        raise BadInput(
            f"stack {stack}: {len(lines)} part(s) of it can't be bundled:\n"
            + "\n".join(lines)
            + "\nlock them where they can be reached, or give --without-unresolved"
        )
    try:
        with progress("fetching") as start:
            made = build(
                loaded, wanted, directory, jobs=jobs, sign_key=sign_key, root=root,
                say=_say, start=start,
            )  # fmt: skip
    except BundleError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.ClickException(f"{directory}: interrupted; run it again to go on") from None
    if made.apt and not made.signed_by:
        _say("its apt repositories are unsigned: nodes take them only where the inventory says so")


@bundle_command.command("verify")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--stack", help="Also compare it with this stack's lock.")
@click.option("--jobs", default=4, show_default=True, type=click.IntRange(1, 32), help="At once.")
@STACKS_DIR
def verify_command(directory: Path, stack: str | None, jobs: int, root: Path) -> None:
    """Read every byte of the bundle in DIRECTORY again; name each file that is wrong."""
    from rackpin.bundle.verify import verify

    manifest = _read(directory)
    items = _load(stack, root, {})[1].items if stack else None
    total = sum(entry.size for entry in manifest.files)
    with progress("reading") as start:
        problems = verify(directory, manifest, items, jobs=jobs, moved=start(total))
    for problem in problems:
        click.echo(str(problem))
    where = f"{directory}: {manifest.stack} {manifest.lock_digest[:12]}"
    unread = [problem for problem in problems if problem.kind == "unreadable"]
    if len(problems) > len(unread):
        raise click.ClickException(
            f"{where}: {len(problems)} problem(s); rackpin bundle {manifest.stack} -o {directory} "
            "mends it where the network is, else take a good copy"
        )
    if unread:
        raise CouldNotLook(f"{where}: {len(unread)} file(s) could not be read")
    click.echo(f"{where}: whole, {len(manifest.files)} files, {total / 1e6:.0f} MB")


@bundle_command.command("serve")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--bind", required=True, help="Address of this machine in the nodes' network.")
@click.option("--port", default=8901, show_default=True, type=click.IntRange(0, 65535))
@limits
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Default: stderr.")
def serve_command(
    directory: Path, bind: str, port: int, log: Path | None, at_once: int, limit_mbit: int
) -> None:
    """Serve a finished bundle to the nodes, GET and HEAD only, until ended."""
    from rackpin.bundle.serve import serve

    _read(directory)
    try:
        serve(directory, bind, port, log, at_once=at_once, limit_mbit=limit_mbit)
    except (StackError, BundleError) as error:
        raise BadInput(str(error)) from None


def main(arguments: list[Any] | None = None) -> None:
    """For ``python -m rackpin.bundle.cli``."""
    bundle_command.main(args=arguments, prog_name="rackpin bundle")


if __name__ == "__main__":
    main(sys.argv[1:])
