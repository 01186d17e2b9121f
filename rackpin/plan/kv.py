"""The KV cache: bytes a token, how vLLM groups layers, tokens of a pool, and what requests need."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackpin.plan.data import table
from rackpin.plan.errors import PlanError
from rackpin.plan.model import Attention, Layer, Model


@dataclass(frozen=True)
class Group:
    """Layers of one kind that share block tables. window: tokens, None full; layers: how many."""

    window: int | None
    layers: int


def element_bytes(dtype: str, model: Model) -> float:
    """Bytes of a cached element. Raises PlanError with the known names."""
    known = table("quant")["kv_cache"]["bytes"]
    wish = dtype.strip().lower().replace("-", "_")
    if wish in ("auto", "", "?"):
        return float(model.itemsize)
    if wish not in known:
        raise PlanError(f"--kv-cache-dtype {dtype!r} is not known: auto or {', '.join(known)}")
    return float(known[wish])


def row_bytes(at: Attention, tp: int, size: float, dtype: str = "auto", cp: int = 1) -> float:
    """Bytes one token takes in one layer on one rank of ``tp``.

    Latent attention keeps one row on every rank. ``cp`` ranks share a token's rows between them.
    """
    if at.latent:
        row = (at.latent.kv_lora + at.latent.rope) * size
        if dtype.lower() == "fp8_ds_mla":
            row = float(table("quant")["kv_cache"]["fp8_ds_mla_row"])
        if at.latent.index_dim:
            known = table("sglang")["indexer"]
            row += known["fp8_row"] if size == 1 else at.latent.index_dim * size
        return row / cp
    return 2 * max(1, at.kv_heads // tp) * at.head_dim * size / cp


def token_bytes(model: Model, layers: range, tp: int, size: float, dtype: str, cp: int) -> float:
    """Bytes of one token over a stage's layers."""
    rows = [model.layers[i] for i in layers]
    return sum(row_bytes(la.attention, tp, size, dtype, cp) for la in rows if not la.state)


def groups(model: Model, hybrid: bool, slack: bool) -> tuple[list[Group], int]:
    """The groups that vLLM makes of all layers, and the layers each is padded to.

    Layers of one kind are cut into equal groups of the size of the rarest kind; the larger size
    where the kinds are nearly as many (``slack``). Without ``hybrid`` all are full attention.
    """
    counts: dict[int | None, int] = {}
    for layer in model.layers:
        if not layer.state:
            kind = layer.window if hybrid else None
            counts[kind] = counts.get(kind, 0) + 1
    if not counts:
        return [], 0
    least, most = min(counts.values()), max(counts.values())
    size = most if slack and most < least * table("vllm")["group_slack"] else least
    made = []
    for window, count in counts.items():
        made += [Group(window, min(size, count))] * math.ceil(count / size)
    return made, size


def group_bytes(model: Model, layers: range, tp: int, size: float, dtype: str, cp: int) -> float:
    """Bytes of the widest row among a stage's layers: pages of all groups are of one size."""
    rows: list[Layer] = [model.layers[i] for i in layers if not model.layers[i].state]
    return max((row_bytes(la.attention, tp, size, dtype, cp) for la in rows), default=0.0)


def blocks_of_request(made: list[Group], length: int, batched: int, block: int) -> int:
    """Blocks that one request of ``length`` tokens holds at most, over all groups."""
    total = 0
    for group in made:
        if group.window is None:
            total += math.ceil(length / block)
        else:
            total += math.ceil(min(group.window - 1 + batched, length) / block) + 1
    return total
