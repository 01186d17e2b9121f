"""Weights, KV cache and overheads: against figures worked out by hand, and by their properties."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.plan import kv
from rackpin.plan.choose import Judged
from rackpin.plan.data import GIB, MIB
from rackpin.plan.errors import PlanError
from rackpin.plan.families import read_model
from rackpin.plan.memory import Memory
from rackpin.plan.parts import Shard
from rackpin.plan.quant import named, on_card
from rackpin.plan.split import Split
from rackpin.plan.version import vllm_generation
from rackpin.plan.weights import allocated, stage_layers, stages
from tests.unit.plan_samples import deepseek, gemma3_4b, judged, llama, llama_70b, moe


def held(one: Judged) -> Memory:
    assert one.memory is not None
    return one.memory


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (1, 512),
        (512, 512),
        (9 * MIB + 1, 9 * MIB + 512),
        (11 * MIB, 12 * MIB),  # a segment of 12 MiB, the rest is too small to split off
        (12 * MIB, 12 * MIB),
        (12 * MIB + 4096, 12 * MIB + 4096),  # of 14 MiB, nearly 2 MiB go back
    ],
)
def test_what_the_allocator_counts(asked: int, taken: int) -> None:
    assert allocated(asked) == taken


def test_weights_of_one_rank_by_hand() -> None:
    """Llama-3.1-8B over TP 4: attention, ffn, embedding and head are cut, norms are not."""
    layer = (4096 * (32 + 2 * 8) * 128 + 4096 * 4096 + 3 * 4096 * 14336) // 4 + 2 * 4096
    elements = 32 * layer + 2 * 128256 * 4096 // 4 + 4096
    rope = 131072 * 128 * 2
    model = read_model("m", llama())
    assert stages(model, Shard(4), 1)[0].nbytes == elements * 2 + rope


@pytest.mark.parametrize(
    ("layers", "pp", "old", "sizes"),
    [
        (32, 4, False, [8, 8, 8, 8]),
        (61, 2, False, [31, 30]),
        (61, 4, False, [15, 15, 16, 15]),
        (62, 4, False, [15, 16, 16, 15]),
        (61, 2, True, [30, 31]),
    ],
)
def test_layers_of_stages(layers: int, pp: int, old: bool, sizes: list[int]) -> None:
    cut = stage_layers(layers, pp, old)
    assert [len(stage) for stage in cut] == sizes
    assert [i for stage in cut for i in stage] == list(range(layers))


def test_a_tied_head_is_on_both_end_stages_only() -> None:
    tied, own = (read_model("m", llama(tie_word_embeddings=flag)) for flag in (True, False))
    whole_tied, whole_own = (stages(m, Shard(1), 1)[0].nbytes for m in (tied, own))
    assert whole_own - whole_tied == 128256 * 4096 * 2
    first, last = (sum(s.nbytes for s in stages(m, Shard(1), 2)) for m in (tied, own))
    assert first == last


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("bf16", 2 * 256 * 512),
        ("fp8", 256 * 512),
        ("fp8-block", 256 * 512 + 4 * 2 * 4),
        ("int8", 256 * 512 + 4 * 256),
        ("int4", 256 * 512 // 2 + 256 * 4 * 2.5),
        ("mxfp4", 256 * 512 * 0.53125),
        ("nvfp4", 256 * 512 * (0.5 + 1 / 16)),
    ],
)
def test_bytes_of_a_quantised_matrix(name: str, nbytes: float) -> None:
    assert named(name).nbytes(256, 512) == nbytes


@pytest.mark.parametrize("name", ["W8A8", "gptq_marlin", "bfloat16", "AWQ", "w4a16", "FP8_BLOCK"])
def test_other_names_of_a_scheme(name: str) -> None:
    assert named(name).bits in (4, 8, 16)


def test_mxfp4_is_laid_out_otherwise_where_its_own_kernels_don_t_run() -> None:
    own = named("mxfp4")
    assert on_card(own, 9.0, "v0.18") == own
    assert on_card(own, 0.0, "v0.18") == own  # a card nobody knows
    assert on_card(named("fp8"), 8.0, "v0.10") == named("fp8")
    for cc, generation in ((8.0, "v0.18"), (12.0, "v0.18"), (9.0, "v0.10")):
        other = on_card(own, cc, generation)
        assert (other.pad, other.pad_hidden) == (128, 256)


def test_an_unknown_scheme_lists_the_known() -> None:
    with pytest.raises(PlanError, match="fp8-block"):
        named("int5")


@pytest.mark.parametrize(
    ("config", "tp", "dtype", "nbytes"),
    [
        (llama(), 1, "auto", 2 * 32 * 8 * 128 * 2),
        (llama(), 4, "auto", 2 * 32 * 2 * 128 * 2),
        (llama(), 16, "auto", 2 * 32 * 1 * 128 * 2),  # repeated, not split further
        (llama(), 1, "fp8", 2 * 32 * 8 * 128),
        (deepseek(), 1, "auto", 61 * (512 + 64) * 2),
        (deepseek(), 8, "auto", 61 * (512 + 64) * 2),  # the same on every rank
        (deepseek(index_n_heads=64, index_head_dim=128), 8, "bf16", 61 * (576 + 128) * 2),
    ],
)
def test_kv_bytes_of_a_token(config: dict[str, Any], tp: int, dtype: str, nbytes: int) -> None:
    one = judged(config, Split(tp), gpu="H200", gpus=16, per_node=16, kv_dtype=dtype)
    assert held(one).limiting.kv_bytes == nbytes


def test_context_parallel_ranks_share_what_they_would_repeat() -> None:
    alone, shared = (
        held(judged(deepseek(), Split(8, cp=cp), gpu="H200", max_len=4096)) for cp in (1, 8)
    )
    assert shared.limiting.kv_bytes * 8 == alone.limiting.kv_bytes
    assert shared.tokens == pytest.approx(8 * alone.tokens, rel=1e-3)


@pytest.mark.parametrize(
    ("full", "window", "slack", "slots"),
    [
        (5, 29, True, 35),
        (8, 40, True, 48),
        (10, 52, True, 70),
        (18, 18, True, 36),
        (5, 6, True, 12),  # nearly as many: both have six slots
        (5, 6, False, 15),
        (32, 0, True, 32),
    ],
)
def test_padding_of_mixed_windows(full: int, window: int, slack: bool, slots: int) -> None:
    kinds = ["full_attention"] * full + ["sliding_attention"] * window
    config = llama(num_hidden_layers=full + window, layer_types=kinds, sliding_window=1024)
    made, size = kv.groups(read_model("m", config), True, slack)
    assert len(made) * size == slots
    assert sum(g.layers for g in made if g.window is None) == full


def test_window_layers_hold_no_more_than_window_and_batch() -> None:
    made = [kv.Group(None, 8), kv.Group(1024, 8)]
    assert kv.blocks_of_request(made, 8192, 8192, 16) == 512 + 513
    assert kv.blocks_of_request(made, 131072, 2048, 16) == 8192 + 192 + 1


def test_from_0_21_tokens_follow_the_length_of_requests() -> None:
    shown = {
        (version, length): held(
            judged(gemma3_4b(), Split(1), version=version, max_len=length)
        ).tokens
        for version in ("0.19.0", "0.21.0")
        for length in (8192, 65536)
    }
    assert shown["0.19.0", 8192] == shown["0.19.0", 65536]
    assert shown["0.21.0", 65536] > 2 * shown["0.21.0", 8192]


@pytest.mark.parametrize("version", ["0.6.3", "0.9.2", "main Dec 2023"])
def test_old_versions_take_window_layers_as_full_ones(version: str) -> None:
    memory = held(judged(gemma3_4b(), Split(1), version=version))
    assert [group.window for group in memory.groups] == [None]
    assert memory.needs == 8192 // 16


def test_the_smallest_pool_of_all_stages_counts() -> None:
    memory = held(judged(llama(), Split(1, pp=4)))
    assert memory.limiting is memory.ranks[3]  # the sampler is on the last stage
    assert memory.tokens == min(rank.blocks for rank in memory.ranks) * 16
    assert memory.ranks[3].activation > memory.ranks[0].activation


def test_sglang_s_fraction_holds_weights_and_pool() -> None:
    one = held(judged(llama(), Split(1), engine="sglang", util=0.8))
    assert one.limiting.kv + one.limiting.weights == pytest.approx(0.8 * (79.19 - 0.5))
    assert one.limiting.activation == 0


def test_the_sampler_term_is_not_split_by_tp() -> None:
    one, four = (held(judged(llama(), Split(tp))).limiting.activation for tp in (1, 4))
    assert one == pytest.approx(four)
    few = held(judged(llama(), Split(1), seqs=16)).limiting.activation
    assert few < one


@pytest.mark.parametrize(
    ("text", "constants", "known"),
    [
        ("0.19.0", "v0.18", True),
        ("v0.17.1", "v0.17", True),
        ("0.6.4 (by log form)", "v0.6.4", True),
        ("0.6.3.post1", "v0", True),
        ("0.8.5.post1", "v0.8", True),
        ("0.10.2", "v0.10", True),
        ("latest image, late 2025 (V1, about 0.11)", "v0.11", True),
        ("0.20.0", "v0.20", False),
        ("0.26.1rc1.dev156", "v0.21", False),
        ("0.1.dev18496+gd4e0675a7 (main, July 2026, V2 model runner)", "v2runner", True),
        ("main Dec 2023 before the fix", "v0", True),
        ("?", "v0.18", False),
    ],
)
def test_versions_as_people_write_them(text: str, constants: str, known: bool) -> None:
    found = vllm_generation(text)
    assert (found.id, found.known) == (constants, known)
    assert known or found.note


CONFIGS = [llama(), llama_70b(), deepseek(), moe(), gemma3_4b()]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CONFIGS), st.sampled_from([(1, 2), (2, 4), (4, 8), (1, 8)]))
def test_more_tensor_ranks_never_hold_more_weights(
    config: dict[str, Any], tps: tuple[int, int]
) -> None:
    model = read_model("m", config)
    low, high = (stages(model, Shard(tp), 1)[0].nbytes for tp in tps)
    assert high < low


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(1, 12), st.sampled_from([1, 2, 4]))
def test_stages_hold_the_whole_model_between_them(config: dict[str, Any], pp: int, tp: int) -> None:
    model = read_model("m", config)
    whole = stages(model, Shard(tp), 1)[0].nbytes
    cut = stages(model, Shard(tp), pp)
    shared = (pp - 1) * (model.rope_tables + (2 * model.vocab * model.hidden if model.tied else 0))
    assert abs(sum(stage.nbytes for stage in cut) - whole) <= shared + pp * 4 * MIB
    assert max(stage.nbytes for stage in cut) <= whole


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([moe(), deepseek()]), st.sampled_from([(1, 8), (8, 16), (16, 32), (32, 64)]))
def test_more_expert_ranks_never_hold_more_weights(
    config: dict[str, Any], eps: tuple[int, int]
) -> None:
    model = read_model("m", config)
    low, high = (stages(model, Shard(1, ep), 1)[0].nbytes for ep in eps)
    assert high < low


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([llama(), gemma3_4b(), moe(quantization_config=None, num_hidden_layers=20)]),
    st.sampled_from(["H100-80GB", "A100-80GB", "H200"]),
    st.sampled_from([1, 2, 4]),
    st.integers(256, 32768),
)
def test_fp8_kv_holds_about_twice_the_tokens(
    config: dict[str, Any], gpu: str, tp: int, length: int
) -> None:
    common: dict[str, Any] = {"gpu": gpu, "max_len": length}
    half = held(judged(config, Split(tp), kv_dtype="fp8", **common)).tokens
    full = held(judged(config, Split(tp), **common)).tokens
    assert 2 * full <= half <= 2 * full + 16 * 7


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CONFIGS), st.integers(1, 2000), st.floats(0.3, 0.97))
def test_more_memory_or_fewer_sequences_never_hold_fewer_tokens(
    config: dict[str, Any], seqs: int, util: float
) -> None:
    common: dict[str, Any] = {"gpu": "H200", "max_len": 4096}
    base = held(judged(config, Split(4), seqs=seqs, util=util, **common))
    more = held(judged(config, Split(4), seqs=seqs, util=util + 0.02, **common))
    fewer = held(judged(config, Split(4), seqs=max(1, seqs // 2), util=util, **common))
    assert more.tokens >= base.tokens
    assert fewer.tokens >= base.tokens


def test_the_budget_adds_up() -> None:
    rank = held(judged(llama_70b(), Split(4))).limiting
    parts = rank.weights + rank.activation + rank.non_torch + rank.graphs_before + rank.kv
    assert parts == pytest.approx(0.9 * 79.19)
    assert sum(row.nbytes for row in rank.stage.rows) / GIB == pytest.approx(rank.weights)
