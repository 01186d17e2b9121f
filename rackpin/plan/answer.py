"""The answer as data: what ``--json`` prints and the table shows."""

from __future__ import annotations

from typing import Any

from rackpin.plan import kv
from rackpin.plan.choose import Judged
from rackpin.plan.data import GIB, table
from rackpin.plan.groups import node_topology
from rackpin.plan.rules import Refusal
from rackpin.plan.split import Start
from rackpin.plan.tensors import params
from rackpin.plan.words import alternative, reasons

MOST_ALTERNATIVES = 12


def answer(start: Start, chosen: Judged, others: list[Judged]) -> dict[str, Any]:
    """Everything of a plan, JSON-ready. Sizes in GiB, per GPU; tokens and requests per replica."""
    split, held = chosen.split, chosen.memory
    return {
        "ok": chosen.starts,
        "refusals": [_refusal(one) for one in chosen.refusals],
        "tp": split.tp,
        "pp": split.pp,
        "ep": split.ep,
        "cp": split.cp,
        "dp": split.dp,
        "gpus": split.gpus(start.engine),
        **_figures(start, chosen),
        "reasons": reasons(start, chosen, others),
        "alternatives": [
            {**_short(one), "why_not": alternative(start, chosen, one)}
            for one in _worth_showing(others)
        ],
        "groups": [
            {
                "kind": group.name,
                "members": [list(members) for members in group.members],
                "link": group.link.label if group.link else None,
                "link_class": group.link.id if group.link else None,
            }
            for group in chosen.groups
        ],
        "speedup": {
            "one_request": chosen.speed.latency,
            "throughput": chosen.speed.throughput,
            "against": "one such GPU, if it could hold the model",
        },
        "constants": {
            "engine": start.engine,
            "id": start.generation.id if start.engine == "vllm" else "sglang",
            "label": start.generation.label if start.engine == "vllm" else table("sglang")["label"],
            "measured": start.generation.known if start.engine == "vllm" else True,
            "note": start.generation.note if start.engine == "vllm" else "",
        },
        "model": _model(start),
        "card": {"name": start.gpu.id, "total_gib": start.gpu.total_gib},
        "assumptions": _assumptions(start, held.batch.notes if held else ()),
    }


def _worth_showing(others: list[Judged]) -> list[Judged]:
    """The best that start, and some that don't: they show which rule or memory is in the way."""
    good = [one for one in others if one.starts]
    bad = [one for one in others if not one.starts]
    rest = max(MOST_ALTERNATIVES - len(good), MOST_ALTERNATIVES // 2)
    return [*good[: MOST_ALTERNATIVES - min(len(bad), rest)], *bad[:rest]]


def _refusal(one: Refusal) -> dict[str, str]:
    return {"rule": one.rule, "why": one.why, "remedy": one.remedy}


def _figures(start: Start, chosen: Judged) -> dict[str, Any]:
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
        "activation_gib": round(first.activation, 3),
        "non_torch_gib": round(first.non_torch, 3),
        "graphs_gib": round(rank.graphs, 2),
        "kv_bytes_per_token_per_gpu": _whole(max(one.kv_bytes for one in held.ranks)),
        "kv_cache_gib": round(rank.kv, 3),
        "kv_cache_tokens": held.tokens,
        "max_concurrency_at_max_len": round(held.concurrency, 2),
        "headroom_gib": round(held.left - rank.activation, 2),
        "gpu_memory_utilization": start.util,
        "max_model_len": start.max_len,
        "max_num_seqs": held.batch.seqs,
        "max_num_batched_tokens": held.batch.tokens,
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
    rows += [
        {"part": "activations", "stored": "", "gib": round(rank.activation, 3), "in_budget": True},
        {
            "part": "NCCL and CUDA context",
            "stored": "",
            "gib": round(rank.non_torch, 3),
            "in_budget": start.engine == "vllm",
        },
    ]
    if rank.graphs_before:
        rows.append(
            {
                "part": "CUDA graphs, estimate taken off first",
                "stored": "",
                "gib": round(rank.graphs_before, 3),
                "in_budget": True,
            }
        )
    rows += [
        {
            "part": "KV cache",
            "stored": f"{size:g} B an element",
            "gib": round(rank.kv, 3),
            "in_budget": True,
        },
        {"part": "CUDA graphs", "stored": "", "gib": round(rank.graphs, 2), "in_budget": False},
        {
            "part": "headroom after graphs",
            "stored": "",
            "gib": round(held.left - rank.activation, 2),
            "in_budget": False,
        },
    ]
    return rows


def _whole(number: float) -> float:
    return int(number) if number == int(number) else round(number, 1)


def _short(one: Judged) -> dict[str, Any]:
    split, held = one.split, one.memory
    return {
        "tp": split.tp,
        "pp": split.pp,
        "ep": split.ep,
        "cp": split.cp,
        "dp": split.dp,
        "ok": one.starts,
        "kv_cache_tokens": held.tokens if held else None,
        "throughput": one.speed.throughput,
    }


def _model(start: Start) -> dict[str, Any]:
    model, at = start.model, start.model.attention
    shapes = {layer.window for layer in model.layers if not layer.state}
    return {
        "name": model.name,
        "type": model.model_type,
        "params": params(model),
        "layers": len(model.layers),
        "stored": model.quant.name,
        "attention": "MLA"
        if at.latent
        else "MHA"
        if at.kv_heads == at.heads
        else "MQA"
        if at.kv_heads == 1
        else "GQA",
        "heads": at.heads,
        "kv_heads": None if at.latent else at.kv_heads,
        "head_dim": at.head_dim,
        "experts": model.moe.experts if model.moe else 0,
        "windows": sorted(w for w in shapes if w is not None),
        "window_layers": sum(layer.window is not None for layer in model.layers),
        "max_len": model.max_len,
    }


def _assumptions(start: Start, batch: tuple[str, ...]) -> list[str]:
    _, assumed = node_topology(start)
    found = [*start.notes, *start.model.notes, start.gpu.note, *batch, assumed]
    if start.engine == "vllm":
        found.append(start.generation.note)
    return [note for note in found if note]
