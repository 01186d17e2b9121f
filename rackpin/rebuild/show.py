"""What a rebuild says: differences in a table, what others must know."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackpin.fleet.differences import Difference
from rackpin.fleet.identity import Identity
from rackpin.inventory import Fleet
from rackpin.rebuild.hostkey import HostKey
from rackpin.rebuild.look import Known
from rackpin.report.text import clean

COLUMNS = ("part", "what", "was", "now", "what follows")


def table(found: Sequence[Difference], console: Console) -> None:
    made = Table(box=None, pad_edge=False, show_edge=False)
    for title in COLUMNS:
        made.add_column(title, overflow="fold")
    for one in found:
        cells = (one.part, one.what, one.was, one.now, one.follows or "nothing")
        made.add_row(*(Text(clean(cell)) for cell in cells))
    console.print(made)


def differences(
    was: Identity | None, now: Identity, found: Sequence[Difference], console: Console
) -> None:
    if was is None:
        console.print("nothing is recorded of it: it was never found ready, so all of it is new")
        return
    if found:
        table(found, console)
    else:
        console.print("it is what its record says")
    if was.driver and not now.driver and was.gpus:
        console.print("its cards can't be told while no driver is loaded; they are compared after")


def host_key(key: HostKey) -> list[str]:
    """What is offered and what is known, with the way to accept it."""
    if key.state == "known":
        return [f"host key of {key.name}: {key.offered}, as {key.file} has it"]
    lines = [f"host key of {key.name}: {key.state}"]
    lines += [f"  known: {one}" for one in key.known] or [f"  known: none in {key.file}"]
    return [*lines, f"  now:   {key.offered}"]


def must_know(fleet: Fleet, name: str, known: Known, inventory: str) -> list[str]:
    """What other nodes have to learn of this one; the commands for it."""
    node = fleet.nodes[name]
    lines = ["its host key: nobody but this machine's known_hosts"]
    if known.other:
        limits = " ".join(f"--limit {one}" for one in known.other)
        lines += [
            f"{one}: has {other} for {name} in /etc/hosts, the inventory {node.address}"
            for one, other in known.other.items()
        ]
        lines.append(f"tell them: pyinfra {inventory} deploys/base.py -y {limits}")
    else:
        lines.append(f"its address {node.address}: nobody has another one in /etc/hosts")
    if known.unseen:
        lines.append(f"which address these have could not be seen: {', '.join(known.unseen)}")
    if node.in_ray:
        lines.append("the Ray head: nothing, the node's worker joins it by itself")
    for engine in fleet.config.instances:
        if name in engine.nodes[1:]:
            lines.append(
                f"{engine.name} runs from {engine.nodes[0]} over this node; its unit waits for it, "
                f"and where it gave up: pyinfra {inventory} deploys/site.py -y "
                f"--limit {engine.nodes[0]}"
            )
    return lines
