"""A model as the planner sees it: layers, their attention and experts, and how they are stored."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.plan.quant import Quant


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: low ranks and head sizes, in elements.

    q_lora 0: queries are projected at once; index_heads, index_dim: the sparse indexer, 0 none.
    """

    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    value: int
    index_heads: int = 0
    index_dim: int = 0


@dataclass(frozen=True)
class Attention:
    """Attention of a layer. qk_norm: none, head, full or cohere; gated: queries twice as wide."""

    heads: int
    kv_heads: int
    head_dim: int
    latent: Latent | None = None
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = "none"
    sinks: bool = False
    gated: bool = False


@dataclass(frozen=True)
class State:
    """A linear attention or state-space layer: a fixed state a sequence, nothing per token."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int
    conv: int


@dataclass(frozen=True)
class Moe:
    """Experts of a layer. ffn: of one routed expert; shared_ffn: of all shared experts, 0 none."""

    experts: int
    topk: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    correction: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Layer:
    """One decoder layer: window in tokens (None: full attention), experts (None: dense)."""

    attention: Attention
    window: int | None
    moe: Moe | None
    state: State | None = None
    ffn: int = 0


@dataclass(frozen=True)
class Model:
    """A model.

    bits: of an unquantised element; rope_tables: bytes of the cos/sin tables; vision_params:
    elements of the vision tower and projector (0 none); notes: what was assumed.
    """

    name: str
    model_type: str
    layers: tuple[Layer, ...]
    hidden: int
    ffn: int
    vocab: int
    tied: bool
    max_len: int | None
    bits: int
    quant: Quant
    gated: bool
    mlp_bias: bool
    norms: int
    norm_bias: bool
    head_bias: bool
    learned_positions: int
    rope_tables: int
    vision_params: int
    multimodal: bool
    notes: tuple[str, ...]

    @property
    def attention(self) -> Attention:
        """Attention of the first layer that has it."""
        return next(
            (la.attention for la in self.layers if la.state is None), self.layers[0].attention
        )

    @property
    def moe(self) -> Moe | None:
        """The experts of the first layer that has them."""
        return next((layer.moe for layer in self.layers if layer.moe), None)

    @property
    def itemsize(self) -> int:
        return self.bits // 8
