"""What each stage wants of a node: :func:`desired` of one module per stage, in order."""

from __future__ import annotations

from collections.abc import Callable

from rackpin.desired import Desired, Target
from rackpin.stages import apt, audit, base, cuda, driver, fabric, gateway, nccl, python, ray, serve

STAGES: dict[str, Callable[[Target], Desired]] = {
    "apt": apt.desired,
    "base": base.desired,
    "driver": driver.desired,
    "cuda": cuda.desired,
    "fabric": fabric.desired,
    "python": python.desired,
    "nccl": nccl.desired,
    "ray": ray.desired,
    "serve": serve.desired,
    "gateway": gateway.desired,
    "audit": audit.desired,
}
