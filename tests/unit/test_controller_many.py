"""What a run costs the controller grows with the number of nodes, not with its square.

Counted in calls of functions, which are the same on a busy machine and on an idle one.
"""

from __future__ import annotations

import pstats
from pathlib import Path

import pytest

from rackpin.inventory import ROOT
from tests.unit.controller_many import calls, cost

COUNTS = (8, 16, 32)
# Calls for each two nodes: lines of /etc/hosts, and who runs which engine; 5.5 when written.
PER_PAIR = 12
PER_NODE = 140_000  # 110,000 when written, most of them pyinfra's
SHARED = {  # for all nodes of a kind, whatever their number
    "rackpin/apt/wanted.py": ("locked", "repositories", "pins", "hashes"),
    "rackpin/stages/apt.py": ("desired", "trusted_files", "digest"),
    "rackpin/stages/base.py": ("desired", "sysctl_settings", "reserved_ports"),
    "rackpin/stages/serve.py": ("common_files",),
}
ONCE_A_NODE = {
    "rackpin/deploy.py": ("survey_host",),
    "rackpin/requests.py": ("requests",),
    "rackpin/audit/expect.py": ("for_node",),
}


def counted(stats: pstats.Stats, file: str, name: str) -> int:
    found = stats.stats  # type: ignore[attr-defined]  # by file, line and name
    return sum(row[1] for (path, _, function), row in found.items()
               if path == str(ROOT / file) and function == name)  # fmt: skip


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("many"))


@pytest.fixture(scope="module")
def runs(where: Path) -> dict[int, pstats.Stats]:
    return {count: calls(where / str(count), count) for count in COUNTS}


def test_calls_grow_with_the_nodes(runs: dict[int, pstats.Stats]) -> None:
    few, some, many = (runs[count].total_calls for count in COUNTS)  # type: ignore[attr-defined]
    a, b, c = COUNTS
    # of q·n² + l·n + k: what is left of the growth once the linear part is taken off
    pairs = ((many - some) - 2 * (some - few)) / (c * c - 3 * b * b + 2 * a * a)
    nodes = (many - some) / (c - b)
    print(f"{nodes:.0f} calls a node, {pairs:.1f} for each two")
    assert pairs < PER_PAIR and nodes < PER_NODE


@pytest.mark.parametrize(("file", "name"), [(f, n) for f, ns in SHARED.items() for n in ns])
def test_what_nodes_share_is_worked_out_once(
    runs: dict[int, pstats.Stats], file: str, name: str
) -> None:
    found = {counted(stats, file, name) for stats in runs.values()}
    assert len(found) == 1 and 0 < found.pop() <= 4


@pytest.mark.parametrize(("file", "name"), [(f, n) for f, ns in ONCE_A_NODE.items() for n in ns])
def test_what_is_a_nodes_own_is_worked_out_once_a_node(
    runs: dict[int, pstats.Stats], file: str, name: str
) -> None:
    assert {count: counted(stats, file, name) for count, stats in runs.items()} == {
        count: count for count in COUNTS
    }


def test_memory_of_a_run_is_small(where: Path) -> None:
    """Some 100 MB are there before the first node."""
    assert cost(where / str(COUNTS[-1]), COUNTS[-1])["megabytes"] < 200
