"""64 simulated nodes: all checks, all pairs and all together cost the controller seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackpin.inventory import ROOT

LIMIT_S, LIMIT_MB = 60.0, 500


def cost(directory: Path, level: str) -> dict[str, Any]:
    """In a process of its own: memory is counted by process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.verify_many", str(directory), level],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("level", "rounds", "bad"),
    [
        ("node", 1, ["gpu05"]),
        # the loop, 63 of pairs, two for the suspects, all together
        ("fleet", 67, ["gpu05", "gpu17", "gpu42"]),
    ],
)
def test_64_nodes_cost_seconds(tmp_path: Path, level: str, rounds: int, bad: list[str]) -> None:
    found = cost(tmp_path, level)
    print(found)
    assert found["seconds"] < LIMIT_S and found["megabytes"] < LIMIT_MB
    assert found["checks"] >= 60 and found["findings"] > 64 * 55
    assert found["bad"] == bad, "every fault is named, and nobody else"
    assert found["rounds"] == rounds and not found["ready"]
    assert (tmp_path / "latest.html").stat().st_size < 5e6
