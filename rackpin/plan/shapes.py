"""Shapes of attention, experts and feed-forward layers, from a config's keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rackpin.plan.config import Keys
from rackpin.plan.errors import PlanError
from rackpin.plan.model import Attention, Latent, Moe, State


def flag(keys: Keys, rule: bool | str) -> bool:
    return rule if isinstance(rule, bool) else keys.flag(rule, False)


def attention_of(keys: Keys, family: dict[str, Any], hidden: int, notes: list[str]) -> Attention:
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
        qkv_bias=flag(keys, family["qkv_bias"]),
        o_bias=flag(keys, family["o_bias"]),
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


def full_attention_of(keys: Keys, attention: Attention) -> Attention:
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


def moe_of(keys: Keys, family: dict[str, Any]) -> Moe | None:
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


def ffn_of(keys: Keys, hidden: int, moe: Moe | None) -> int:
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


def state_of(keys: Keys) -> State:
    return State(
        key_heads=keys.number("linear_num_key_heads") or keys.need("num_attention_heads"),
        key_dim=keys.number("linear_key_head_dim") or 128,
        value_heads=keys.number("linear_num_value_heads") or keys.need("num_attention_heads"),
        value_dim=keys.number("linear_value_head_dim") or 128,
        conv=keys.number("linear_conv_kernel_dim") or 4,
    )
