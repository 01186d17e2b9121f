"""From a ``config.json`` to a ``Model``: what the file says, and what its class adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rackpin.plan import layers as layer_rules
from rackpin.plan.config import Keys, text_part
from rackpin.plan.data import table
from rackpin.plan.errors import PlanError
from rackpin.plan.model import Layer, Model
from rackpin.plan.quant import Quant, from_config, named
from rackpin.plan.rope import longest, rope_bytes
from rackpin.plan.shapes import attention_of, ffn_of, flag, full_attention_of, moe_of, state_of
from rackpin.plan.vision import vision_config, vision_params


def read_model(file: str, config: dict[str, Any], quant: str | None = None) -> Model:
    """The model that a config describes, stored as ``quant`` says (default: as published).

    Raises PlanError naming file and key for what is missing or makes no sense.
    """
    text, where = text_part(file, config)
    kind = str(text.get("model_type") or config.get("model_type") or "")
    families = table("families")["families"]
    kind = table("families")["types"].get(kind, kind)
    known = kind in families
    family = {**families["_"], **families.get(kind, {})}
    keys = Keys(file, where, text, family.get("defaults", {}))
    notes = [] if known else [f"model_type {kind!r} is not known: read as a Llama-like decoder"]
    hidden = keys.need("hidden_size")
    count = keys.need("num_hidden_layers")
    bits, scheme = _stored(keys, config, quant)
    attention = attention_of(keys, family, hidden, notes)
    moe = moe_of(keys, family)
    ffn = ffn_of(keys, hidden, moe)
    listed = layer_rules.kinds(keys, count)
    windows = layer_rules.windows(keys, count, family["window"], listed)
    with_experts = layer_rules.sparse(keys, count) if moe else [False] * count
    state = state_of(keys) if listed and "state" in listed else None
    if state is not None:
        notes.append("layers with a fixed state: their weights and state are estimated")
    for key in table("families")["not_modelled"]:
        if keys.raw(key):
            notes.append(f"{key} is not modelled: the KV cache and weights are rough")
    wide = full_attention_of(keys, attention)
    rows = tuple(
        Layer(
            attention=wide if windows[i] is None else attention,
            window=windows[i],
            moe=moe if with_experts[i] else None,
            state=state if listed and listed[i] == "state" else None,
            ffn=ffn,
        )
        for i in range(count)
    )
    vision = vision_config(config)
    towers = vision_params(vision, str(config.get("model_type", "")), hidden) if vision else 0
    if vision:
        notes.append("size of the vision tower is worked out from vision_config")
    max_len = keys.number("max_position_embeddings")
    norms = family["norms"]
    if norms == "falcon":
        norms = 2 if keys.raw("new_decoder_architecture") or not keys.raw("parallel_attn") else 1
    return Model(
        name=_name(file, config),
        model_type=kind or "unknown",
        layers=rows,
        hidden=hidden,
        ffn=ffn,
        vocab=keys.need("vocab_size"),
        tied=keys.flag("tie_word_embeddings", family["tied"]),
        max_len=longest(keys, max_len, kind),
        bits=bits,
        quant=scheme,
        gated=family["gated"],
        mlp_bias=flag(keys, family["mlp_bias"]),
        norms=norms,
        norm_bias=family["norm_bias"],
        head_bias=family.get("head_bias", False),
        learned_positions=(max_len or 0) if family.get("learned_positions") else 0,
        rope_tables=rope_bytes(keys, attention, family["rotary"], max_len, kind, bits),
        vision_params=towers,
        multimodal=vision is not None,
        notes=tuple(notes),
    )


def _name(file: str, config: dict[str, Any]) -> str:
    named_in = config.get("_name_or_path")
    path = Path(file)
    short = path.parent.name if path.name == "config.json" and path.parent.name else path.stem
    return named_in if isinstance(named_in, str) and named_in else short


def _stored(keys: Keys, config: dict[str, Any], wish: str | None) -> tuple[int, Quant]:
    """Bits of unquantised elements, and the scheme of the quantised ones."""
    name, dtype = keys.fact("dtype")
    try:
        plain = named(str(dtype)) if dtype and dtype != "auto" else named("bf16")
    except PlanError:
        raise PlanError(
            f"{keys.label(name)} {dtype!r} is not known: bfloat16, float16 or float32"
        ) from None
    bits = plain.bits if plain.plain else 16
    # float32 checkpoints are served in half precision unless somebody asks for float32
    bits = min(bits, 16)
    said = keys.raw("quantization_config") or config.get("quantization_config")
    said = said or config.get("compression_config")
    published = None
    if said and (wish is None or not named(wish).plain):
        published = from_config(keys.file, said) if wish is None else _try(keys.file, said)
    if wish is None:
        return bits, published or named("fp16" if dtype in ("float16", "half") else "bf16")
    asked = named(wish)
    if asked.plain:
        return asked.bits, asked
    if published is None:
        return bits, asked
    # a general name for what the config says in detail
    general = asked.name in ("fp8", "int4", "int8") and published.bits == asked.bits
    return bits, published if general or published.name == asked.name else asked


def _try(file: str, said: Any) -> Quant | None:
    try:
        return from_config(file, said)
    except PlanError:
        return None
