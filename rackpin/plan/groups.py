"""Which GPUs form which group of a split, over which paths."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.plan.split import Split, Start
from rackpin.plan.topology import LinkClass, Topology, uniform, worst


@dataclass(frozen=True)
class Groups:
    """Groups of one kind. members: GPUs of the fleet, node x GPUs a node + place on the node;
    link: the worst path within any of them, None for groups of one."""

    name: str
    members: tuple[tuple[int, ...], ...]
    link: LinkClass | None


def node_topology(start: Start) -> tuple[Topology, str]:
    """The node's paths: as given, or assumed from the card, and then what was assumed."""
    if start.topology is not None:
        return start.topology, ""
    link = "NV" if start.gpu.nvlink else "PHB"
    size = min(start.per_node, max(start.gpus, 1))
    said = "all joined by NVLink" if start.gpu.nvlink else "joined over PCIe, without NVLink"
    return uniform(max(size, 1), link), f"no --topology: the GPUs of a node are taken as {said}"


def groups_of(start: Start, split: Split, topology: Topology) -> list[Groups]:
    """Tensor, pipeline, expert, context and data groups: TP innermost, then PP, then DP."""
    per_node = topology.gpus
    order = topology.order()
    ranks = [node * per_node + gpu for node in range(-(-start.gpus // per_node)) for gpu in order]
    tp, pp = split.tp, split.pp
    dp = 1 if start.engine == "sglang" else split.dp
    used = ranks[: tp * pp * dp]
    inner = [tuple(used[i : i + tp]) for i in range(0, len(used), tp)]
    made = []
    if tp > 1:
        made.append(_groups("TP", inner, topology))
    if split.cp > 1:
        parts = [g[i : i + split.cp] for g in inner for i in range(0, tp, split.cp)]
        made.append(_groups("CP", parts, topology))
    if pp > 1:
        chains = [
            tuple(used[(d * pp + p) * tp + t] for p in range(pp))
            for d in range(dp)
            for t in range(tp)
        ]
        made.append(_groups("PP", chains, topology))
    if split.ep > 1:
        stages = [tuple(g for d in range(dp) for g in inner[d * pp + p]) for p in range(pp)]
        made.append(_groups("EP", stages, topology))
    if dp > 1:
        size = tp * pp
        replicas = tuple(tuple(sorted(used[i : i + size])) for i in range(0, len(used), size))
        made.append(Groups("DP", replicas, None))  # replicas don't talk to each other
    return made


def _groups(name: str, members: list[tuple[int, ...]], topology: Topology) -> Groups:
    links = [worst(topology, group, topology.gpus) for group in members]
    found = [link for link in links if link is not None]
    link = max(found, key=lambda one: one.rank) if found else None
    return Groups(name, tuple(tuple(sorted(group)) for group in members), link)
