"""Models of every family: elements as published checkpoints count them, and odd configs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.plan.choose import Wanted
from rackpin.plan.errors import PlanError
from rackpin.plan.families import read_model
from rackpin.plan.plan import plan_start
from rackpin.plan.tensors import params
from tests.unit.plan_samples import deepseek, gemma3_4b, llama, llama_70b, moe, start

# name, elements of the published checkpoint, config
PUBLISHED: list[tuple[str, int, dict[str, Any]]] = [
    ("Llama-3.1-8B", 8_030_261_248, llama()),
    ("Llama-3.1-70B", 70_553_706_496, llama_70b()),
    ("Llama-2-70B", 68_976_648_192, llama_70b(vocab_size=32000)),
    ("DeepSeek-V3 without its draft layer", 671_026_419_200, deepseek()),
    ("Qwen3-235B-A22B", 235_093_634_560, moe()),
    ("Gemma-3-4B", 4_300_079_472, gemma3_4b()),
    (
        "Gemma-2-9B: four norms, tied head",
        9_241_705_984,
        {
            "model_type": "gemma2",
            "hidden_size": 3584,
            "intermediate_size": 14336,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
        },
    ),
    (
        "phi-2: biases everywhere, no gate",
        2_779_683_840,
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 51200,
            "max_position_embeddings": 2048,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Falcon-7B: one KV head, one norm, old class names",
        6_921_720_704,
        {
            "model_type": "RefinedWebModel",
            "hidden_size": 4544,
            "n_layer": 32,
            "n_head": 71,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "vocab_size": 65024,
        },
    ),
    (
        "GPT-2: learned positions, keys of its own, a vocabulary that is padded",
        124_439_808,
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "n_inner": None,
            "vocab_size": 50257,
        },
    ),
    (
        "Mixtral-8x22B",
        140_620_634_112,
        {
            "model_type": "mixtral",
            "hidden_size": 6144,
            "intermediate_size": 16384,
            "num_hidden_layers": 56,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Qwen1.5-MoE-A2.7B: gated shared expert",
        14_315_784_192,
        {
            "model_type": "qwen2_moe",
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "vocab_size": 151936,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "tie_word_embeddings": False,
        },
    ),
    (
        "Mistral-Small-3.1: pixtral tower",
        24_011_361_280,
        {
            "model_type": "mistral3",
            "text_config": {
                "model_type": "mistral",
                "hidden_size": 5120,
                "intermediate_size": 32768,
                "num_hidden_layers": 40,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "vocab_size": 131072,
                "tie_word_embeddings": False,
            },
            "vision_config": {
                "model_type": "pixtral",
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "num_hidden_layers": 24,
                "patch_size": 14,
                "image_size": 1540,
            },
        },
    ),
]


@pytest.mark.parametrize(("name", "elements", "config"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_elements_are_those_of_the_published_checkpoint(
    name: str, elements: int, config: dict[str, Any]
) -> None:
    assert params(read_model(name, config)) == elements


def test_head_dim_is_the_config_s_own_where_it_has_one() -> None:
    given_ = read_model("m", llama(head_dim=256))
    derived = read_model("m", llama())
    assert (given_.attention.head_dim, derived.attention.head_dim) == (256, 128)


def test_windows_by_list_by_period_and_by_class() -> None:
    listed = read_model(
        "m",
        llama(
            num_hidden_layers=4,
            sliding_window=128,
            layer_types=["sliding_attention", "full_attention"] * 2,
        ),
    )
    assert [layer.window for layer in listed.layers] == [128, None, 128, None]
    gemma = read_model("m", gemma3_4b())
    assert [i for i, layer in enumerate(gemma.layers) if layer.window is None] == [
        5,
        11,
        17,
        23,
        29,
    ]
    qwen = llama(model_type="qwen2", sliding_window=4096, use_sliding_window=False)
    assert all(layer.window is None for layer in read_model("m", qwen).layers)
    late = qwen | {"use_sliding_window": True, "max_window_layers": 30}
    assert [i for i, la in enumerate(read_model("m", late).layers) if la.window] == [30, 31]


def test_dense_layers_among_experts() -> None:
    first = read_model("m", deepseek())
    assert [i for i, layer in enumerate(first.layers) if layer.moe is None] == [0, 1, 2]
    only = read_model("m", moe(mlp_only_layers=[1], decoder_sparse_step=1))
    assert [i for i, layer in enumerate(only.layers) if layer.moe is None] == [1]
    step = read_model("m", moe(decoder_sparse_step=2))
    assert all((layer.moe is not None) == (i % 2 == 1) for i, layer in enumerate(step.layers))
    listed = read_model("m", deepseek(first_k_dense_replace=None, moe_layer_freq=[0] + [1] * 60))
    assert [i for i, layer in enumerate(listed.layers) if layer.moe is None] == [0]


def test_layers_with_a_state_cache_nothing_per_token() -> None:
    config = moe(model_type="qwen3_next", quantization_config=None, num_hidden_layers=8)
    model = read_model("m", config)
    assert [i for i, layer in enumerate(model.layers) if layer.state is None] == [3, 7]
    assert any("estimated" in note for note in model.notes)


@pytest.mark.parametrize(
    ("quantization", "name"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fbgemm-fp8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq-int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq-int8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bnb-nf4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 128}}},
            },
            "int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                        "input_activations": {"num_bits": 8},
                    }
                },
            },
            "int8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
                },
            },
            "nvfp4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block"}}
                },
            },
            "fp8-block",
        ),
    ],
)
def test_quantisation_configs(quantization: dict[str, Any], name: str) -> None:
    model = read_model("m", llama(quantization_config=quantization))
    assert model.quant.name == name
    assert model.quant.published


def test_modules_that_stay_unquantised() -> None:
    kept = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]}
    quant = read_model("m", llama(quantization_config=kept)).quant
    assert quant.keeps(["model.layers.0.self_attn.q_proj"])
    assert not quant.keeps(["model.layers.10.self_attn.q_proj", "model.layers.0.mlp.down_proj"])
    pattern = kept | {"modules_to_not_convert": ["re:.*self_attn.*", "model.layers.*.mlp.gate"]}
    quant = read_model("m", llama(quantization_config=pattern)).quant
    assert quant.keeps(["model.layers.5.self_attn.o_proj"])
    assert quant.keeps(["model.layers.5.mlp.gate"])
    assert not quant.keeps(["model.layers.5.mlp.gate_proj"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"vocab_size": None}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"torch_dtype": "float3"}, "torch_dtype"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"quantization_config": {"quant_method": "magic"}}, "quant_method"),
        ({"quantization_config": "fp8"}, "quantization_config"),
        ({"kv_lora_rank": 512}, "qk_nope_head_dim"),
        ({"num_experts": 8, "num_experts_per_tok": None}, "num_experts_per_tok"),
    ],
)
def test_an_error_names_file_and_key(change: dict[str, Any], says: str) -> None:
    with pytest.raises(PlanError) as error:
        read_model("dir/config.json", llama(**change))
    assert says in str(error.value)
    assert "dir/config.json" in str(error.value)


def test_a_key_of_the_nested_part_is_named_with_its_path() -> None:
    config = gemma3_4b()
    config["text_config"]["num_hidden_layers"] = -1
    with pytest.raises(PlanError, match=r"text_config\.num_hidden_layers"):
        read_model("config.json", config)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=6,
)
KEYS = sorted(
    {
        *deepseek(),
        *llama(),
        *moe(),
        "text_config",
        "vision_config",
        "layer_types",
        "sliding_window",
        "sliding_window_pattern",
        "head_dim",
        "moe_layer_freq",
        "mlp_only_layers",
        "ffn_config",
        "attn_config",
        "full_attention_interval",
        "no_rope_layers",
        "attention_chunk_size",
    }
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([llama(), deepseek(), moe(), gemma3_4b()]),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
)
def test_odd_configs_give_a_model_or_a_plan_error(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    try:
        model = read_model("config.json", config | changes)
    except PlanError as error:
        assert "config.json" in str(error) or "--quant" in str(error)
    else:
        assert params(model) > 0


SMALL = st.integers(1, 300) | st.sampled_from([512, 1024, 4096, 2**20])


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([llama(), deepseek(), moe(), gemma3_4b()["text_config"]]),
    st.dictionaries(
        st.sampled_from(
            ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
             "head_dim", "vocab_size", "sliding_window", "n_routed_experts", "num_experts",
             "num_experts_per_tok", "moe_intermediate_size", "kv_lora_rank", "q_lora_rank",
             "max_position_embeddings", "first_k_dense_replace", "sliding_window_pattern",
             "full_attention_interval", "index_head_dim"]
        ),
        SMALL,
        max_size=6,
    ),
    st.integers(1, 30),
    st.integers(1, 20),
    st.sampled_from(["vllm", "sglang"]),
)  # fmt: skip
def test_odd_shapes_are_planned_or_refused(
    config: dict[str, Any], changes: dict[str, int], layers: int, gpus: int, engine: str
) -> None:
    odd = config | changes | {"num_hidden_layers": layers}
    try:
        asked = start(odd, gpus=gpus, engine=engine, max_len=1000)
    except PlanError as error:
        assert "config.json" in str(error)
        return
    found = plan_start(asked, Wanted()).data
    assert json.loads(json.dumps(found, allow_nan=False))["ok"] == found["ok"]
    assert found["ok"] == (not found["refusals"])
    assert found["ok"] or found["refusals"][0]["remedy"]
