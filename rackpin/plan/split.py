"""How a model is cut over GPUs, and what a start was asked for."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.plan.gpus import Gpu
from rackpin.plan.model import Model
from rackpin.plan.parts import Shard
from rackpin.plan.topology import Topology
from rackpin.plan.version import Generation


@dataclass(frozen=True)
class Split:
    """Degrees of parallelism. ep: ranks that share whole experts (1: experts are cut by tp);
    cp: ranks that share a request's KV (decode context parallel, inside tp)."""

    tp: int
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1

    def gpus(self, engine: str) -> int:
        """GPUs that it takes: SGLang's dp lies inside tp."""
        return self.tp * self.pp * (1 if engine == "sglang" else self.dp)

    def shard(self, engine: str) -> Shard:
        attn = max(1, self.tp // self.dp) if engine == "sglang" and self.dp > 1 else 0
        return Shard(self.tp, self.ep, attn)

    def __str__(self) -> str:
        names = (
            ("TP", self.tp),
            ("PP", self.pp),
            ("EP", self.ep),
            ("CP", self.cp),
            ("DP", self.dp),
        )
        said = [f"{name} {size}" for name, size in names if size > 1]
        return " × ".join(said) or "one GPU"


@dataclass(frozen=True)
class Start:
    """A start of an engine: all that is the same for every split.

    util: fraction of the card; max_len in tokens; seqs, tokens: scheduler limits or None for the
    default; concurrency: requests of max_len to serve at once, None no wish; free_gib: free
    memory a card, None the usual.
    """

    model: Model
    gpu: Gpu
    gpus: int
    per_node: int
    engine: str
    generation: Generation
    util: float
    max_len: int
    seqs: int | None
    tokens: int | None
    kv_dtype: str
    block: int
    concurrency: int | None
    free_gib: float | None
    topology: Topology | None
    notes: tuple[str, ...]
