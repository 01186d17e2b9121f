"""Every node with every other, as many pairs at a time as there are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from rackpin.findings import Outcome
from rackpin.verify.nccl_run import Judged

# Below this part of the median of its siblings a pair is odd. Sound pairs of one fabric are
# within a few percent of each other; one HCA of eight less is an eighth.
ODD_BELOW = 0.9
Pair = tuple[str, str]


def circle(nodes: Sequence[str]) -> list[list[Pair]]:
    """Rounds of disjoint pairs in which everyone meets everyone once (the circle method).

    N-1 rounds of N/2 pairs; an odd number has a bye each round, so N rounds.
    """
    ring: list[str | None] = [*nodes]
    if len(ring) % 2:
        ring.append(None)
    rounds = []
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        rounds.append([(a, b) for a, b in met if a is not None and b is not None])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return rounds if len(nodes) > 1 else []


@dataclass
class Matrix:
    """What was measured between two nodes, the newest last."""

    edges: dict[frozenset[str], list[Judged]] = field(default_factory=dict)

    def add(self, found: Judged) -> None:
        if found.trouble != "unfit":
            self.edges.setdefault(frozenset(found.collective.nodes), []).append(found)

    def partners(self, node: str) -> dict[str, Judged]:
        """Each other node that it was measured with, and the newest result."""
        found = {}
        for edge, results in self.edges.items():
            if node in edge:
                (other,) = edge - {node}
                found[other] = results[-1]
        return found

    def usual(self) -> float | None:
        """Median of the pairs' speeds; None with fewer than three of them."""
        speeds = [
            results[-1].measurement.busbw_gb_s
            for results in self.edges.values()
            if results[-1].measurement.busbw_gb_s is not None
        ]
        numbers = [speed for speed in speeds if speed is not None]
        return median(numbers) if len(numbers) >= 3 else None

    def bad(self, found: Judged) -> bool:
        """Below its figure or broken; without a figure, far below what is usual here."""
        if found.trouble or found.measurement.outcome in (Outcome.FAIL, Outcome.WARN):
            return True
        if found.collective.figure is not None:
            return False
        usual, speed = self.usual(), found.measurement.busbw_gb_s
        return usual is not None and speed is not None and speed < ODD_BELOW * usual

    def unstable(self) -> list[Pair]:
        """Pairs that were bad once and are not any more."""
        found = []
        for edge, results in self.edges.items():
            if not self.bad(results[-1]) and any(self.bad(one) for one in results[:-1]):
                one, other = sorted(edge)
                found.append((one, other))
        return sorted(found)


def components(nodes: Sequence[str], matrix: Matrix) -> list[frozenset[str]]:
    """Nodes that reach each other over good pairs, the largest set first."""
    good: dict[str, set[str]] = {node: set() for node in nodes}
    for edge, results in matrix.edges.items():
        if edge <= good.keys() and not matrix.bad(results[-1]):
            one, other = edge
            good[one].add(other)
            good[other].add(one)
    left, found = dict.fromkeys(nodes), []
    while left:
        part, open_ones = set(), [next(iter(left))]
        while open_ones:
            node = open_ones.pop()
            if node not in part:
                part.add(node)
                open_ones += good[node]
        for node in part:
            del left[node]
        found.append(frozenset(part))
    return sorted(found, key=len, reverse=True)


def suspects(nodes: Sequence[str], matrix: Matrix) -> tuple[list[str], list[str], list[Pair]]:
    """Who is to be measured again, with whom (known to be sound), and which pairs by themselves."""
    parts = components(nodes, matrix)
    main = parts[0] if parts and len(parts[0]) > 1 else frozenset[str]()
    bad = bad_edges(nodes, matrix)
    inside = [edge for edge in bad if edge <= main]
    doubtful = {node for edge in inside for node in edge}
    outside = {node for edge in bad for node in edge if node not in main}
    again = [node for node in nodes if node in doubtful | outside]
    sound = [node for node in nodes if node in main and node not in doubtful]
    pairs: list[Pair] = []
    taken: set[str] = set()
    for edge in inside:
        if not edge & taken:
            taken |= edge
            one, other = (node for node in nodes if node in edge)
            pairs.append((one, other))
    return again, sound, pairs


def partnered(again: Sequence[str], sound: Sequence[str], matrix: Matrix) -> list[Pair]:
    """Each suspect with a sound partner of its own, one it hasn't met where there is one."""
    left, found = list(sound), []
    for node in again:
        if not left:
            break
        met = matrix.partners(node)
        partner = next((one for one in left if one not in met), left[0])
        left.remove(partner)
        found.append((partner, node))
    return found


def bad_edges(nodes: Sequence[str], matrix: Matrix) -> list[frozenset[str]]:
    known = set(nodes)
    return [
        edge for edge, results in matrix.edges.items() if edge <= known and matrix.bad(results[-1])
    ]
