"""What an engine takes beside weights and KV cache: activations, NCCL, CUDA context, graphs."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.plan.data import GIB, by_ranks, table
from rackpin.plan.gpus import Gpu
from rackpin.plan.model import Model
from rackpin.plan.version import Generation


@dataclass(frozen=True)
class Batch:
    """The scheduler's limits, given or by default of version and card."""

    seqs: int
    tokens: int
    notes: tuple[str, ...]


def batch_limits(
    generation: Generation, gpu: Gpu, max_len: int, seqs: int | None, tokens: int | None
) -> Batch:
    """max_num_seqs and max_num_batched_tokens of a start."""
    defaults, row = table("vllm")["defaults"], generation.row
    large = defaults["large"]
    is_large = gpu.total_gib >= large["min_gib"] and not gpu.id.startswith(large["not"])
    chosen = large if is_large and "v0" not in row["activation"] else defaults["small"]
    notes = []
    if seqs is None:
        seqs = int(chosen["max_num_seqs"])
        notes.append(f"max_num_seqs {seqs}: the default of this version on {gpu.id}")
    if tokens is None:
        tokens = int(chosen["max_num_batched_tokens"])
        if "v0" in row["activation"]:
            chunked = max_len > row["chunk_above"]
            tokens = int(row["chunk_tokens"]) if chunked else max(max_len, tokens)
        notes.append(f"max_num_batched_tokens {tokens}: the default of this version on {gpu.id}")
    return Batch(seqs, tokens, tuple(notes))


def activation_gib(
    generation: Generation, model: Model, batch: Batch, tp: int, ep: int, first: bool, last: bool
) -> float:
    """Peak of the profiling run on one rank, in GiB.

    The sampler's warm-up over max_num_seqs sequences is on the last stage only and isn't split.
    """
    known = generation.row["activation"]
    if "total" in known:
        return float(known["total"])
    hidden, vocab, tokens = model.hidden, model.vocab, batch.tokens
    item = model.itemsize
    # routed experts have a term of their own
    widths = [layer.ffn if layer.moe is None else layer.moe.shared_ffn for layer in model.layers]
    ffn = max(widths) // tp
    forward = tokens * item * (3 * ffn + 3 * hidden)
    wide = table("vllm")["sampler_wide_bytes"] if item > 2 else 0
    sampler = (known["sampler_bytes"] + wide) * batch.seqs * vocab if last else 0
    if known.get("v0"):
        return max(forward, sampler) / GIB
    peak = max(sampler, forward if known["forward"] or not last else 0)
    total = peak + known["hidden_bytes"] * (item / 2) * tokens * hidden
    if model.moe and not model.quant.experts_only:
        share = model.moe.ffn // (1 if ep > 1 else tp)
        width = hidden + 3 * share // (tp if ep > 1 else 1)
        total += known["moe"] * tokens * model.moe.topk * width * item
    extra = known["base"] + (known["vision"] if model.multimodal and first else 0)
    return float(total / GIB + extra)


def non_torch_gib(generation: Generation, gpu: Gpu, tp: int, pp: int) -> float:
    """CUDA context, NCCL and other memory outside torch on one rank, in GiB."""
    row = generation.row
    if tp == 1:
        return float(row["pp"]) if pp > 1 else by_ranks(row["non_torch"], 1)
    return by_ranks(row["non_torch"] if switched(gpu) else row["plain_tp"], tp)


def held_gib(generation: Generation, gpu: Gpu, tp: int, pp: int) -> float | None:
    """Memory in use on a card of one's own when the engine looks; None where it doesn't look."""
    steps = generation.row["held"]
    if steps is None:
        return None
    if tp == 1 and pp > 1:
        return by_ranks(steps, 4)
    if tp > 1 and not switched(gpu):
        return by_ranks(steps, 1) + by_ranks(generation.row["plain_tp"], tp)
    return by_ranks(steps, tp)


def graphs_gib(model: Model, layers: int) -> float:
    """An estimate of CUDA graphs of a rank with so many layers, in GiB."""
    known = table("vllm")["graphs"]
    experts = known["experts"] if model.moe else 0
    return float(known["base"] + known["per_layer"] * layers + experts)


def late_sampler_gib(generation: Generation, model: Model, batch: Batch) -> float:
    """What the sampler's second warm-up needs after the graphs, in GiB; 0 where it is covered."""
    known = table("vllm")["late_sampler"]
    if generation.id not in known["generations"]:
        return 0.0
    workspace = known["workspace"].get(model.quant.name, 0)
    return float(known["bytes"] * batch.seqs * model.vocab / GIB + workspace)


def graphs_before_gib(generation: Generation, model: Model, layers: int) -> float:
    """What is taken off the budget for CUDA graphs before the KV cache; 0 up to 0.19."""
    if generation.row["graph"] == "after":
        return 0.0
    return graphs_gib(model, layers) * float(table("vllm")["graphs"]["before_fraction"])


def switched(gpu: Gpu) -> bool:
    """Cards with NVLink of Hopper's class and later, where NCCL keeps large buffers."""
    return gpu.cc >= 9.0 and gpu.nvlink
