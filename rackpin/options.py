"""What several commands take or say alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rackpin.stack.lock import STACKS

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
