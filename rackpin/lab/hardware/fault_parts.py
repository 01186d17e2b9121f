"""What faults are made of: their register, and how to change one card, one HCA, the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import drivers
from rackpin.lab.hardware.model import Nic, Node

Change = Callable[[Node, str], Node]
FAULT_AT_S = 86.4  # seconds after boot at which the kernel logs what broke


@dataclass(frozen=True)
class Fault:
    """``where``: what may stand after ``=``, empty when nothing may."""

    name: str
    about: str
    where: str
    change: Change


FAULTS: dict[str, Fault] = {}


def fault(name: str, about: str, where: str = "") -> Callable[[Change], Change]:
    """Registers a change under a name."""

    def add(change: Change) -> Change:
        FAULTS[name] = Fault(name, about, where, change)
        return change

    return add


def changed(node: Node, **changes: Any) -> Node:
    """The node with other values in these fields."""
    return node.model_copy(update=changes)


def index_of(node: Node, where: str) -> int:
    """Place in ``node.gpus`` of the card in slot ``where``; of the second card without."""
    if not where:
        return min(1, len(node.gpus) - 1)
    slots = [str(gpu.minor) for gpu in node.gpus]
    if where not in slots:
        raise LabError(f"{node.preset.name} has no card {where!r}: {', '.join(slots)}")
    return slots.index(where)


def with_card(node: Node, where: str, **changes: Any) -> Node:
    """The node with one card changed."""
    chosen = index_of(node, where)
    return changed(
        node,
        gpus=[
            gpu.model_copy(update=changes) if i == chosen else gpu
            for i, gpu in enumerate(node.gpus)
        ],
    )


def chosen_nic(node: Node, where: str) -> Nic:
    """The HCA of that name; the last one without."""
    if not node.nics:
        raise LabError(f"{node.preset.name} has no HCA")
    known = [nic.device for nic in node.nics]
    if where and where not in known:
        raise LabError(drivers.unknown("HCA", where, known))
    return node.nics[known.index(where) if where else -1]


def with_nic(node: Node, where: str, **changes: Any) -> Node:
    """The node with one HCA changed."""
    chosen = chosen_nic(node, where)
    nics = [nic.model_copy(update=changes) if nic is chosen else nic for nic in node.nics]
    return changed(node, nics=nics)


def logged(node: Node, *lines: str) -> Node:
    """The node with more lines in its kernel log, after those of faults before."""
    begin = FAULT_AT_S + len(node.kernel_log)
    stamped = [(begin + i / 1000, line) for i, line in enumerate(lines)]
    return changed(node, kernel_log=[*node.kernel_log, *stamped])
