"""A set of nodes that fails together: the smallest pair or node that does, in few rounds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rackpin.verify.blame import named, said, why
from rackpin.verify.nccl_run import Judged

# Runs sets of nodes, disjoint ones, at the same time: one round. Results in the same order.
Measure = Callable[[Sequence[Sequence[str]]], list[Judged]]
Nodes = tuple[str, ...]


@dataclass(frozen=True)
class Culprit:
    """``set``: fails only as a whole; neither half does."""

    kind: Literal["node", "pair", "set"]
    nodes: Nodes
    text: str


@dataclass
class Search:
    culprits: list[Culprit] = field(default_factory=list)
    rounds: int = 0
    sound: set[str] = field(default_factory=set)  # ran well in some part


def bisect(nodes: Sequence[str], measure: Measure) -> Search:
    """Split what fails until it can't be split: at most ⌈log2 N⌉ rounds, however many fail."""
    search = Search()
    failing: list[Nodes] = [tuple(nodes)]
    while failing:
        bigger = [one for one in failing if len(one) > 2]
        last = [one for one in failing if len(one) == 2]
        tests: list[Nodes] = []
        free = [node for node in nodes if node in search.sound and not _in(node, failing)]
        halves: dict[Nodes, list[Nodes]] = {}
        for one in bigger:
            cut = (len(one) + 1) // 2
            # one node alone runs nothing: the odd one of three is borrowed a sound partner
            first, second = one[:cut], one[cut:]
            if len(second) == 1:
                second = (free.pop(0), *second) if free else ()
            halves[one] = [part for part in (first, second) if part]
            tests += halves[one]
        ends: dict[Nodes, list[Nodes]] = {}
        for one in last:
            ends[one] = [(free.pop(0), node) for node in one if free]
            tests += ends[one]
        found = _measured(tests, measure, search)
        failing = []
        for one, parts in halves.items():
            failing += _narrowed(one, parts, found, search)
        for one, parts in ends.items():
            search.culprits.append(_last(one, parts, found))
    return search


def _in(node: str, sets: Sequence[Nodes]) -> bool:
    return any(node in one for one in sets)


def _measured(tests: list[Nodes], measure: Measure, search: Search) -> dict[Nodes, Judged]:
    if not tests:
        return {}
    search.rounds += 1
    found = dict(zip(tests, measure(tests), strict=True))
    for one, result in found.items():
        if result.good:
            search.sound |= set(one)
    return found


def _narrowed(
    one: Nodes, parts: list[Nodes], found: dict[Nodes, Judged], search: Search
) -> list[Nodes]:
    """The parts of a failing set that fail; without any the set is the culprit."""
    bad = [part for part in parts if not found[part].good]
    if not bad:
        text = f"neither half of {named(one)} fails alone: it takes all {len(one)} of them"
        if len(parts) == 1:
            text = f"{named(one)} fail together; {named(parts[0])} alone don't"
        search.culprits.append(Culprit("set", one, text))
    left = []
    for part in bad:
        inside = tuple(node for node in part if node in one)
        if len(inside) == 1:
            search.culprits.append(_node(inside[0], part, found[part]))
        else:
            left.append(part)
    return left


def _last(one: Nodes, parts: list[Nodes], found: dict[Nodes, Judged]) -> Culprit:
    """A pair that fails: is it a node of it, or what is between them?"""
    for part in parts:
        if not found[part].good:
            return _node(part[-1], part, found[part])
    text = f"only {one[0]}–{one[1]} fails: the cable or the switch port between them"
    if len(parts) < 2:
        text = f"{one[0]}–{one[1]} fails; there was no sound node left to tell which of the two"
    return Culprit("pair", one, text)


def _node(node: str, part: Nodes, result: Judged) -> Culprit:
    partner = named([other for other in part if other != node])
    text = f"{node} is {said([result])} with {partner} too, which is sound{why([result])}"
    return Culprit("node", (node,), text)
