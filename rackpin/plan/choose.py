"""All splits worth a look, judged, best first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rackpin.plan.data import table
from rackpin.plan.groups import Groups, groups_of, node_topology
from rackpin.plan.memory import Memory, memory
from rackpin.plan.rules import Refusal, refusals
from rackpin.plan.speed import Speed, speed
from rackpin.plan.split import Split, Start

PIPELINES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)


@dataclass(frozen=True)
class Wanted:
    """Degrees that were asked for; None leaves one open."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    cp: int | None = None


@dataclass(frozen=True)
class Judged:
    """A split with everything that was found of it; memory None where its shapes are refused."""

    split: Split
    refusals: tuple[Refusal, ...]
    memory: Memory | None
    groups: tuple[Groups, ...]
    speed: Speed

    @property
    def starts(self) -> bool:
        return not self.refusals

    def capacity(self) -> float:
        """Requests of the longest context that all replicas hold at once."""
        return self.memory.concurrency * self.split.dp if self.memory else 0.0


def judge(start: Start, split: Split) -> Judged:
    """One split: its rules, then its memory, paths and speed."""
    topology, _ = node_topology(start)
    broken = refusals(start, split)
    shapes = [one for one in broken if one.rule != "gpus"]
    held = None if shapes else memory(start, split)
    fits = split.gpus(start.engine) <= start.gpus
    groups = groups_of(start, split, topology) if fits else []
    found = (*broken, *(held.refusals if held else ()))
    return Judged(split, found, held, tuple(groups), speed(split, groups, start.engine))


def candidates(start: Start, wanted: Wanted) -> Iterator[Split]:
    """Splits that keep to what was asked for. What is open is tried within a node (TP), over
    nodes (PP), and filled with replicas (DP)."""
    topology, _ = node_topology(start)
    tps = [wanted.tp] if wanted.tp else range(1, min(start.gpus, topology.gpus) + 1)
    for tp in tps:
        pps = [wanted.pp] if wanted.pp else [p for p in PIPELINES if tp * p <= start.gpus]
        for pp in pps or [1]:
            inside = start.engine == "sglang"
            filled = 1 if inside else max(1, start.gpus // (tp * pp))
            dp = wanted.dp or filled
            whole = tp if inside else tp * dp
            eps = [wanted.ep] if wanted.ep else [1]
            if not wanted.ep and start.model.moe and whole > 1:
                eps = [1, whole]
            for ep in eps:
                for cp in [wanted.cp] if wanted.cp else _contexts(start, tp):
                    yield Split(tp, pp, dp, ep, cp)


def _contexts(start: Start, tp: int) -> list[int]:
    at = start.model.attention
    most = tp if at.latent else tp // at.kv_heads
    usable = start.engine == "vllm" and start.generation.since("decode_context_parallel_since")
    return [1, most] if most > 1 and usable and start.generation.version is not None else [1]


def ranked(start: Start, wanted: Wanted) -> list[Judged]:
    """All candidates, best first.

    Those that start and hold the wished requests come first, in the order of the smallest replica
    (the more replicas, the more they serve together) and, in replicas of one size, of what one
    request and all of them gain. Where none holds them, what they hold decides.
    """
    wish = start.concurrency or int(table("links")["default_concurrency"])
    return sorted(
        (judge(start, split) for split in candidates(start, wanted)),
        key=lambda one: _key(start, one, wish),
    )


def _key(start: Start, one: Judged, wish: int) -> tuple[float, ...]:
    split, known = one.split, table("links")
    if not one.starts:
        room = one.memory.limiting.kv if one.memory else -1e9
        return (1, 0, len(one.refusals) if one.memory is None else 0, -room, 0, 0, 0)
    enough = one.capacity() >= wish
    if start.concurrency is None and one.memory is not None:
        enough = enough and one.memory.limiting.kv >= known["comfortable_kv"] * start.gpu.total_gib
    # experts of one replica are spread over all of its EP group
    size = split.tp * split.pp * (split.dp if split.ep > 1 else 1)
    share = 1 - split.gpus(start.engine) / start.gpus
    worth = one.speed.throughput * one.speed.latency
    plain = (split.cp > 1) + (split.ep > 1)
    odd = _stages_on_fast_links(one)
    idle = share > known["idle_share"]
    if not enough:
        # capacities in one step of this size are no reason to prefer one
        held = math.floor(math.log(max(min(one.capacity(), wish), 1e-3), known["alike"]))
        return (0, 1, odd, -held, idle, -round(worth, 2), plain, split.pp)
    return (0, 0, idle, odd, size, -round(worth, 2), plain, split.pp)


def _stages_on_fast_links(one: Judged) -> bool:
    """Pipeline stages where the path is fast enough for tensor parallelism to use it."""
    link = next((group.link for group in one.groups if group.name == "PP"), None)
    return link is not None and link.rank == 0
