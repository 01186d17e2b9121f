"""Which layers attend to a window only, which keep a state, and which have experts."""

from __future__ import annotations

from typing import Any

from rackpin.plan.config import Keys
from rackpin.plan.errors import PlanError

_STATES = ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "gated_delta_net")
_WINDOWS = ("sliding_attention", "local", "local_attention", "chunked_attention", "sliding")


def kinds(keys: Keys, count: int) -> list[str] | None:
    """``full``, ``window`` or ``state`` a layer as the config lists it; None without a list."""
    for name in ("layer_types", "layers_block_type", "attn_type_list"):
        listed = keys.raw(name)
        if isinstance(listed, list) and listed and all(isinstance(x, str) for x in listed):
            if len(listed) != count:
                raise PlanError(
                    f"{keys.label(name)} has {len(listed)} entries for {count} layers: correct it"
                )
            return [_kind(entry) for entry in listed]
    period, offset = keys.raw("attn_layer_period"), keys.raw("attn_layer_offset")
    if isinstance(period, int) and isinstance(offset, int) and period > 1:
        return ["full" if i % period == offset else "state" for i in range(count)]
    interval = keys.raw("full_attention_interval")
    if isinstance(interval, int) and interval > 1:
        return ["full" if (i + 1) % interval == 0 else "state" for i in range(count)]
    return None


def _kind(entry: str) -> str:
    if entry in _STATES:
        return "state"
    return "window" if entry in _WINDOWS else "full"


def windows(keys: Keys, count: int, style: str, listed: list[str] | None) -> list[int | None]:
    """Window of each layer in tokens, None for full attention.

    ``style`` is the family's rule (see ``families.yaml``) where the config has no list.
    """
    size = keys.number("sliding_window", least=0) if style != "chunks" else None
    if style == "chunks" or (size is None and keys.raw("attention_chunk_size")):
        size = keys.number("attention_chunk_size")
    if not size or style == "none" or keys.raw("use_sliding_window") is False:
        return [None] * count
    if listed:
        return [size if kind == "window" else None for kind in listed]
    return [size if _windowed(keys, style, i) else None for i in range(count)]


def _windowed(keys: Keys, style: str, i: int) -> bool:
    if style in ("odd-full", "even-window"):
        return i % 2 == 0
    if style == "period":
        period = (
            keys.number("sliding_window_pattern") or keys.number("_sliding_window_pattern") or 6
        )
        return (i + 1) % period != 0
    if style == "qwen":
        first = keys.number("max_window_layers", least=0)
        return bool(keys.raw("use_sliding_window")) and i >= (first or 0)
    if style == "chunks":
        plain = keys.raw("no_rope_layers")
        if isinstance(plain, list) and i < len(plain):
            return bool(plain[i])
        return (i + 1) % 4 != 0
    return True


def sparse(keys: Keys, count: int) -> list[bool]:
    """Which layers have experts, by whichever of the known keys the config uses."""
    listed: Any = keys.raw("moe_layers")
    if isinstance(listed, list) and listed:
        return [i in listed for i in range(count)]
    first = keys.number("first_k_dense_replace", least=0) or keys.number(
        "moe_layer_start_index", least=0
    )
    frequency: Any = keys.raw("moe_layer_freq") or keys.raw("moe_layer_interval")
    if isinstance(frequency, list):
        return [bool(frequency[i]) if i < len(frequency) else True for i in range(count)]
    step = frequency if isinstance(frequency, int) and frequency > 0 else 1
    sparse_step = keys.number("decoder_sparse_step", least=0) or 1
    interleave = keys.number("interleave_moe_layer_step", least=0) or 1
    dense: Any = keys.raw("mlp_only_layers")
    only = dense if isinstance(dense, list) else []
    return [
        i >= (first or 0)
        and i % step == 0
        and (i + 1) % sparse_step == 0
        and (i + 1) % interleave == 0
        and i not in only
        for i in range(count)
    ]
