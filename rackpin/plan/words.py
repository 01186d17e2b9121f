"""The reasons of a plan, in sentences."""

from __future__ import annotations

from rackpin.plan.choose import Judged
from rackpin.plan.data import table
from rackpin.plan.split import Start


def reasons(start: Start, chosen: Judged, others: list[Judged], asked: bool) -> list[str]:
    """Why this split, what bounds it, and what to know of it."""
    split, held = chosen.split, chosen.memory
    said = [f"{split}: {_why(start, chosen, others, asked)}"]
    for group in chosen.groups:
        if group.link is not None and group.name in ("TP", "PP", "EP"):
            said.append(f"{group.name} groups lie on {group.link.label}")
    tp = next((g for g in chosen.groups if g.name == "TP"), None)
    if tp and tp.link and tp.link.id in ("socket", "network"):
        said.append(
            f"TP {tp.link.label} is slow: every layer waits for it twice; "
            "TP inside fast links and PP across them is the usual way"
        )
    poor = float(table("links")["poor_tp2"])
    if split.tp == 2 and chosen.speed.latency < poor:
        said.append(f"two GPUs give less than {poor:g} times one: separate replicas serve more")
    if held is None:
        return said
    said += _memory(start, chosen)
    return said


def _why(start: Start, chosen: Judged, others: list[Judged], asked: bool) -> str:
    if not chosen.starts:
        return "does not start: " + "; ".join(one.why for one in chosen.refusals)
    held = chosen.memory
    assert held is not None
    hold = f"holds {chosen.capacity():.1f} requests of {start.max_len} tokens"
    if asked or not others:
        return f"as asked; {hold}"
    if start.concurrency and chosen.capacity() < start.concurrency:
        return f"{hold}, fewer than the {start.concurrency} wished; no split tried holds more"
    gain, one = chosen.speed.throughput, chosen.speed.latency
    more = [other for other in others if other.starts and other.speed.throughput > gain]
    if more:
        first = more[0]
        return (
            f"{hold}; {first.split} could give {first.speed.throughput:g} instead of {gain:g} "
            f"times one GPU in all, with one request at {first.speed.latency:g} instead of {one:g} "
            f"and {first.capacity():.1f} held"
        )
    return f"{hold}, and the most expected throughput of the splits that start"


def _memory(start: Start, chosen: Judged) -> list[str]:
    held, model, split = chosen.memory, start.model, chosen.split
    assert held is not None
    rank, at, said = held.limiting, model.attention, []
    if at.latent:
        said.append(
            "latent attention: every TP rank keeps the same KV rows; TP adds no KV room "
            "but what weights leave, DP attention or context parallelism do"
        )
    elif split.tp > at.kv_heads:
        said.append(
            f"{at.kv_heads} KV heads on {split.tp} ranks: each is kept "
            f"{split.tp // at.kv_heads} times"
        )
    if len(held.groups) > 1:
        layers = sum(not layer.state for layer in model.layers)
        slots = held.slots * len(held.groups)
        pad = f", {slots - layers} of them padding" if slots > layers else ""
        said.append(f"mixed windows: {len(held.groups)} groups of {held.slots} layer slots{pad}")
    if split.pp > 1:
        at_stage = held.ranks.index(rank)
        said.append(f"stage {at_stage} of {split.pp} has the smallest KV pool and decides")
    if start.engine == "sglang":
        said.append(
            "SGLang: weights and KV pool share the static fraction, activations come from the rest"
        )
        if held.concurrency < 1:
            said.append(f"no request of {start.max_len} tokens fits: SGLang starts but refuses it")
    if model.max_len and start.max_len > model.max_len:
        said.append(
            f"{start.max_len} tokens are more than the model's own {model.max_len}: the "
            "engine refuses that unless the config scales its positions"
        )
    if model.quant.min_cc > 0 and 0 < start.gpu.cc < model.quant.min_cc:
        said.append(
            f"{start.gpu.id} has no {model.quant.name} units: weight-only kernels or a refusal"
        )
    kv_cc = table("quant")["kv_cache"]["min_cc"]
    need = next((cc for name, cc in kv_cc.items() if start.kv_dtype.startswith(name)), 0)
    if 0 < start.gpu.cc < need:
        said.append(f"a KV cache of {start.kv_dtype} is slow or refused on {start.gpu.id}")
    return said


def alternative(start: Start, chosen: Judged, one: Judged) -> str:
    """Why another split was not taken; what it gives where the one asked for does not start."""
    if one.refusals:
        return "; ".join(f"{r.why} ({r.remedy})" for r in one.refusals)
    if not chosen.starts:
        return (
            f"starts: holds {one.capacity():.1f} requests of {start.max_len} tokens, expected "
            f"throughput {one.speed.throughput:g} times one GPU"
        )
    wish = start.concurrency or int(table("links")["default_concurrency"])
    if chosen.capacity() >= wish > one.capacity():
        return (
            f"holds {one.capacity():.1f} requests of {start.max_len} tokens, "
            f"{chosen.split} {chosen.capacity():.1f}"
        )
    if one.speed.throughput < chosen.speed.throughput:
        return (
            f"expected throughput {one.speed.throughput:g} against "
            f"{chosen.speed.throughput:g} of one GPU"
        )
    if one.capacity() < chosen.capacity():
        return f"holds {one.capacity():.1f} requests, {chosen.split} {chosen.capacity():.1f}"
    if one.speed.latency < chosen.speed.latency:
        return f"a request runs at {one.speed.latency:g} instead of {chosen.speed.latency:g}"
    return "as good, less simple"
