"""The planner's tables, read once from ``rackpin/data/plan``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

GIB = 2**30
MIB = 2**20


@cache
def table(name: str) -> dict[str, Any]:
    """The table ``rackpin/data/plan/NAME.yaml``."""
    text = (files("rackpin") / "data" / "plan" / f"{name}.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def by_ranks(steps: dict[int, float], ranks: int) -> float:
    """The value of the largest step up to ``ranks``, between two steps of the smaller one's next.

    ``{1: a, 2: b, 4: c}`` gives b at 2, c at 3 and 4, c above: buffers grow in powers of two.
    """
    for step in sorted(steps):
        if ranks <= step:
            return float(steps[step])
    return float(steps[max(steps)])
