"""Options that would give the same split more KV cache, and what each would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rackpin.plan.choose import Judged, judge
from rackpin.plan.data import table
from rackpin.plan.kv import element_bytes
from rackpin.plan.split import Start


def knobs(start: Start, chosen: Judged) -> list[dict[str, Any]]:
    """One entry an option: its value, whether the split then starts, tokens and requests held.

    Only options that hold more tokens, or make a start possible, are listed.
    """
    if chosen.memory is None:
        return []
    found = []
    for option, value, changed in _changes(start, chosen):
        turned = judge(changed, chosen.split)
        if turned.memory is None:
            continue
        better = turned.memory.tokens > chosen.memory.tokens and not turned.refusals
        if better or (turned.starts and not chosen.starts):
            found.append(
                {
                    "option": option,
                    "value": value,
                    "ok": turned.starts,
                    "kv_cache_tokens": turned.memory.tokens,
                    "max_concurrency_at_max_len": round(turned.memory.concurrency, 2),
                }
            )
    return found


def _changes(start: Start, chosen: Judged) -> Iterator[tuple[str, Any, Start]]:
    held = chosen.memory
    assert held is not None
    known = table("links")["knobs"]
    seqs, util = int(known["max_num_seqs"]), float(known["util"])
    if start.engine == "vllm" and held.batch.seqs > seqs:
        yield "--max-num-seqs", seqs, replace(start, seqs=seqs)
    if element_bytes(start.kv_dtype, start.model) == 2:
        yield "--kv-cache-dtype", "fp8", replace(start, kv_dtype="fp8")
    if start.engine == "vllm" and start.util < util:
        yield "--gpu-memory-utilization", util, replace(start, util=util)
    rules = {one.rule for one in chosen.refusals}
    if "kv-too-small" in rules and held.tokens >= start.block:
        yield "--max-model-len", held.tokens, replace(start, max_len=held.tokens)
