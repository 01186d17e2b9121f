"""A weight of a rank, how wide layers are cut, and how a weight is stored."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackpin.plan.data import table
from rackpin.plan.model import Model


@dataclass(frozen=True)
class Part:
    """A weight of a rank. kind: what it belongs to; stored: scheme's name; params: elements."""

    kind: str
    stored: str
    nbytes: int
    params: int


@dataclass(frozen=True)
class Shard:
    """How wide layers are cut.

    ep: ranks that share whole experts, 1 none; attn: width of all but routed experts where it
    differs (data-parallel attention of SGLang), 0 the same; copies: latent attention's extra ones.
    """

    tp: int = 1
    ep: int = 1
    attn: int = 0
    copies: bool = True

    @property
    def attention(self) -> int:
        return self.attn or self.tp


def padded_vocab(vocab: int) -> int:
    step = int(table("vllm")["vocab_pad"])
    return math.ceil(vocab / step) * step


class Builder:
    """Makes parts of one layer, quantised where the scheme says so."""

    def __init__(self, model: Model, index: int) -> None:
        self.model, self.prefix = model, f"model.layers.{index}"
        self.end = index in (0, len(model.layers) - 1)

    def plain(self, kind: str, params: int, item: int | None = None) -> Part:
        size = item or self.model.itemsize
        return Part(
            kind, {2: "16 bit", 4: "fp32"}.get(size, f"{size * 8} bit"), params * size, params
        )

    def linear(
        self, kind: str, module: str, names: str, rows: int, columns: int, count: int = 1
    ) -> Part:
        """A matrix of ``rows`` outputs; ``count`` of them lie in one tensor (experts)."""
        quant, params = self.model.quant, rows * columns * count
        names_full = [f"{self.prefix}.{module}.{name}" for name in names.split()]
        plain = quant.plain or (quant.experts_only and kind != "experts")
        if plain:
            return self.plain(kind, params)
        if quant.keeps(names_full) or (quant.keep_ends and self.end):
            if quant.keep_bits == 16:
                return self.plain(kind, params)
            return Part(kind, f"int{quant.keep_bits}", params * quant.keep_bits // 8, params)
        return Part(kind, quant.name, count * quant.nbytes(rows, columns), params)
