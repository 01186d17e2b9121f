"""Paths between GPUs, and the groups that a split makes on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rackpin.parse.topo import read
from rackpin.plan.data import table
from rackpin.plan.errors import PlanError


@dataclass(frozen=True)
class LinkClass:
    """One class of path, best first by ``rank``; speedup by ranks; gbps a direction."""

    id: str
    label: str
    rank: int
    gbps: float
    speedup: dict[int, float]


@dataclass(frozen=True)
class Topology:
    """A node's GPUs: ``links[i][j]`` is the path as ``nvidia-smi topo -m`` writes it."""

    gpus: int
    links: tuple[tuple[str, ...], ...]

    def link(self, i: int, j: int) -> str:
        """The path between two GPUs of the node."""
        return self.links[i][j]

    def order(self) -> list[int]:
        """The node's GPUs so that those with the best paths stand together."""
        left, made = list(range(self.gpus)), list[int]()
        while left:
            near = made[-1] if made else left[0]
            best = min(
                left, key=lambda g: (class_of(self.link(near, g)).rank if g != near else -1, g)
            )
            made.append(best)
            left.remove(best)
        return made


def link_classes() -> list[LinkClass]:
    """All classes of paths, best first."""
    rows = table("links")["classes"]
    return [
        LinkClass(row["id"], row["label"], rank, float(row["gbps"]), row["speedup"])
        for rank, row in enumerate(rows)
    ]


def class_of(link: str) -> LinkClass:
    """The class of a path. Raises PlanError for a path that isn't known."""
    for found, row in zip(link_classes(), table("links")["classes"], strict=True):
        if re.search(row["match"], link.strip()):
            return found
    raise PlanError(
        f"--topology: path {link!r} is not known; expected NV#, PIX, PXB, PHB, NODE or SYS"
    )


def uniform(gpus: int, link: str) -> Topology:
    """A node whose GPUs are all joined alike."""
    rows = (tuple("X" if i == j else link for j in range(gpus)) for i in range(gpus))
    return Topology(gpus, tuple(rows))


def topology_from_text(text: str) -> Topology:
    """The topology in the text of ``nvidia-smi topo -m``.

    Raises PlanError saying what is wrong: no table, a failure of the tool, a table that is cut, or
    one that hides NVLink (``topo -mp``).
    """
    try:
        seen = read(text)
    except ValueError as error:
        raise PlanError(f"--topology: {error}; give the text of nvidia-smi topo -m") from None
    if not seen.gpus:
        why = "; ".join(seen.errors) or "no GPU is in it"
        raise PlanError(f"--topology: {why}; give the text of nvidia-smi topo -m")
    if seen.nvlink_shown is False:
        raise PlanError("--topology: topo -mp hides NVLink; give the text of nvidia-smi topo -m")
    return topology_of(seen.gpus, seen.links)


def topology_of(gpus: int, links: Any) -> Topology:
    """A topology of rows or a mapping of rows of paths, ``links[i][j]``, by place in the table."""
    if gpus < 1:
        raise PlanError("--topology: no GPU is in it; give the text of nvidia-smi topo -m")
    try:
        rows = tuple(
            tuple("X" if i == j else links[i][j] for j in range(gpus)) for i in range(gpus)
        )
    except (IndexError, KeyError, TypeError):
        raise PlanError("--topology: the matrix of GPUs is cut; give the whole text") from None
    whole = tuple(tuple((cell or "").strip() for cell in row) for row in rows)
    for i, j in combinations(range(gpus), 2):
        if not whole[i][j]:
            raise PlanError(f"--topology: no path from GPU {i} to {j}; give the whole text")
        class_of(whole[i][j])
    return Topology(gpus, whole)


def worst(topology: Topology, members: Sequence[int], per_node: int) -> LinkClass | None:
    """The worst path among GPUs of one group, by their place in the fleet; None for one GPU."""
    found = None
    for a, b in combinations(members, 2):
        other = a // per_node != b // per_node
        one = class_of("NET" if other else topology.link(a % per_node, b % per_node))
        if found is None or one.rank > found.rank:
            found = one
    return found
