"""``rackpin plan`` as it is typed: the keys of its JSON, exit codes, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackpin.cli import main
from tests.unit.plan_samples import llama, llama_70b, moe, write

KEYS = {
    "ok", "refusals", "tp", "pp", "ep", "weights_gib_per_gpu", "activation_gib", "non_torch_gib",
    "kv_bytes_per_token_per_gpu", "kv_cache_gib", "kv_cache_tokens", "max_concurrency_at_max_len",
    "reasons", "alternatives", "constants",
}  # fmt: skip


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["plan", *args])


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write(tmp_path / "config.json", llama())


def answer(*args: str) -> tuple[int, dict[str, Any]]:
    result = run(*args, "--json")
    return result.exit_code, json.loads(result.stdout)


def test_the_keys_of_an_answer(model: str) -> None:
    split = ["--gpus", "2", "--tp", "2", "--pp", "1"]
    version = ["--engine-version", "0.19.0", "--max-model-len", "8192"]
    code, found = answer("--model", model, "--gpu", "H100-80GB", *split, *version)
    assert code == 0
    assert found.keys() >= KEYS
    assert (found["ok"], found["tp"], found["pp"], found["ep"]) == (True, 2, 1, 1)
    assert found["refusals"] == []
    assert found["kv_bytes_per_token_per_gpu"] == 65536
    assert found["kv_cache_tokens"] % 16 == 0
    assert found["constants"]["id"] == "v0.18"
    assert found["constants"]["measured"]


def test_a_start_that_fails_answers_with_1(tmp_path: Path) -> None:
    big = write(tmp_path / "big.json", llama_70b())
    code, found = answer(
        "--model", big, "--gpu", "A40-48GB", "--gpus", "1", "--tp", "1", "--pp", "1"
    )
    assert code == 1
    assert not found["ok"]
    assert found["refusals"][0].keys() == {"rule", "why", "remedy"}
    shapes = write(tmp_path / "moe.json", moe())
    code, found = answer(
        "--model", shapes, "--gpu", "H100", "--gpus", "8", "--tp", "8", "--pp", "1"
    )
    assert code == 1
    assert found["kv_cache_tokens"] is None
    spread = next(one for one in found["alternatives"] if one["ep"] == 8 and one["ok"])
    assert spread["why_not"].startswith("starts: holds")


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 80GB HBM3", "h100", "H100-80GB", "8x NVIDIA H100 80GB HBM3", "H100_SXM5"]
)
def test_names_of_a_card(model: str, name: str) -> None:
    code, found = answer("--model", model, "--gpu", name)
    assert code == 0
    assert found["card"] == {"name": "H100-80GB", "total_gib": 79.19}


@pytest.mark.parametrize(
    ("name", "known"),
    [("NVIDIA A100-SXM4-40GB", "A100-40GB"), ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
     ("NVIDIA A40", "A40-48GB"), ("NVIDIA L40S", "L40S-48GB"), ("NVIDIA L4", "L4-24GB"),
     ("NVIDIA GeForce RTX 3090 Ti", "RTX-3090-Ti-24GB"), ("NVIDIA H20-3e", "H20-3e-141GB"),
     ("NVIDIA H200", "H200-141GB"), ("Tesla V100-SXM2-32GB", "V100-32GB"), ("Tesla T4", "T4-16GB"),
     ("GB10 (DGX Spark, unified)", "GB10-128GB"), ("NVIDIA B200", "B200"),
     ("NVIDIA H100 NVL", "H100-NVL-94GB"), ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada-48GB")],
)  # fmt: skip
def test_product_names(model: str, name: str, known: str) -> None:
    assert answer("--model", model, "--gpu", name)[1]["card"]["name"] == known


def test_a_card_that_is_not_known_needs_its_size(model: str) -> None:
    result = run("--model", model, "--gpu", "Voodoo 2")
    assert result.exit_code == 2
    assert "Voodoo 2" in result.stderr
    assert "--total-gib" in result.stderr
    code, found = answer("--model", model, "--gpu", "Voodoo 2", "--total-gib", "79.19",
                         "--engine-version", "0.19.0")  # fmt: skip
    assert code in (0, 1)
    assert found["card"]["total_gib"] == 79.19
    assert any("only its size" in note for note in found["assumptions"])


def test_versions_without_measured_overheads_say_so(model: str) -> None:
    _, known = answer("--model", model, "--gpu", "H100", "--engine-version", "0.11.2")
    _, later = answer("--model", model, "--gpu", "H100", "--engine-version", "0.30.0")
    assert known["constants"]["measured"]
    assert not later["constants"]["measured"]
    assert "v0.18" in later["constants"]["note"]


def bad(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no JSON"),
        ("[1]", "no JSON object"),
        ('{"hidden_size": 4', "no JSON"),
        ("{}", "hidden_size"),
        (json.dumps(llama(vocab_size=None)), "vocab_size"),
        (json.dumps(llama(num_hidden_layers=10**9)), "num_hidden_layers"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_config_that_can_t_be_used(tmp_path: Path, text: str, says: str) -> None:
    path = bad(tmp_path, text)
    result = run("--model", path, "--gpu", "H100")
    assert result.exit_code == 2
    assert path in result.stderr
    assert says in result.stderr
    assert result.stderr.count("Error:") == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--gpu", "H100", "--quant", "int3"], "--quant 'int3'"),
        (["--gpu", "H100", "--kv-cache-dtype", "fp2"], "--kv-cache-dtype"),
        (["--gpu", "H100", "--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (["--gpu", "H100", "--total-gib", "-3"], "--total-gib"),
        (["--gpu", "H100", "--engine", "tgi"], "--engine"),
        (["--gpu", "H100", "--tp", "0"], "--tp"),
        (["--gpu", "H100", "--topology", "/nowhere/topo.txt"], "--topology"),
        (["--gpu", "H100", "--svg", "/nowhere/plan.svg"], "--svg"),
        ([], "--gpu"),
    ],
)
def test_options_that_can_t_be_used(model: str, args: list[str], says: str) -> None:
    result = run("--model", model, *args)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = run("--model", str(tmp_path / "none.json"), "--gpu", "H100")
    assert result.exit_code == 2
    assert "none.json" in result.stderr


def test_a_model_s_directory_will_do(model: str) -> None:
    code, found = answer("--model", str(Path(model).parent), "--gpu", "H100")
    assert code == 0
    assert found["model"]["layers"] == 32


def test_the_table_says_what_the_json_says(model: str, tmp_path: Path) -> None:
    svg = tmp_path / "plan.svg"
    common = ["--model", model, "--gpu", "H100", "--gpus", "8", "--tp", "4", "--pp", "2",
              "--max-model-len", "8192"]  # fmt: skip
    result = run(*common, "--svg", str(svg))
    _, found = answer(*common)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert f"{found['kv_cache_tokens']:,} tokens" in words
    assert "TP 4 × PP 2 starts" in words
    assert "headroom after graphs" in words
    assert svg.read_text(encoding="utf-8").startswith("<svg")
