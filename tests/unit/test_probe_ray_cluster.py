"""The driver that looks at the cluster: a raylet that has just started is waited for, shortly."""

from __future__ import annotations

import time
from typing import Any

from rackpin.probes.ray_cluster import joined


class Ray:
    """``ray.nodes()``: the second node is dead, and alive again from the third look on."""

    def __init__(self, back_after: int) -> None:
        self.looks, self.back_after = 0, back_after

    def nodes(self) -> list[dict[str, Any]]:
        self.looks += 1
        every = [("10.9.0.11", True), ("10.9.0.12", False)]
        if self.looks > self.back_after:
            every.append(("10.9.0.12", True))
        return [
            {"NodeID": str(n), "Alive": alive, "NodeManagerAddress": address}
            for n, (address, alive) in enumerate(every)
        ]


def test_a_node_that_joins_in_time_is_there() -> None:
    ray = Ray(back_after=2)
    found, missing = joined(ray, ["10.9.0.11", "10.9.0.12"], 10)
    assert (missing, ray.looks) == (set(), 3)
    assert [node["alive"] for node in found] == [True, False, True]


def test_a_whole_cluster_is_not_waited_for() -> None:
    ray = Ray(back_after=99)
    assert joined(ray, ["10.9.0.11"], 10)[1] == set() and ray.looks == 1


def test_one_that_never_comes_is_missing() -> None:
    began = time.monotonic()
    assert joined(Ray(back_after=99), ["10.9.0.11", "10.9.0.12"], 0.6)[1] == {"10.9.0.12"}
    assert time.monotonic() - began < 5
