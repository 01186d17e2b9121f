"""The weights of one rank, tensor by tensor, as vLLM lays them out."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rackpin.plan.model import Attention, Latent, Model, Moe, State
from rackpin.plan.parts import Builder, Part, Shard, padded_vocab


def layer_parts(model: Model, index: int, shard: Shard) -> Iterator[Part]:
    """Every weight of decoder layer ``index`` on one rank."""
    layer = model.layers[index]
    build = Builder(model, index)
    if layer.state:
        yield from _state(build, layer.state, model.hidden, shard)
    elif layer.attention.latent:
        yield from _latent(build, layer.attention, layer.attention.latent, model, shard)
    else:
        yield from _attention(build, layer.attention, model.hidden, shard)
    if layer.moe:
        yield from _experts(build, layer.moe, model, shard)
    else:
        yield from _dense(build, "ffn", "mlp", layer.ffn, model, shard.attention)
    vectors = model.norms * (2 if model.norm_bias else 1)
    yield build.plain("norms", vectors * model.hidden)


def first_parts(model: Model, shard: Shard) -> Iterator[Part]:
    """Embedding, learned positions and vision tower: what the first stage has."""
    build = Builder(model, -1)
    yield build.plain("embedding", padded_vocab(model.vocab) // shard.attention * model.hidden)
    if model.learned_positions:
        yield build.plain("embedding", model.learned_positions * model.hidden)
    if model.vision_params:
        share = model.vision_params // shard.tp
        for i in range(32):  # a tower is many small weights, not one
            yield build.plain("vision", share * (i + 1) // 32 - share * i // 32)


def last_parts(model: Model, shard: Shard, tied_here: bool) -> Iterator[Part]:
    """Output head (none where it is the embedding of the same rank) and last norm."""
    build = Builder(model, -1)
    if not tied_here:
        yield build.plain("head", padded_vocab(model.vocab) // shard.attention * model.hidden)
    if model.head_bias:
        yield build.plain("head", padded_vocab(model.vocab) // shard.attention)
    yield build.plain("norms", model.hidden * (2 if model.norm_bias else 1))


def _attention(build: Builder, at: Attention, hidden: int, shard: Shard) -> Iterator[Part]:
    tp = shard.attention
    queries = at.heads // tp * at.head_dim * (2 if at.gated else 1)
    keys = max(1, at.kv_heads // tp) * at.head_dim
    rows = queries + 2 * keys
    yield build.linear("attention", "self_attn", "q_proj k_proj v_proj qkv_proj", rows, hidden)
    out = at.heads // tp * at.head_dim
    yield build.linear("attention", "self_attn", "o_proj", hidden, out)
    if at.qkv_bias:
        yield build.plain("attention", rows)
    if at.o_bias:
        yield build.plain("attention", hidden)
    if at.qk_norm == "head":
        yield build.plain("norms", 2 * at.head_dim)
    elif at.qk_norm == "full":
        yield build.plain("norms", out + keys)
    if at.sinks:
        yield build.plain("attention", at.heads // tp)


def _latent(
    build: Builder, at: Attention, la: Latent, model: Model, shard: Shard
) -> Iterator[Part]:
    tp, hidden = shard.attention, model.hidden
    heads = at.heads // tp
    if la.q_lora:
        # replicated on every rank, in one weight
        rows = la.q_lora + la.kv_lora + la.rope
        yield build.linear("attention", "self_attn", "q_a_proj kv_a_proj_with_mqa", rows, hidden)
        yield build.linear(
            "attention", "self_attn", "q_b_proj", heads * (la.nope + la.rope), la.q_lora
        )
        yield build.plain("norms", la.q_lora)
    else:
        yield build.linear("attention", "self_attn", "q_proj", heads * (la.nope + la.rope), hidden)
        yield build.linear(
            "attention", "self_attn", "kv_a_proj_with_mqa", la.kv_lora + la.rope, hidden
        )
    yield build.plain("norms", la.kv_lora)
    yield build.linear(
        "attention", "self_attn", "kv_b_proj", heads * (la.nope + la.value), la.kv_lora
    )
    yield build.linear("attention", "self_attn", "o_proj", hidden, heads * la.value)
    if la.index_heads:
        yield build.linear(
            "attention",
            "self_attn.indexer",
            "wq_b",
            la.index_heads * la.index_dim,
            la.q_lora or hidden,
        )
        yield build.linear("attention", "self_attn.indexer", "wk", la.index_dim, hidden)
        yield build.plain("attention", la.index_heads * hidden + 2 * la.index_dim)
    if shard.copies:
        size = heads * la.kv_lora
        yield Part("latent copies", "16 bit", size * la.nope * 2, 0)
        yield Part("latent copies", "16 bit", size * la.value * 2, 0)


def _state(build: Builder, st: State, hidden: int, shard: Shard) -> Iterator[Part]:
    tp = shard.attention
    keys, values = st.key_heads * st.key_dim // tp, st.value_heads * st.value_dim // tp
    rows = 2 * keys + 2 * values
    yield build.linear("attention", "linear_attn", "in_proj_qkvz", rows, hidden)
    yield build.plain("attention", 2 * st.value_heads // tp * hidden)
    yield build.plain("attention", (2 * keys + values) * st.conv + 2 * st.value_heads // tp)
    yield build.linear("attention", "linear_attn", "out_proj", hidden, values)
    yield build.plain("norms", st.value_dim)


def _dense(
    build: Builder, kind: str, module: str, ffn: int, model: Model, tp: int
) -> Iterator[Part]:
    if not ffn:
        return
    share, up = ffn // tp, 2 if model.gated else 1
    names = "gate_proj up_proj gate_up_proj" if model.gated else "fc1 up_proj dense_h_to_4h"
    yield build.linear(kind, module, names, up * share, model.hidden)
    yield build.linear(kind, module, "down_proj fc2 dense_4h_to_h", model.hidden, share)
    if model.mlp_bias:
        yield build.plain(kind, up * share + model.hidden)


def _experts(build: Builder, moe: Moe, model: Model, shard: Shard) -> Iterator[Part]:
    hidden, deep = model.hidden, _padded(model.hidden, model.quant.pad_hidden)
    count = math.ceil(moe.experts / shard.ep)
    ffn = moe.ffn if shard.ep > 1 else moe.ffn // shard.tp
    wide = _padded(ffn, model.quant.pad)
    up = build.linear(
        "experts", "mlp.experts", "gate_proj up_proj gate_up_proj", 2 * wide, deep, count
    )
    down = build.linear("experts", "mlp.experts", "down_proj", deep, wide, count)
    yield Part(up.kind, up.stored, up.nbytes, 2 * ffn * hidden * count)
    yield Part(down.kind, down.stored, down.nbytes, ffn * hidden * count)
    if moe.bias:
        yield build.plain("experts", 2 * ffn * count)
        yield build.plain("experts", hidden * count)
    yield build.plain("router", moe.experts * hidden)
    if moe.router_bias:
        yield build.plain("router", moe.experts)
    if moe.correction:
        yield build.plain("router", moe.experts, 4)
    if moe.shared_ffn:
        yield from _dense(
            build, "shared experts", "mlp.shared_experts", moe.shared_ffn, model, shard.attention
        )
        if moe.shared_gate:
            yield build.plain("router", hidden)


def _padded(size: int, step: int) -> int:
    return math.ceil(size / step) * step if step else size


def params(model: Model) -> int:
    """Elements of the whole model, as its published weights hold them."""
    whole = Shard(copies=False)
    parts = [*first_parts(model, whole), *last_parts(model, whole, model.tied)]
    total = sum(part.params for part in parts)
    total += sum(p.params for i in range(len(model.layers)) for p in layer_parts(model, i, whole))
    pad = padded_vocab(model.vocab) - model.vocab
    return total - pad * model.hidden * (1 if model.tied else 2)
