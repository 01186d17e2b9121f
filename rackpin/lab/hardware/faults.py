"""Faults by name: each a pure function from a node to the node that has it.

A wish is ``NAME`` or ``NAME=WHERE``: the slot of a card (from 0), the name of an HCA, a version.
Without WHERE it is the second card (the first where there is one only), the last HCA, the next
version.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import drivers, faults_of_cards, faults_of_nodes
from rackpin.lab.hardware.fault_parts import FAULTS, Fault
from rackpin.lab.hardware.model import Node

__all__ = ["FAULTS", "Fault", "apply", "faults_of_cards", "faults_of_nodes"]


def apply(node: Node, wished: Sequence[str]) -> Node:
    """The node with all faults; LabError lists every one that can't be had on this node."""
    problems = []
    for wish in wished:
        name, equals, where = wish.partition("=")
        found = FAULTS.get(name)
        try:
            if found is None:
                raise LabError(drivers.unknown("fault", name, list(FAULTS)))
            if equals and not found.where:
                raise LabError(f"fault {name} takes no {wish[len(name) :]}")
            node = found.change(node, where)
        except LabError as error:
            problems.append(str(error))
    if problems:
        raise LabError(f"{node.name}: {len(problems)} fault(s) can't be had:", *problems)
    return node
