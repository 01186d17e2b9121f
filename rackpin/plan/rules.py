"""The rules that a split must keep. Each gives nothing, or why an engine refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rackpin.plan.data import table
from rackpin.plan.model import Model
from rackpin.plan.parts import padded_vocab
from rackpin.plan.split import Split, Start


@dataclass(frozen=True)
class Refusal:
    """Why a split or a start is refused, and what to do."""

    rule: str
    why: str
    remedy: str


def refusals(start: Start, split: Split) -> list[Refusal]:
    """Every rule that the split breaks, whatever memory there is."""
    return [*_counts(start, split), *_shapes(start.model, split, start.engine)]


def _counts(start: Start, split: Split) -> Iterator[Refusal]:
    needs = split.gpus(start.engine)
    if needs > start.gpus:
        yield Refusal(
            "gpus",
            f"{split} takes {needs} GPUs, {start.gpus} are there",
            "give more --gpus or split less",
        )
    layers = len(start.model.layers)
    if split.pp > layers:
        yield Refusal(
            "pipeline-layers", f"{layers} layers can't fill {split.pp} stages", f"PP up to {layers}"
        )
    since = start.generation.since
    if start.engine == "vllm":
        version = start.generation.version
        if split.pp > 1 and not since("pipeline_since"):
            yield Refusal(
                "pipeline-version",
                f"vLLM {version} has no pipeline parallelism yet",
                "vLLM 0.5.1 or later",
            )
        if split.ep > 1 and not since("expert_parallel_since"):
            yield Refusal(
                "expert-version",
                f"vLLM {version} has no expert parallelism yet",
                "vLLM 0.8 or later",
            )
        if split.cp > 1 and not since("decode_context_parallel_since"):
            yield Refusal(
                "context-version",
                f"vLLM {version} has no decode context parallelism",
                "vLLM 0.10.2 or later",
            )
    if start.engine == "sglang" and split.dp > 1 and split.tp % split.dp:
        yield Refusal(
            "dp-attention",
            f"TP {split.tp} is not divisible by DP {split.dp}",
            "DP attention needs DP to divide TP",
        )


def _shapes(model: Model, split: Split, engine: str) -> Iterator[Refusal]:
    shard = split.shard(engine)
    attn = shard.attention
    yield from _attention(model, attn, split.cp)
    yield from _vocab(model, attn)
    if any(layer.moe is None for layer in model.layers):
        yield from _width(model, "ffn", model.ffn, shard.attention)
    yield from _packed(model, attn)
    moe = model.moe
    if moe is None:
        if split.ep > 1:
            yield Refusal("experts", "the model has no experts to spread", "leave --ep out")
        return
    if moe.shared_ffn:
        yield from _width(model, "shared expert ffn", moe.shared_ffn, shard.attention)
    if split.ep == 1:
        yield from _width(model, "expert ffn", moe.ffn, split.tp)
        return
    if moe.experts % split.ep:
        yield Refusal(
            "experts",
            f"{moe.experts} experts are not divisible by EP {split.ep}",
            f"EP that divides {moe.experts}",
        )
    group = split.tp * (1 if engine == "sglang" else split.dp)
    if split.ep != group and not (engine == "sglang" and group % split.ep == 0):
        yield Refusal(
            "expert-group",
            f"EP {split.ep} is not TP x DP = {group}, which it always is",
            f"--ep {group}, or --ep 1 to cut experts by TP",
        )


def _attention(model: Model, tp: int, cp: int) -> Iterator[Refusal]:
    at = model.attention
    if at.heads % tp:
        yield Refusal(
            "heads",
            f"{at.heads} attention heads are not divisible by TP {tp}",
            f"TP that divides {at.heads}: {_divisors(at.heads, 64)}",
        )
    for other in {layer.attention.kv_heads for layer in model.layers if not layer.attention.latent}:
        if other % tp and tp % other:
            fits = ", ".join(
                str(n) for n in range(1, 65) if not (other % n and n % other) and not at.heads % n
            )
            yield Refusal(
                "kv-heads",
                f"{other} KV heads can be neither split nor repeated over {tp} ranks",
                f"TP one of {fits}, the rest as PP or DP",
            )
    block, share = model.quant.block, max(1, at.kv_heads // tp) * at.head_dim
    if block and tp > 1 and not at.latent and not at.kv_heads % tp and share % block:
        yield Refusal(
            "kv-block",
            f"{share} KV columns per rank are not divisible by the {block}x{block} blocks of FP8 "
            "scales",
            "a lower TP",
        )
    if cp > 1:
        most = tp if at.latent else max(1, tp // at.kv_heads)
        if tp % cp or cp > most:
            yield Refusal(
                "context",
                f"CP {cp} over TP {tp} with {at.kv_heads} KV heads: ranks can "
                "share only KV that they would repeat",
                f"CP up to {most}, dividing TP",
            )


def _vocab(model: Model, tp: int) -> Iterator[Refusal]:
    vocab = padded_vocab(model.vocab)
    if vocab % tp:
        yield Refusal(
            "vocabulary",
            f"{vocab} (vocabulary padded to {table('vllm')['vocab_pad']}) "
            f"is not divisible by TP {tp}",
            "another TP: a power of two always works here",
        )


def _width(model: Model, name: str, size: int, tp: int) -> Iterator[Refusal]:
    what = name.replace(" ", "-")
    if size % tp:
        yield Refusal(what, f"{name} {size} is not divisible by TP {tp}", f"TP that divides {size}")
        return
    block = model.quant.block
    share = size // tp
    if block and tp > 1 and share % block:
        remedy = "expert parallel (--ep) keeps experts whole" if "expert" in name else "a lower TP"
        yield Refusal(
            f"{what}-block",
            f"{name} {size}/{tp} = {share} per rank is not divisible by "
            f"the {block}x{block} blocks of FP8 scales",
            remedy,
        )


def _packed(model: Model, tp: int) -> Iterator[Refusal]:
    """Group-quantised checkpoints can't be cut within a group of the down projection."""
    quant = model.quant
    if tp == 1 or not quant.published or quant.bits != 4 or not quant.group or quant.experts_only:
        return
    for layer in {layer.ffn for layer in model.layers if layer.moe is None}:
        share = layer // tp
        if layer % tp == 0 and share % quant.group:
            yield Refusal(
                "ffn-group",
                f"ffn {layer}/{tp} = {share} per rank is not divisible by the groups of "
                f"{quant.group} of {quant.name}",
                "a lower TP, or a checkpoint whose ffn was padded before it was quantised",
            )


def _divisors(number: int, most: int) -> str:
    return ", ".join(str(n) for n in range(1, most + 1) if number % n == 0)
