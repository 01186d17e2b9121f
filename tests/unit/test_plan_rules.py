"""Each rule of a split: where it refuses, and the nearest split that it lets pass."""

from __future__ import annotations

from typing import Any

import pytest

from rackpin.plan.split import Split
from tests.unit.plan_samples import deepseek, judged, llama, llama_70b, moe, rules_broken

QWEN3_14B = llama(
    model_type="qwen3", hidden_size=5120, intermediate_size=17920, num_hidden_layers=40,
    num_attention_heads=40, num_key_value_heads=5, head_dim=128, vocab_size=151936,
)  # fmt: skip
PHI4 = llama(hidden_size=5120, intermediate_size=17920, num_attention_heads=40,
             num_key_value_heads=10, vocab_size=100352)  # fmt: skip
H200 = {"gpu": "H200"}
CASES: list[tuple[str, str, dict[str, Any], Split, Split]] = [
    ("heads", "28 heads", llama(num_attention_heads=28, num_key_value_heads=4, hidden_size=3584),
     Split(8), Split(4)),
    ("kv-heads", "10 KV heads are neither split nor repeated over 4", PHI4, Split(4), Split(2)),
    ("vocabulary", "151936 over 5, though 40 heads and 5 KV heads divide", QWEN3_14B, Split(5),
     Split(1)),
    ("ffn", "an odd width", llama(intermediate_size=14340), Split(8), Split(4)),
    ("expert-ffn", "experts of an odd width", moe(moe_intermediate_size=1540, **{
        "quantization_config": None}), Split(8), Split(4)),
    ("expert-ffn-block", "1536/8 = 192 under 128x128 blocks", moe(), Split(8), Split(8, ep=8)),
    ("ffn-block", "18432/32 = 576 under 128x128 blocks", deepseek(), Split(32, ep=32),
     Split(16, ep=16)),
    ("experts", "130 experts over 4", moe(num_experts=130), Split(4, ep=4), Split(2, ep=2)),
    ("experts", "a dense model has none", llama(), Split(2, ep=2), Split(2)),
    ("expert-group", "EP is TP x DP", moe(), Split(8, ep=4), Split(4, dp=2, ep=8)),
    ("pipeline-layers", "more stages than layers", llama(num_hidden_layers=3), Split(1, pp=4),
     Split(1, pp=3)),
    ("context", "8 KV heads on 8 ranks repeat nothing", llama_70b(), Split(8, cp=2),
     Split(8)),
    ("ffn-group", "29568/8 cuts through groups of 128",
     llama_70b(intermediate_size=29568,
               quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}),
     Split(8), Split(1)),
    ("kv-block", "64 KV columns a rank under 128x128 blocks",
     llama(head_dim=64, quantization_config=deepseek()["quantization_config"]),
     Split(8), Split(4)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "why", "config", "bad", "good"), CASES, ids=[c[1] for c in CASES])
def test_a_rule_refuses_and_lets_pass(
    rule: str, why: str, config: dict[str, Any], bad: Split, good: Split
) -> None:
    assert rule in rules_broken(config, bad, **H200)
    assert rule not in rules_broken(config, good, **H200)


def test_expert_parallel_doesn_t_lift_the_rules_of_attention() -> None:
    config = moe(num_attention_heads=60, num_key_value_heads=4)
    assert "heads" in rules_broken(config, Split(8, ep=8))


def test_latent_attention_has_no_rule_of_kv_heads() -> None:
    assert rules_broken(deepseek(num_key_value_heads=3), Split(16, ep=16), **H200) == []


def test_a_refusal_has_the_numbers_and_a_remedy() -> None:
    refusal = judged(moe(), Split(8)).refusals[0]
    assert "1536/8 = 192" in refusal.why
    assert "128" in refusal.why
    assert "--ep" in refusal.remedy


def test_more_gpus_than_there_are() -> None:
    assert rules_broken(llama(), Split(4, pp=4), gpus=8) == ["gpus"]


@pytest.mark.parametrize(
    ("rule", "split", "config", "too_old", "enough"),
    [
        ("pipeline-version", Split(1, pp=2), llama(), "0.4.2", "0.5.1"),
        ("expert-version", Split(4, ep=4), moe(), "0.7.3", "0.8.0"),
        ("context-version", Split(8, cp=2), moe(), "0.9.2", "0.10.2"),
    ],
)
def test_what_an_old_version_can_t(
    rule: str, split: Split, config: dict[str, Any], too_old: str, enough: str
) -> None:
    assert rule in rules_broken(config, split, version=too_old)
    assert rule not in rules_broken(config, split, version=enough)


@pytest.mark.parametrize(("util", "refused"), [(0.97, False), (0.98, True)])
def test_memory_in_use_before_the_start(util: float, refused: bool) -> None:
    assert ("start-memory" in rules_broken(llama(), Split(2), util=util)) == refused


def test_a_process_left_over_is_seen_where_free_memory_is_told() -> None:
    assert rules_broken(llama(), Split(4), util=0.95) == []
    assert rules_broken(llama(), Split(4), util=0.95, free_gib=60.85) == ["start-memory"]


def test_a_request_must_fit() -> None:
    tight = {"gpu": "RTX 3090", "tokens": 2048}
    assert rules_broken(llama(), Split(1), max_len=131072, **tight) == ["kv-too-small"]
    assert rules_broken(llama(), Split(1), max_len=16384, **tight) == []
    assert rules_broken(llama_70b(), Split(1), gpu="RTX 3090") == ["no-kv-memory"]


def test_sglang_starts_where_vllm_refuses_a_request_that_can_t_fit() -> None:
    asked = {"engine": "sglang", "gpu": "RTX 3090", "max_len": 131072, "gpus": 1}
    one = judged(llama(), Split(1), **asked)
    assert one.starts
    assert one.memory is not None
    assert 0 < one.memory.concurrency < 1


def test_sglang_puts_data_parallel_attention_inside_tp() -> None:
    assert rules_broken(deepseek(), Split(8, dp=8, ep=8), engine="sglang", gpus=8, **H200) == []
    broken = rules_broken(deepseek(), Split(8, dp=3, ep=8), engine="sglang", gpus=8, **H200)
    assert "dp-attention" in broken
