"""What a unit that computes on cards waits for before it starts."""

from __future__ import annotations

from rackpin import layout
from rackpin.desired import OwnedFile, owned
from rackpin.inventory import Node
from rackpin.skus import load_sku
from rackpin.stages.driver import FABRIC

PROGRAM = f"{layout.LIB}/cards-gate"
NONE = "none"  # the model of a SKU without cards


def expected(node: Node) -> int:
    """Cards that the driver must have found; 0 where there are none. MIG slices are no cards."""
    gpus = load_sku(node.sku).gpus
    return 0 if gpus.model == NONE else min(node.gpus, gpus.count)


def files(node: Node) -> tuple[OwnedFile, ...]:
    return (owned("usr/local/lib/rackpin/cards-gate.j2", mode="755"),) if expected(node) else ()


def gate(node: Node, wait_s: float) -> str:
    """The gate's command line for a unit; empty where there is nothing to wait for."""
    count = expected(node)
    fabric = f" {FABRIC}" if node.nvswitch else ""
    return f"{PROGRAM} {count} {round(wait_s)}{fabric}" if count else ""
