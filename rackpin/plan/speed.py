"""What a split is expected to gain over one GPU. Estimates from published figures, no promise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from rackpin.plan.data import table
from rackpin.plan.groups import Groups
from rackpin.plan.split import Split
from rackpin.plan.topology import LinkClass


@dataclass(frozen=True)
class Speed:
    """latency: one request's decode speed, throughput: all replicas' tokens a second, both as
    multiples of one GPU that could hold the model."""

    latency: float
    throughput: float


def speed(split: Split, groups: list[Groups], engine: str) -> Speed:
    """The expectation of a split whose groups lie on these paths."""
    link = next((g.link for g in groups if g.name == "TP"), None)
    tp = tensor_speedup(split.tp, link)
    stages = split.pp * float(table("links")["pipeline_efficiency"]) if split.pp > 1 else 1.0
    chain = next((g.link for g in groups if g.name == "PP"), None)
    if chain is not None and chain.id == "network":
        stages *= float(
            table("links")["network_hop"]
        )  # one hop of activations a token and stage, hidden by other requests
    replicas = split.dp if engine != "sglang" else 1
    if split.ep > 1:
        stages *= float(table("links")["expert_efficiency"])
    return Speed(round(tp, 2), round(tp * stages * replicas, 2))


def tensor_speedup(tp: int, link: LinkClass | None) -> float:
    """Speed of one request over ``tp`` GPUs on a path, by its table; 1 for one GPU."""
    if tp <= 1 or link is None:
        return 1.0
    points = sorted({1: 1.0, **link.speedup}.items())
    for (low, slow), (high, fast) in pairwise(points):
        if tp <= high:
            return slow + (fast - slow) * math.log2(tp / low) / math.log2(high / low)
    (before, slow), (most, fast) = points[-2:]
    # beyond the table each doubling gives half of what the last one gave
    gain, size, value = fast / slow - 1, most, fast
    while size < tp:
        gain /= 2
        value *= 1 + gain
        size *= most // before
    return value
