"""nccl: the host's library at its pin, and nccl-tests for the host's and the engine's NCCL."""

from __future__ import annotations

from rackpin.desired import Desired, Target
from rackpin.nccltests.build import Build, builds

ROLES = ("nccl", "mpi")  # MPI starts the tests over several nodes


def packages(target: Target) -> tuple[str, ...]:
    every = target.lock.packages.get(target.os_key, [])
    return tuple(item.name for item in every if item.role in ROLES and target.node.gpus)


def tests(target: Target) -> tuple[list[Build], list[str]]:
    """What is to be built on this node, and notes on what is not."""
    bundle = target.fleet.config.bundle
    return builds(target.lock, target.os_key, bundle.url if bundle else None)


def asks(target: Target) -> tuple[str, ...]:
    made, _ = tests(target)
    return tuple(path for build in made for path in (build.mark, build.link))


def desired(target: Target) -> Desired:
    if not target.node.gpus:
        return Desired()
    if target.fabric is not None and not target.fabric.gpus:
        return Desired(foreign=asks(target))
    return Desired(packages=packages(target), foreign=asks(target))
