"""The figures of a plan: GiB of a GPU by part, tokens and requests of a replica."""

from __future__ import annotations

from typing import Any

from rackpin.plan import kv
from rackpin.plan.choose import Judged
from rackpin.plan.data import GIB
from rackpin.plan.split import Start


def figures(start: Start, chosen: Judged) -> dict[str, Any]:
    held = chosen.memory
    names = (
        "weights_gib_per_gpu",
        "activation_gib",
        "non_torch_gib",
        "graphs_gib",
        "kv_bytes_per_token_per_gpu",
        "kv_cache_gib",
        "kv_cache_tokens",
        "max_concurrency_at_max_len",
        "headroom_gib",
        "gpu_memory_utilization",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "memory",
        "stages",
    )
    if held is None:
        return {
            **dict.fromkeys(names),
            "max_model_len": start.max_len,
            "gpu_memory_utilization": start.util,
        }
    rank, first = held.limiting, held.ranks[0]
    return {
        "weights_gib_per_gpu": round(first.weights, 4),
        # SGLang takes activations from outside its fraction: how much isn't known
        "activation_gib": None if start.engine == "sglang" else round(first.activation, 3),
        "non_torch_gib": round(first.non_torch, 3),
        "graphs_gib": round(rank.graphs, 2),
        "kv_bytes_per_token_per_gpu": _whole(max(one.kv_bytes for one in held.ranks)),
        "kv_cache_gib": round(rank.kv, 3),
        "kv_cache_tokens": held.tokens,
        "max_concurrency_at_max_len": round(held.concurrency, 2),
        "headroom_gib": round(held.left - rank.activation, 2),
        "gpu_memory_utilization": start.util,
        "max_model_len": start.max_len,
        "max_num_seqs": held.batch.seqs if start.engine == "vllm" else start.seqs,
        "max_num_batched_tokens": held.batch.tokens if start.engine == "vllm" else start.tokens,
        "memory": memory_table(start, chosen),
        "stages": [
            {
                "layers": [one.stage.layers.start, one.stage.layers.stop - 1],
                "weights_gib": round(one.weights, 4),
                "activation_gib": round(one.activation, 3),
                "kv_gib": round(one.kv, 3),
                "kv_bytes_per_token": _whole(one.kv_bytes),
                "kv_blocks": one.blocks,
            }
            for one in held.ranks
        ],
    }


def memory_table(start: Start, chosen: Judged) -> list[dict[str, Any]]:
    """Rows of the limiting rank's memory: part, how it is stored, GiB, whether in the budget."""
    held = chosen.memory
    if held is None:
        return []
    rank, size = held.limiting, kv.element_bytes(start.kv_dtype, start.model)
    rows: list[dict[str, Any]] = [
        {
            "part": f"weights: {part.kind}",
            "stored": part.stored,
            "gib": round(part.nbytes / GIB, 3),
            "in_budget": True,
        }
        for part in sorted(rank.stage.rows, key=lambda part: -part.nbytes)
    ]
    vllm = start.engine == "vllm"
    if vllm:
        rows.append(_row("activations", rank.activation))
    rows.append(_row("NCCL and CUDA context", rank.non_torch, vllm))
    if rank.graphs_before:
        rows.append(_row("CUDA graphs, estimate taken off first", rank.graphs_before))
    rows.append({**_row("KV cache", rank.kv), "stored": f"{size:g} B an element"})
    rows.append(_row("CUDA graphs", rank.graphs, False))
    rest = "headroom after graphs" if vllm else "left for activations"
    rows.append(_row(rest, held.left - rank.activation, False))
    return sorted(rows, key=lambda row: not row["in_budget"])


def _row(part: str, gib: float, in_budget: bool = True) -> dict[str, Any]:
    return {"part": part, "stored": "", "gib": round(gib, 3), "in_budget": in_budget}


def _whole(number: float) -> float:
    return int(number) if number == int(number) else round(number, 1)
