"""Which GPUs are all joined with each other: groups in a graph of links, as bit sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# An exact search is exponential at worst; no host has more GPUs than this.
_EXACT = 24


def connected(nodes: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Sets of two and more that a path of pairs joins, smallest member first."""
    return [sorted(part) for part in _components(_neighbours(nodes, pairs)) if len(part) > 1]


def complete_groups(nodes: Sequence[int], pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Disjoint sets of two and more in which every pair is joined: the largest first, then the
    largest of what is left; returned by smallest member. Above 24 nodes not always the largest.
    """
    left = _neighbours(nodes, pairs)
    groups = []
    while left:
        best = max(
            (_largest(left, part) for part in _components(left)),
            key=lambda group: (len(group), [-node for node in group]),
        )
        if len(best) < 2:
            break
        groups.append(best)
        gone = set(best)
        left = {node: near - gone for node, near in left.items() if node not in gone}
    return sorted(groups)


def _neighbours(nodes: Sequence[int], pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    near: dict[int, set[int]] = {node: set() for node in nodes}
    for one, other in pairs:
        near[one].add(other)
        near[other].add(one)
    return near


def _components(near: dict[int, set[int]]) -> list[list[int]]:
    seen: set[int] = set()
    parts = []
    for start in near:
        if start in seen:
            continue
        seen.add(start)
        part, edge = [start], [start]
        while edge:
            fresh = near[edge.pop()] - seen
            seen |= fresh
            part += fresh
            edge += fresh
        parts.append(part)
    return parts


def _largest(near: dict[int, set[int]], part: list[int]) -> list[int]:
    """The largest complete set of a component; of equal ones that of the smallest numbers."""
    if all(len(near[node]) == len(part) - 1 for node in part):
        return sorted(part)
    if len(part) > _EXACT:
        return _greedy(near, part)
    best: list[int] = []

    def grow(group: list[int], candidates: list[int]) -> None:
        nonlocal best
        if len(group) > len(best):
            best = group
        for place, node in enumerate(candidates):
            if len(group) + len(candidates) - place <= len(best):
                return
            grow(
                [*group, node], [other for other in candidates[place + 1 :] if other in near[node]]
            )

    grow([], sorted(part))
    return best


def _greedy(near: dict[int, set[int]], part: list[int]) -> list[int]:
    group: list[int] = []
    for node in sorted(part, key=lambda node: (-len(near[node]), node)):
        if near[node].issuperset(group):
            group.append(node)
    return sorted(group)
