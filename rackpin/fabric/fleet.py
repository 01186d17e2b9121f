"""What only shows when nodes are put side by side: a node whose fabric is not like the others'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rackpin.fabric.select import Choice

Shape = tuple[str, int, float]  # link layer, ports, Gb/s of one


def shape(choice: Choice) -> Shape:
    rates = [rail.port.rate_gbps for rail in choice.rails if rail.port.up]
    return choice.layer, len(rates), max(rates, default=0.0)


def uneven(choices: Mapping[str, Choice]) -> list[str]:
    """One line for each node that is not as most are; NCCL hangs or crawls over such pairs (F083).

    ``choices`` by node, of the nodes that serve together.
    """
    shapes = {name: shape(choice) for name, choice in sorted(choices.items())}
    if len(set(shapes.values())) < 2:
        return []
    # The most frequent; of equals the one with more.
    usual = max(Counter(shapes.values()).items(), key=lambda item: (item[1], item[0][1:]))[0]
    return [
        f"{name}: fabric: {_said(found)}, where most nodes have {_said(usual)}"
        for name, found in shapes.items()
        if found != usual
    ]


def _said(found: Shape) -> str:
    layer, count, rate = found
    return f"{count} live {layer} ports of {rate:g} Gb/s" if count else "no live port"
