"""What several commands take or say alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rackpin.stack.lock import STACKS
from rackpin.stack.serve import AT_ONCE

F = TypeVar("F", bound=Callable[..., Any])

STACKS_DIR = click.option(
    "--stacks",
    "root",
    default=STACKS,
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory that holds the stacks.",
)


class BadInput(click.ClickException):
    """Pins, lock or another input are wrong; nothing was done."""

    exit_code = 2


def _mirrors(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, url = text.partition("=")
        if not equals or "://" not in url:
            raise BadInput(f"--mirror {text}: write it as NAME=URL, for example debian=http://…")
        found[name] = url
    return found


def limits(command: F) -> F:
    """``--at-once`` and ``--limit-mbit`` of a server that nodes fetch from."""
    command = click.option(
        "--limit-mbit",
        default=0,
        show_default="no limit",
        type=click.IntRange(0),
        help="Mbit/s that it sends in all.",
    )(command)
    return click.option(
        "--at-once",
        default=AT_ONCE,
        show_default=True,
        type=click.IntRange(1),
        help="Transfers to nodes that also ask their neighbours.",
    )(command)


MIRRORS = click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="NAME=URL",
    callback=_mirrors,
    help="A repository's address here.",
)


def inventory_data(function: F) -> F:
    """``--data`` and ``--group-data``, as pyinfra has them."""
    group_data = click.option(
        "--group-data",
        multiple=True,
        type=click.Path(exists=True, file_okay=False),
        help="As pyinfra's --group-data.",
    )
    data = click.option(
        "--data", "data", multiple=True, metavar="KEY=VALUE", help="As pyinfra's --data."
    )
    return data(group_data(function))
