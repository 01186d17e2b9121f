"""The answer as data: what ``--json`` prints and the table shows."""

from __future__ import annotations

from typing import Any

from rackpin.plan.choose import Judged
from rackpin.plan.data import table
from rackpin.plan.figures import figures
from rackpin.plan.groups import node_topology
from rackpin.plan.knobs import knobs
from rackpin.plan.rules import Refusal
from rackpin.plan.split import Start
from rackpin.plan.tensors import params
from rackpin.plan.words import alternative, reasons

MOST_ALTERNATIVES = 12


def answer(
    start: Start, chosen: Judged, others: list[Judged], asked: bool = False
) -> dict[str, Any]:
    """Everything of a plan, JSON-ready. Sizes in GiB, per GPU; tokens and requests per replica.

    asked: the split was given, not chosen.
    """
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
        **figures(start, chosen),
        "reasons": reasons(start, chosen, others, asked),
        "knobs": knobs(start, chosen),
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
                "link_gbps": group.link.gbps if group.link else None,
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
        "assumptions": _assumptions(
            start, held.batch.notes if held and start.engine == "vllm" else ()
        ),
    }


def _worth_showing(others: list[Judged]) -> list[Judged]:
    """The best that start, and some that don't: they show which rule or memory is in the way."""
    good = [one for one in others if one.starts]
    bad = [one for one in others if not one.starts]
    rest = max(MOST_ALTERNATIVES - len(good), MOST_ALTERNATIVES // 2)
    return [*good[: MOST_ALTERNATIVES - min(len(bad), rest)], *bad[:rest]]


def _refusal(one: Refusal) -> dict[str, str]:
    return {"rule": one.rule, "why": one.why, "remedy": one.remedy}


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
