"""Where a card's memory goes for one split, and what the KV cache then holds."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.plan import kv, overheads
from rackpin.plan.data import GIB, by_ranks, table
from rackpin.plan.overheads import Batch
from rackpin.plan.rules import Refusal
from rackpin.plan.split import Split, Start
from rackpin.plan.weights import Stage, stages


@dataclass(frozen=True)
class Rank:
    """Memory of a rank of one stage, in GiB; kv_bytes: of one token; blocks: of the pool."""

    stage: Stage
    weights: float
    activation: float
    non_torch: float
    graphs_before: float
    kv: float
    kv_bytes: float
    blocks: int
    graphs: float


@dataclass(frozen=True)
class Memory:
    """All stages, and what the smallest pool of them holds.

    limiting: the rank whose pool is smallest; tokens and concurrency are of one replica;
    left: GiB outside the budget once graphs are captured; needs: blocks of one request.
    """

    ranks: tuple[Rank, ...]
    limiting: Rank
    tokens: int
    concurrency: float
    blocks: int
    needs: int
    left: float
    batch: Batch
    groups: tuple[kv.Group, ...]
    slots: int
    refusals: tuple[Refusal, ...]


def memory(start: Start, split: Split) -> Memory:
    """The memory of a split that keeps the rules, and what its memory refuses."""
    model, generation = start.model, start.generation
    batch = overheads.batch_limits(generation, start.gpu, start.max_len, start.seqs, start.tokens)
    made, size = kv.groups(
        model, generation.row["window"] != "uniform", generation.since("group_slack_since")
    )
    rest_last = bool(generation.row.get("last_stage_takes_rest")) and start.engine == "vllm"
    cut = stages(model, split.shard(start.engine), split.pp, rest_last)
    ranks = tuple(_rank(start, split, batch, made, i, stage) for i, stage in enumerate(cut))
    limiting = min(ranks, key=lambda rank: (rank.blocks, rank.kv))
    needs = kv.blocks_of_request(made, start.max_len, batch.tokens, start.block)
    blocks = limiting.blocks
    # context-parallel ranks hold a share of each block, so a pool of blocks holds more tokens
    concurrency = blocks / needs if needs and blocks > 0 else 0.0
    tokens = _tokens(start, made, blocks, concurrency)
    used = limiting.weights + limiting.non_torch + limiting.kv + limiting.graphs
    left = start.gpu.total_gib - used
    found = _refused(start, split, batch, limiting, blocks, needs, left, tokens)
    return Memory(
        ranks,
        limiting,
        tokens,
        concurrency,
        max(0, blocks),
        needs,
        left,
        batch,
        tuple(made),
        size,
        tuple(found),
    )


def _rank(
    start: Start, split: Split, batch: Batch, made: list[kv.Group], index: int, stage: Stage
) -> Rank:
    model, generation, engine = start.model, start.generation, start.engine
    tp = split.shard(engine).attention
    first, last = index == 0, index == split.pp - 1
    size = kv.element_bytes(start.kv_dtype, model)
    kv_bytes = kv.token_bytes(model, stage.layers, tp, size, start.kv_dtype, split.cp)
    weights = stage.nbytes / GIB
    if engine == "sglang":
        activation = before = 0.0
        switched = overheads.switched(start.gpu)
        held = by_ranks(table("sglang")["held" if switched else "plain_held"], split.tp)
        room = start.util * (start.gpu.total_gib - held) - weights
    else:
        extra = generation.row.get("extra_weights", {"gib": 0.0, "share": 0.0})
        weights += min(extra["gib"], weights * extra["share"])
        activation = overheads.activation_gib(
            generation, model, batch, split.tp, split.ep, first, last
        )
        held = overheads.non_torch_gib(generation, start.gpu, split.tp, split.pp)
        if generation.row["held"] is None and start.free_gib is not None:
            # this version counts other processes' memory as its own
            held += max(0.0, start.gpu.total_gib - start.free_gib - held)
        before = overheads.graphs_before_gib(generation, model, len(stage.layers))
        room = start.util * start.gpu.total_gib - weights - activation - held - before
    # a stage has its share of every group's slots
    share = len(stage.layers) / len(model.layers)
    widest = kv.group_bytes(model, stage.layers, tp, size, start.kv_dtype, split.cp)
    kinds = len(made)
    blocks = 0
    if kinds == 1:
        page = kv_bytes * start.block
        blocks = int(room * GIB / page) if page and room > 0 else 0
    elif kinds:
        slots = max(group.layers for group in made) * share
        page = widest * start.block * slots
        blocks = int(room * GIB / page) if page and room > 0 else 0
    graphs = overheads.graphs_gib(model, len(stage.layers))
    return Rank(stage, weights, activation, held, before, room, kv_bytes, blocks, graphs)


def _tokens(start: Start, made: list[kv.Group], blocks: int, concurrency: float) -> int:
    if blocks <= 0 or not made:
        return 0
    if start.engine == "vllm" and start.generation.row["window"] == "concurrency" and len(made) > 1:
        return int(concurrency * start.max_len)
    return blocks // len(made) * start.block


def _refused(
    start: Start,
    split: Split,
    batch: Batch,
    rank: Rank,
    blocks: int,
    needs: int,
    left: float,
    tokens: int,
) -> list[Refusal]:
    found = []
    gpu, model = start.gpu, start.model
    if start.engine == "vllm":
        looks = start.generation.row["held"] is not None
        free = start.free_gib if looks else None
        if free is None and looks:
            held = overheads.held_gib(start.generation, gpu, split.tp, split.pp)
            free = None if held is None else gpu.total_gib - held
        if free is not None and start.util * gpu.total_gib > free:
            util = max(0, int(free / gpu.total_gib * 100)) / 100
            found.append(
                Refusal(
                    "start-memory",
                    f"{start.util:g} x {gpu.total_gib:.2f} = {start.util * gpu.total_gib:.2f} GiB "
                    f"wanted, "
                    f"{free:.2f} GiB free when the engine looks",
                    f"--gpu-memory-utilization {util:g} or less, and no other process on the card",
                )
            )
    if rank.kv <= 0:
        found.append(
            Refusal(
                "no-kv-memory",
                f"nothing is left for the KV cache ({rank.kv:.2f} GiB)",
                "more GPUs, a higher TP or PP, a quantised model, or fewer --max-num-seqs",
            )
        )
        return found
    # SGLang starts nevertheless and refuses such a request when it comes
    if blocks < needs and start.engine == "vllm":
        most = tokens if len({layer.window for layer in model.layers}) == 1 else None
        remedy = f"--max-model-len {most}" if most else "a shorter --max-model-len"
        found.append(
            Refusal(
                "kv-too-small",
                f"one request of {start.max_len} tokens needs {needs} blocks of {start.block}, the "
                f"KV cache of {rank.kv:.2f} GiB has {max(0, blocks)}",
                f"{remedy}, more GPUs, an fp8 KV cache, or fewer --max-num-seqs",
            )
        )
    late = overheads.late_sampler_gib(start.generation, model, batch)
    if start.engine == "vllm" and late and late > left:
        found.append(
            Refusal(
                "sampler-warm-up",
                f"after graphs {left:.2f} GiB are left, the sampler's warm-up over {batch.seqs} "
                f"sequences takes about {late:.2f} GiB",
                "a lower --gpu-memory-utilization or fewer --max-num-seqs",
            )
        )
    return found
