"""Weights of each stage's ranks, with what the allocator rounds up."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rackpin.plan.data import MIB
from rackpin.plan.model import Layer, Model
from rackpin.plan.parts import Part, Shard
from rackpin.plan.tensors import first_parts, last_parts, layer_parts


@dataclass(frozen=True)
class Stage:
    """A rank of one pipeline stage; rows: bytes by what they belong to and how they are stored."""

    layers: range
    nbytes: int
    rows: tuple[Part, ...]


def allocated(nbytes: int) -> int:
    """What torch's allocator counts for a tensor.

    From 10 MiB on a tensor has a segment of its own, rounded up to 2 MiB; a rest of at most 1 MiB
    is not split off. Smaller ones are rounded to 512 bytes.
    """
    if nbytes >= 10 * MIB:
        segment = math.ceil(nbytes / (2 * MIB)) * 2 * MIB
        if segment - nbytes <= MIB:
            return segment
    return math.ceil(nbytes / 512) * 512


def stage_layers(layers: int, pp: int, last_takes_rest: bool) -> list[range]:
    """Layers of each stage: ``L // pp`` each, what is left one by one from the last but one back.

    Old versions give the whole rest to the last stage.
    """
    sizes = [layers // pp] * pp
    rest = layers % pp
    if last_takes_rest:
        sizes[-1] += rest
    else:
        for i in range(2, rest + 2):
            sizes[-i] += 1
    starts = [sum(sizes[:i]) for i in range(pp)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def stages(model: Model, shard: Shard, pp: int, last_takes_rest: bool = False) -> list[Stage]:
    """Weights of a rank of every stage."""
    cut = stage_layers(len(model.layers), pp, last_takes_rest)
    return [_stage(model, shard, layers, i == 0, i == pp - 1) for i, layers in enumerate(cut)]


def _stage(model: Model, shard: Shard, layers: range, first: bool, last: bool) -> Stage:
    parts: list[Part] = []
    if first:
        parts += first_parts(model, shard)
    # layers of one shape are alike unless the scheme names single ones
    alike = not model.quant.keep and not model.quant.keep_ends
    made: dict[Layer, list[Part]] = {}
    for index in layers:
        layer = model.layers[index]
        if not alike or layer not in made:
            made[layer] = list(layer_parts(model, index, shard))
        parts += made[layer]
    if last:
        parts += last_parts(model, shard, model.tied and first)
    if model.rope_tables:
        parts.append(Part("rope tables", "cos/sin", model.rope_tables, 0))
    totals: dict[tuple[str, str], list[int]] = {}
    for part in parts:
        row = totals.setdefault((part.kind, part.stored), [0, 0])
        row[0] += allocated(part.nbytes)
        row[1] += part.params
    rows = tuple(Part(kind, stored, *both) for (kind, stored), both in totals.items())
    return Stage(layers, sum(row.nbytes for row in rows), rows)
