"""From a ``config.json`` to a ``Model``: what the file says, and what its class adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rackpin.plan import layers as layer_rules
from rackpin.plan.config import Keys, text_part
from rackpin.plan.data import table
from rackpin.plan.errors import PlanError
from rackpin.plan.model import Attention, Latent, Layer, Model, Moe, State
from rackpin.plan.quant import Quant, from_config, named
from rackpin.plan.rope import rope_bytes
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
    attention = _attention(keys, family, hidden, notes)
    moe = _moe(keys, family)
    ffn = _ffn(keys, hidden, moe)
    listed = layer_rules.kinds(keys, count)
    windows = layer_rules.windows(keys, count, family["window"], listed)
    with_experts = layer_rules.sparse(keys, count) if moe else [False] * count
    state = _state(keys) if listed and "state" in listed else None
    if state is not None:
        notes.append("layers with a fixed state: their weights and state are estimated")
    wide = _global_attention(keys, attention)
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
        max_len=max_len,
        bits=bits,
        quant=scheme,
        gated=family["gated"],
        mlp_bias=_flag(keys, family["mlp_bias"]),
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


def _flag(keys: Keys, rule: bool | str) -> bool:
    return rule if isinstance(rule, bool) else keys.flag(rule, False)


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


def _attention(keys: Keys, family: dict[str, Any], hidden: int, notes: list[str]) -> Attention:
    heads = keys.need("num_attention_heads")
    kv_heads = keys.number("num_key_value_heads")
    if keys.raw("multi_query") and not keys.raw("new_decoder_architecture"):
        kv_heads = 1
    if keys.raw("multi_query_attention") is False:
        kv_heads = heads
    nested = keys.raw("attn_config")
    if kv_heads is None and isinstance(nested, dict):
        kv_heads = Keys(keys.file, "attn_config", nested, {}).number("num_key_value_heads")
    head_dim = keys.number("head_dim")
    if head_dim is None:
        head_dim = hidden // heads
        if hidden % heads:
            notes.append(
                f"head_dim is not given and {hidden}/{heads} is no whole number: {head_dim}"
            )
    if head_dim < 1:
        raise PlanError(f"{keys.label('head_dim')}: {hidden} hidden over {heads} heads gives none")
    return Attention(
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim,
        latent=_latent(keys),
        qkv_bias=_flag(keys, family["qkv_bias"]),
        o_bias=_flag(keys, family["o_bias"]),
        qk_norm=_qk_norm(keys, family["qk_norm"]),
        sinks=family.get("sinks", False),
        gated=family.get("gated_attention", False),
    )


def _qk_norm(keys: Keys, rule: str) -> str:
    if rule in ("none", "head", "full"):
        return rule
    if rule == "cohere":
        return "full" if keys.flag("use_qk_norm", False) else "none"
    return "head" if keys.flag(rule, False) else "none"


def _global_attention(keys: Keys, attention: Attention) -> Attention:
    """Attention of the full layers where the config gives them their own heads (Gemma 4)."""
    dim, kv_heads = keys.number("global_head_dim"), keys.number("num_global_key_value_heads")
    if dim is None and kv_heads is None:
        return attention
    return replace(
        attention, head_dim=dim or attention.head_dim, kv_heads=kv_heads or attention.kv_heads
    )


def _latent(keys: Keys) -> Latent | None:
    rank = keys.number("kv_lora_rank")
    if rank is None:
        return None
    remedy = "a latent-attention config needs it; use the published one"
    return Latent(
        q_lora=keys.number("q_lora_rank") or 0,
        kv_lora=rank,
        nope=keys.need("qk_nope_head_dim", remedy),
        rope=keys.need("qk_rope_head_dim", remedy),
        value=keys.need("v_head_dim", remedy),
        index_heads=keys.number("index_n_heads") or 0,
        index_dim=keys.number("index_head_dim") or 0,
    )


def _moe(keys: Keys, family: dict[str, Any]) -> Moe | None:
    experts = keys.number("experts", least=0)
    nested = keys.raw("ffn_config")
    if experts is None and isinstance(nested, dict) and "moe_num_experts" in nested:
        keys = Keys(keys.file, "ffn_config", nested, {})
        experts = keys.number("experts", least=0)
    if not experts or experts == 1:
        return None
    topk = keys.number("topk")
    if topk is None:
        topk = 1 if keys.raw("model_type") == "llama4_text" else keys.need("topk")
    ffn = keys.number("expert_ffn") or keys.number("intermediate_size")
    if ffn is None:
        ffn = keys.need("expert_ffn")
    shared = keys.number("shared_ffn", least=0)
    if shared is None:
        shared = (keys.number("shared_experts", least=0) or 0) * ffn
        if keys.raw("model_type") == "llama4_text":
            shared = ffn
    return Moe(
        experts=experts,
        topk=min(topk, experts),
        ffn=ffn,
        shared_ffn=shared,
        shared_gate=family.get("shared_gate", False) and shared > 0,
        router_bias=family.get("router_bias", False),
        correction=family.get("router_correction", False),
        bias=family.get("expert_bias", False),
    )


def _ffn(keys: Keys, hidden: int, moe: Moe | None) -> int:
    dense = keys.number("intermediate_size_mlp")
    if dense:
        return dense
    if keys.fact("intermediate_size")[1] == "4x":
        return 4 * hidden
    found = keys.number("intermediate_size")
    if found is not None:
        return found
    if moe is not None:
        return moe.ffn
    nested = keys.raw("ffn_config")
    if isinstance(nested, dict):
        return Keys(keys.file, "ffn_config", nested, {}).need("intermediate_size")
    return keys.need("intermediate_size")


def _state(keys: Keys) -> State:
    return State(
        key_heads=keys.number("linear_num_key_heads") or keys.need("num_attention_heads"),
        key_dim=keys.number("linear_key_head_dim") or 128,
        value_heads=keys.number("linear_num_value_heads") or keys.need("num_attention_heads"),
        value_dim=keys.number("linear_value_head_dim") or 128,
        conv=keys.number("linear_conv_kernel_dim") or 4,
    )
