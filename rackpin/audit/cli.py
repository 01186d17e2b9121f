"""``rackpin audit``: what is there against the lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from rackpin.audit.document import Document, Target, document
from rackpin.audit.node.main import EXITS, EXPECTED
from rackpin.options import inventory_data

COULD_NOT_LOOK = EXITS["could_not_look"]


class WrongCall(click.UsageError):
    exit_code = COULD_NOT_LOOK


class Audit(click.Command):
    """A wrong call exits 3 too: 2 is this command's word for drift."""

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except click.UsageError as error:
            raise WrongCall(error.format_message(), error.ctx) from error


def refuse(message: str) -> NoReturn:
    click.echo(f"rackpin audit: {message}", err=True)
    raise SystemExit(COULD_NOT_LOOK)


@click.command("audit", cls=Audit)
@click.argument("hosts", nargs=-1, metavar="[HOST]…")
@click.option(
    "-i",
    "--inventory",
    envvar="RACKPIN_INVENTORY",
    type=click.Path(exists=True, dir_okay=False),
    help="The inventory FILE.py of the hosts ($RACKPIN_INVENTORY).",
)
@inventory_data
@click.option("--local", is_flag=True, help="This machine, by what its last deploy left on it.")
@click.option("--image", metavar="REF", help="A Docker image of this machine's engine.")
@click.option("--stack", metavar="NAME", help="The stack that the image should carry.")
@click.option("--deep", is_flag=True, help="Read and hash every file, not only changed ones.")
@click.option("--json", "as_json", is_flag=True, help="Print the document as JSON.")
@click.option("--all", "everything", is_flag=True, help="Show what is the same, too.")
def audit(
    hosts: tuple[str, ...],
    inventory: str | None,
    data: tuple[str, ...],
    group_data: tuple[str, ...],
    local: bool,
    image: str | None,
    stack: str | None,
    deep: bool,
    as_json: bool,
    everything: bool,
) -> None:
    """Compare nodes, this machine or an image with the lock and the inventory.

    HOSTs are names or groups of the inventory; without any, all of it. Changes nothing.
    Exit code 0: all the same. 2: drift. 3: something could not be looked at, drift or not.
    """
    if sum((local, image is not None, bool(hosts))) > 1:
        refuse("give HOSTs, --local or --image, not two of them")
    if stack and not image:
        refuse("--stack belongs to --image; nodes have the stack of their inventory")
    if image is not None:
        found = of_image(image, stack)
    elif local:
        found = of_this_machine(deep)
    else:
        found = of_nodes(hosts, inventory, data, group_data, deep)
    if not everything:
        targets = [target.model_copy(update={"same": []}) for target in found.targets]
        found = found.model_copy(update={"targets": targets})
    if as_json:
        click.echo(found.model_dump_json(indent=1))
    else:
        from rich.console import Console

        from rackpin.audit.table import show

        show(found, Console(), everything)
    raise SystemExit(found.exit_code)


def of_this_machine(deep: bool) -> Document:
    """By the expectation that the last deploy left here."""
    from rackpin.audit.node.main import audit as look
    from rackpin.audit.node.sheet import SCHEMA_VERSION

    try:
        wish = json.loads(Path(EXPECTED).read_text(encoding="utf-8"))
        if wish["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"has schema_version {wish['schema_version']}")
    except PermissionError:
        refuse(f"{EXPECTED}: only root may read it; run this as root")
    except (OSError, ValueError, KeyError) as error:
        refuse(f"{EXPECTED}: {error}; is this a node? run deploys/audit.py for it")
    target = Target.model_validate(look(wish, deep))
    return document(
        [target], stack=wish["stack"], lock=wish["lock"], deep=deep, fleet=wish["fleet"]
    )


def of_image(reference: str, stack: str | None) -> Document:
    from rackpin.audit import expect
    from rackpin.audit.image import audit_image
    from rackpin.audit.records import wheel_records
    from rackpin.stack.lock import load_stack, stack_names
    from rackpin.stack.pins import StackError

    if not stack:
        refuse(f"--image needs --stack NAME; known: {', '.join(stack_names())}")
    try:
        lock = load_stack(stack).lock
    except StackError as error:
        refuse(str(error))
    records, _ = wheel_records(lock)
    wish = expect.with_records(expect.for_image(lock, reference), records)
    target = audit_image(reference, wish)
    return document([target], stack=lock.stack, lock=lock.digest, deep=True)


def of_nodes(
    hosts: Sequence[str],
    file: str | None,
    data: Sequence[str],
    group_data: Sequence[str],
    deep: bool,
) -> Document:
    from rackpin.audit import expect
    from rackpin.audit.connect import execute_over
    from rackpin.audit.fleet import audit_nodes
    from rackpin.audit.records import wheel_records
    from rackpin.desired import Target as Node
    from rackpin.inventory_open import OpenError, opened

    try:
        found = opened(file, data, group_data, raw=True)
        names = found.nodes(hosts)
    except OpenError as error:
        refuse(f"{error}" if file else f"{error} (or --local, --image)")
    fleet, lock = found.fleet, found.lock
    nodes = [fleet.nodes[name] for name in names]
    records, _ = wheel_records(lock)
    wishes = [
        expect.with_records(expect.for_node(Node(fleet, node, lock)), records) for node in nodes
    ]
    targets = audit_nodes(wishes, deep, execute_over(found.made))
    return document(
        targets, stack=lock.stack, lock=lock.digest, deep=deep, fleet=fleet.config.fleet
    )
