"""What each stage wants of a node: :func:`desired` of one module per stage, in order."""

from __future__ import annotations

from collections.abc import Callable

from rackpin.desired import Desired, Target
from rackpin.stages import apt, audit, base, driver, python, ray, serve

STAGES: dict[str, Callable[[Target], Desired]] = {
    "apt": apt.desired,
    "base": base.desired,
    "driver": driver.desired,
    "python": python.desired,
    "ray": ray.desired,
    "serve": serve.desired,
    "audit": audit.desired,
}
