"""``rackpin parse``: its exit codes, and that every answer has the keys that are promised."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from rackpin.parse.cli import parse_command

# The promise of docs/parse.md, with one text of each kind.
PROMISED = {
    "topo": (
        "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n",
        "gpus nvlink_groups link_counts nics closest_nics cpu_affinity numa_affinity complete",
    ),
    "nvidia-smi": ("No devices were found\n", "form driver cuda gpus mig error errors"),
    "nvlink": (
        "GPU 0: NVIDIA H100 (UUID: GPU-01234567)\n\t Link 0: 26.562 GB/s\n",
        "tool gpus matrix errors",
    ),
    "infiniband": ("mlx5_0 port 1 ==> ibs1 (Up)\n", "tool ports errors"),
    "nccl-tests": (
        "# Out of bounds values : 0 OK\n",
        "op ranks rows max_size peak_busbw avg_busbw out_of_bounds ok errors",
    ),
}


def parse(kind: str, text: str, *options: str) -> Result:
    return CliRunner().invoke(parse_command, [kind, "-", *options], input=text)


@pytest.mark.parametrize("kind", PROMISED)
def test_promised_keys(kind: str) -> None:
    text, keys = PROMISED[kind]
    result = parse(kind, text, "--json")
    answer = json.loads(result.output)
    assert result.exit_code == 0 and result.output.count("\n") == 1
    assert set(keys.split()) <= answer.keys()


@pytest.mark.parametrize("kind", PROMISED)
@pytest.mark.parametrize("text", ["", "nothing of the kind\n", "\x00\xff"])
def test_what_is_not_understood_says_why(kind: str, text: str) -> None:
    result = parse(kind, text, "--json")
    answer = json.loads(result.output)
    assert result.exit_code == 1 and list(answer) == ["errors"] and answer["errors"][0]


def test_values_of_each_shape_reach_the_json() -> None:
    answer = json.loads(parse("topo", PROMISED["topo"][0], "--json").output)
    assert answer["nvlink_groups"] == [[0, 1]] and answer["link_counts"] == {"NV4": 1}
    ports = json.loads(parse("infiniband", PROMISED["infiniband"][0], "--json").output)["ports"]
    names = {"device", "port", "state", "physical", "rate_gbps", "link_layer"}
    assert names <= ports[0].keys() and ports[0]["up"] is True


def test_usage() -> None:
    assert parse("nonsense", "").exit_code == 2
