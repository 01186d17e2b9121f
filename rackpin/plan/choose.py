"""All splits worth a look, judged, best first."""

from __future__ import annotations

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
    """All candidates, best first: those that start, then those that hold the wished requests, then
    by expected throughput; where none holds them, by what they hold."""
    wish = start.concurrency or int(table("links")["default_concurrency"])
    return sorted((judge(start, split) for split in candidates(start, wanted)),
                  key=lambda one: _key(one, wish))


def _key(one: Judged, wish: int) -> tuple[float, ...]:
    split = one.split
    if not one.starts:
        room = one.memory.limiting.kv if one.memory else -1e9
        return (1, 0, len(one.refusals) if one.memory is None else 0, -room, 0, 0, 0)
    enough = one.capacity() >= wish
    first = -one.speed.throughput if enough else -min(one.capacity(), wish)
    plain = (split.cp > 1) + (split.ep > 1)
    return (0, 0 if enough else 1, round(first, 3), plain, -round(one.speed.latency, 2), split.pp, -one.capacity())
