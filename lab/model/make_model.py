#!/usr/bin/env python3
"""Make the lab's model: a Llama of 0.7 million parameters that reads and writes bytes.

    make_model.py DIR

Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and
model.safetensors (1.4 MB, bfloat16), with the same bytes on every machine: only the standard
library is used and no weight depends on a maths library. Its text means nothing; at temperature
0 it is printable ASCII, one character a token, and never ends by itself.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
from pathlib import Path
from typing import Any

SEED = 20240229
HIDDEN, LAYERS, HEADS, MLP = 128, 4, 4, 256
VOCAB = 258  # 256 bytes, begin, end
BOS, EOS = 256, 257
CONTEXT = 2048
PRINTABLE = range(0x20, 0x7F)

CHAT = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
)


def byte_alphabet() -> list[str]:
    """Return the character that stands for each of the 256 bytes in byte-level tokenizers."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters, spare = [], 256
    for byte in range(256):
        if byte in shown:
            letters.append(chr(byte))
        else:  # control characters and spaces get letters from 256 up, in order
            letters.append(chr(spare))
            spare += 1
    return letters


def tokenizer() -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE without merges, so one token is one byte."""
    special = [
        {
            "id": number,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for number, content in ((BOS, "<s>"), (EOS, "</s>"))
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    vocab = {letter: number for number, letter in enumerate(byte_alphabet())}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": level | {"use_regex": False},
        "post_processor": None,
        "decoder": level | {"use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab | {"<s>": BOS, "</s>": EOS},
            "merges": [],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": CHAT,
    }


def config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HIDDEN // HEADS,
        "vocab_size": VOCAB,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "initializer_range": 0.02,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def shapes() -> dict[str, tuple[int, ...]]:
    """Return each weight's shape, rows first, under the name the Llama loader looks for."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name in "qkvo":
            found[f"{at}.self_attn.{name}_proj.weight"] = (HIDDEN, HIDDEN)
        found[f"{at}.mlp.gate_proj.weight"] = (MLP, HIDDEN)
        found[f"{at}.mlp.up_proj.weight"] = (MLP, HIDDEN)
        found[f"{at}.mlp.down_proj.weight"] = (HIDDEN, MLP)
        found[f"{at}.input_layernorm.weight"] = (HIDDEN,)
        found[f"{at}.post_attention_layernorm.weight"] = (HIDDEN,)
    return dict(sorted(found.items()))


def bfloat16(values: list[float]) -> bytes:
    """Return little-endian bfloat16: the upper half of each float32."""
    words = struct.pack(f"<{len(values)}f", *values)
    return b"".join(words[at + 2 : at + 4] for at in range(0, len(words), 4))


def weights(name: str, shape: tuple[int, ...], dice: random.Random) -> bytes:
    """Return one tensor's bytes. Norms are ones; the rest is uniform in ±1/8, in steps of 1/1024.

    Those steps are exact in every float format down to bfloat16, so rounding plays no part.
    """
    if len(shape) == 1:
        return bfloat16([1.0] * shape[0])
    rows, columns = shape
    drawn: list[float] = []
    for row in range(rows):
        line = [(dice.getrandbits(8) - 127.5) / 1024 for _ in range(columns)]
        if name == "lm_head.weight" and row not in PRINTABLE:
            line = [0.0] * columns  # logit 0, which the best of 95 letters always beats
        drawn += line
    return bfloat16(drawn)


def safetensors() -> bytes:
    """Return model.safetensors: header length (u64), JSON header, tensors one after another."""
    dice = random.Random(SEED)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, at = [], 0
    for name, shape in shapes().items():
        data = weights(name, shape, dice)
        header[name] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [at, at + len(data)],
        }
        parts.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors start aligned
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def make(folder: Path) -> None:
    """Write the model's five files into ``folder``, making it when it isn't there."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "config.json": config(),
        "generation_config.json": {"bos_token_id": BOS, "eos_token_id": EOS},
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": tokenizer_config(),
    }
    for name, content in texts.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "model.safetensors").write_bytes(safetensors())


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the lab's model.")
    parser.add_argument("folder", type=Path, help="directory to write the model to")
    make(parser.parse_args(argv).folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
