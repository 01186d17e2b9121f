"""Who is at fault, from what pairs of nodes gave: a node, a link, or what joins a group. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rackpin.findings import Outcome
from rackpin.verify.nccl_run import Judged
from rackpin.verify.pairs import Matrix, bad_edges, components

MOST = 0.5  # a node that is bad with more than this part of its partners is at fault itself
Edge = frozenset[str]


@dataclass(frozen=True)
class Fault:
    """Who is at fault: a node, the only link between two, or what joins a group to the rest."""

    kind: Literal["node", "pair", "group", "all"]
    nodes: tuple[str, ...]
    text: str
    outcome: Outcome
    remedy: str


def faults(nodes: Sequence[str], matrix: Matrix) -> list[Fault]:
    """Nodes that are bad with all, groups that are bad with the rest, single pairs.

    A node is only blamed for a pair whose other end is sound with somebody.
    """
    parts, bad = components(nodes, matrix), bad_edges(nodes, matrix)
    if not bad:
        return []
    main = parts[0]
    if len(main) == 1:
        return [_everything(nodes, bad)]
    lone = {node for part in parts if len(part) == 1 for node in part}
    found: list[Fault] = []
    blamed: set[str] = set()
    for part in parts[1:]:
        across = [edge for edge in bad if len(edge & part) == 1 and not (edge - part) <= lone]
        touched = Edge().union(*across) & part
        sources = [matrix.edges[edge][-1] for edge in across]
        if touched != part:
            continue  # some of it never met the others: single links say more
        if len(part) == 1:
            found.append(_node(next(iter(part)), sources, len(across), len(across)))
        else:
            found.append(_group(nodes, part, main, sources))
        blamed |= part
    for node in nodes:  # bad with most of its partners, sound with some
        mine = [edge for edge in bad if node in edge and not edge & blamed]
        met = [other for other in matrix.partners(node) if other not in blamed]
        if node not in blamed and len(mine) > 1 and len(mine) > MOST * len(met):
            sources = [matrix.edges[edge][-1] for edge in mine]
            found.append(_node(node, sources, len(mine), len(met)))
            blamed.add(node)
    for edge in bad:
        if not edge & blamed:
            found.append(_pair(nodes, edge, matrix.edges[edge][-1], told_apart=not edge & lone))
    return found


WORDS: Mapping[str, str] = {
    "slow": "slow",
    "wrong": "wrong (damaged data)",
    "broken": "broken",
    "way": "on the wrong way",
    "hung": "hung",
    "": "far slower than the others",
}


def said(sources: Sequence[Judged]) -> str:
    """The worst that was seen, in a word."""
    order = ("wrong", "hung", "broken", "way", "slow", "")
    return WORDS[min((one.trouble for one in sources), key=order.index)]


def why(sources: Sequence[Judged]) -> str:
    first = next((one.measurement.why for one in sources if one.measurement.why), "")
    return f": {first}" if first else ""


def _outcome(sources: Sequence[Judged]) -> Outcome:
    failed = any(one.measurement.outcome is Outcome.FAIL for one in sources)
    return Outcome.FAIL if failed else Outcome.WARN


def _node(node: str, sources: Sequence[Judged], bad: int, of: int) -> Fault:
    every = "every partner" if bad == of else f"{bad} of {of} partners"
    return Fault(
        "node",
        (node,),
        f"{node} is {said(sources)} with {every}{why(sources)}",
        _outcome(sources),
        "take the node out of service; see its fabric and gpu findings, its HCAs' counters and "
        "cables, and nccl.loop, which asks the node alone",
    )


def _pair(nodes: Sequence[str], edge: Edge, source: Judged, told_apart: bool) -> Fault:
    one, other = (node for node in nodes if node in edge)
    what = f"only {one}–{other} is {said([source])}, each is sound with others: the cable or the "
    what += "switch port between them"
    if not told_apart:
        what = f"{one}–{other} is {said([source])}; no sound partner was left to tell them apart"
    return Fault(
        "pair",
        (one, other),
        f"{what}{why([source])}",
        _outcome([source]),
        "look at the errors of the switch ports on the way between the two (ibqueryerrors, "
        "ethtool -S), and at the routes; until then no engine over both of them",
    )


def _group(nodes: Sequence[str], part: Edge, main: Edge, sources: Sequence[Judged]) -> Fault:
    names = tuple(node for node in nodes if node in part)
    rest = "the other nodes" if len(main) > len(part) else named([n for n in nodes if n in main])
    return Fault(
        "group",
        names,
        f"{named(names)} are {said(sources)} with {rest}, and sound among themselves: the leaf "
        f"switch or the links that join them to the rest{why(sources)}",
        _outcome(sources),
        "look at that switch and its uplinks; until then no engine over both sides",
    )


def _everything(nodes: Sequence[str], bad: Sequence[Edge]) -> Fault:
    names = tuple(node for node in nodes if any(node in edge for edge in bad))
    more = (
        "there is no sound third node to tell which of the two"
        if len(names) == 2
        else ("not one pair is sound: look at what all share (fabric, subnet manager, settings)")
    )
    return Fault(
        "all",
        names,
        f"{named(names)} are bad with each other: {more}",
        Outcome.FAIL,
        "see nccl.loop and the fabric findings of each node first",
    )


def named(nodes: Sequence[str], limit: int = 8) -> str:
    listed = ", ".join(nodes[:limit])
    return listed if len(nodes) <= limit else f"{listed} and {len(nodes) - limit} more"
