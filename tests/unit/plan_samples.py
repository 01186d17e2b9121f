"""Configs in the form of published ones, small where a test needs no real size."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from rackpin.plan.choose import Judged, judge
from rackpin.plan.families import read_model
from rackpin.plan.gpus import find_gpu
from rackpin.plan.split import Split, Start
from rackpin.plan.topology import Topology, topology_of, uniform
from rackpin.plan.version import vllm_generation


def llama(**changes: Any) -> dict[str, Any]:
    """Llama-3.1-8B's shapes."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
        "tie_word_embeddings": False,
    } | changes


def llama_70b(**changes: Any) -> dict[str, Any]:
    shapes = {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    }
    return llama(**(shapes | changes))


def deepseek(**changes: Any) -> dict[str, Any]:
    """DeepSeek-V3's shapes, block FP8 as published."""
    return {
        "model_type": "deepseek_v3",
        "torch_dtype": "bfloat16",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "num_key_value_heads": 128,
        "vocab_size": 129280,
        "max_position_embeddings": 163840,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "n_shared_experts": 1,
        "first_k_dense_replace": 3,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    } | changes


def moe(**changes: Any) -> dict[str, Any]:
    """Qwen3-235B's shapes, block FP8 as published."""
    return {
        "model_type": "qwen3_moe",
        "torch_dtype": "bfloat16",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536,
        "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    } | changes


def gemma3_4b() -> dict[str, Any]:
    """As it was published: half of the shapes are the class's defaults."""
    return {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 1152,
            "image_size": 896,
            "intermediate_size": 4304,
            "num_attention_heads": 16,
            "num_hidden_layers": 27,
            "patch_size": 14,
        },
    }


def start(config: dict[str, Any], **changes: Any) -> Start:
    """A start of vLLM 0.19.0 on eight H100 unless something is changed; version and gpu by name."""
    quant, version = changes.pop("quant", None), changes.pop("version", "0.19.0")
    gpu = find_gpu(changes.pop("gpu", "H100-80GB"))
    made = Start(
        model=read_model("config.json", config, quant),
        gpu=gpu,
        gpus=8,
        per_node=8,
        engine="vllm",
        generation=vllm_generation(version),
        util=0.9,
        max_len=8192,
        seqs=None,
        tokens=None,
        kv_dtype="auto",
        block=16,
        concurrency=None,
        free_gib=None,
        topology=None,
        notes=(),
    )
    return replace(made, **changes)


def judged(config: dict[str, Any], split: Split, **changes: Any) -> Judged:
    return judge(start(config, **changes), split)


def rules_broken(config: dict[str, Any], split: Split, **changes: Any) -> list[str]:
    """Names of the rules that a split breaks, on as many GPUs as it takes."""
    gpus = changes.pop("gpus", split.tp * split.pp * split.dp)
    return [one.rule for one in judged(config, split, gpus=gpus, **changes).refusals]


def pairs() -> Topology:
    """Four GPUs: NVLink within 0-1 and 2-3 only."""
    rows = [
        ["X", "NV4", "SYS", "SYS"],
        ["NV4", "X", "SYS", "SYS"],
        ["SYS", "SYS", "X", "NV4"],
        ["SYS", "SYS", "NV4", "X"],
    ]
    return topology_of(4, rows)


def mesh(gpus: int = 8) -> Topology:
    return uniform(gpus, "NV18")


def write(path: Path, config: Any) -> str:
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)
