"""Bytes of the cos/sin tables of rotary positions, which all layers share."""

from __future__ import annotations

from typing import Any

from rackpin.plan.config import Keys
from rackpin.plan.model import Attention


def rope_bytes(
    keys: Keys, attention: Attention, share: float, max_len: int | None, kind: str, bits: int
) -> int:
    """Bytes of the tables a rank holds; every rank holds them whole. 0 without rotary positions.

    Linear scaling makes a table as many times longer; YaRN one of original length x factor.
    """
    if max_len is None or not share:
        return 0
    partial = keys.raw("partial_rotary_factor") or keys.raw("rotary_pct")
    part = float(partial) if isinstance(partial, int | float) and 0 < partial <= 1 else share
    width = attention.latent.rope if attention.latent else int(attention.head_dim * part)
    length, scaled = _length(keys, max_len)
    # latent attention keeps its YaRN table in float32
    item = 4 if attention.latent and scaled else bits // 8
    total = length * width * item
    if kind.startswith("gemma3"):
        total += max_len * width * item
    return total


def longest(keys: Keys, max_len: int | None, kind: str) -> int | None:
    """Tokens the model takes as published: its positions, stretched as the config scales them."""
    if max_len is None or kind.startswith("gemma3"):
        return max_len
    scaling = _scaling(keys)
    name = scaling.get("rope_type") or scaling.get("type")
    if name in ("linear", "dynamic", "yarn", "deepseek_yarn"):
        return _length(keys, max_len, ("linear", "dynamic"))[0]
    return max_len


def _scaling(keys: Keys) -> dict[str, Any]:
    # an explicit null means none; only a file without the key has the family's default
    found: Any = keys.data.get("rope_parameters") or (
        keys.data["rope_scaling"]
        if "rope_scaling" in keys.data
        else keys.defaults.get("rope_scaling")
    )
    if isinstance(found, dict) and isinstance(found.get("full_attention"), dict):
        found = found["full_attention"]  # newer files have one for each kind of layer
    return found if isinstance(found, dict) else {}


def _length(keys: Keys, max_len: int, stretched: tuple[str, ...] = ("linear",)) -> tuple[int, bool]:
    """Rows of the table and whether it is scaled; ``stretched`` scale the positions themselves."""
    scaling = _scaling(keys)
    kind = scaling.get("rope_type") or scaling.get("type")
    factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or not 1 <= factor <= 1024:
        return max_len * (4 if kind == "mrope" else 1), False
    if kind in stretched:
        return int(max_len * factor), True
    if kind in ("yarn", "deepseek_yarn") and isinstance(original, int) and 0 < original < 2**31:
        return int(original * factor), True
    return max_len, False
