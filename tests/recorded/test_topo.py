"""Every recorded ``nvidia-smi topo -m`` against its index."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from rackpin.parse.topo import Topology, read
from tests.recorded.corpus import Sample, needs_corpus, samples


def _groups(top: Topology) -> str:
    return json.dumps([list(group) for group in top.nvlink_groups]).replace(" ", "")


def _closest(top: Topology) -> str:
    pairs = zip(top.gpu_indices, top.closest_nics, strict=True)
    return " ".join(f"GPU{index}:{near.link}:{'+'.join(near.nics)}" for index, near in pairs)


def _column(values: tuple[str | None, ...]) -> str:
    return "absent" if set(values) == {None} else "|".join(map(str, values))


SAYS: dict[str, Callable[[Topology], str]] = {
    "gpus": lambda top: str(top.gpus),
    "nvlink_groups": _groups,
    "gpu_link_counts": lambda top: ",".join(f"{k}:{v}" for k, v in top.link_counts.items()),
    "nics": lambda top: ",".join(
        nic.name if nic.device is None else f"{nic.name}={nic.device}" for nic in top.nics
    ),
    "closest_nics": _closest,
    "cpu": lambda top: _column(top.cpu_affinity),
    "numa": lambda top: _column(top.numa_affinity),
    "gpu_numa_id": lambda top: _column(top.gpu_numa_id),
    "rows_missing": lambda top: ",".join(top.rows_missing),
}


@needs_corpus
@pytest.mark.parametrize("sample", samples("topo"), ids=str)
def test_says_what_the_index_says(sample: Sample) -> None:
    top = read(sample.text)
    for key, expected in sample.expect.items():
        if key == "nvlink_groups" and "NOT all-to-all" in expected:
            # The index gives what is connected; a group is what is joined all to all.
            connected = json.dumps([list(part) for part in top.nvlink_connected])
            assert expected.startswith(connected.replace(" ", ""))
            assert all(len(group) < top.gpus for group in top.nvlink_groups if top.gpus)
            continue
        got = SAYS[key](top)
        assert (got or "none").replace("[]", "none") == expected, key
    assert top.complete == ("rows_missing" not in sample.expect)
    assert (top.nvlink_shown is False) == ("-mp form" in sample.note)
