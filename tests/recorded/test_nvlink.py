"""Every recorded ``nvidia-smi nvlink`` and ``topo -p2p`` against its index."""

from __future__ import annotations

import re

import pytest

from rackpin.parse.nvlink import read
from rackpin.parse.nvlink_model import P2P, Nvlink, NvlinkGpu
from tests.recorded.corpus import Sample, needs_corpus, samples

_GPU = re.compile(r"GPU(\d+)\((.*)\): (.*)")


def _links(gpu: NvlinkGpu) -> str:
    if gpu.message:
        return "all inactive" if gpu.active == 0 else "MIG: not supported"
    if any(link.counters for link in gpu.links):
        shown = ",".join(str(link.link) for link in gpu.links)
        return f"links_shown={len(gpu.links)} ({shown})"
    return f"active={gpu.active}@{gpu.speed_gbps}"


def _pairs(reading: Nvlink, state: str) -> str:
    assert reading.pairs is not None
    found = reading.pairs[state]
    named = ",".join(f"{one}-{other}" for one, other in found)
    return f"{len(found)} pairs({named})"


@needs_corpus
@pytest.mark.parametrize("sample", samples("nvlink"), ids=str)
def test_says_what_the_index_says(sample: Sample) -> None:
    reading = read(sample.text)
    gpus = {}
    for key, expected in sample.expect.items():
        whole = f"{key}={expected}"
        if _GPU.match(whole):
            gpus |= {int(m[1]): (m[2], m[3]) for m in map(_GPU.match, whole.split("; ")) if m}
        elif key == "tool":
            first, *more = expected.split("; ")  # GPUs without a "=" stand here
            gpus |= {int(m[1]): (m[2], m[3]) for m in map(_GPU.match, more) if m}
            assert reading.tool == (P2P if first.startswith(P2P) else first)
        elif key == "gpus":
            assert len(reading.gpus) == int(expected)
        elif key == "error_lines":
            assert sum(len(k.counters) for g in reading.gpus for k in g.links) == int(expected)
        elif key == "error_sum":
            counted = [k.counters.values() for g in reading.gpus for k in g.links]
            assert sum(map(sum, counted)) == int(expected)
        else:
            assert _pairs(reading, key).startswith(expected), key
    if gpus or reading.tool != P2P:
        got = {gpu.index: (gpu.name, _links(gpu)) for gpu in reading.gpus}
        assert got == gpus
    cut = any(word in sample.note for word in ("TRUNCATED", "elision"))
    assert (reading.complete is False) == cut
