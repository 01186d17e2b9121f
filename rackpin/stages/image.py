"""image: what a container has of base, python and serve; kernel and units are the host's.

Not one of :data:`rackpin.stages.STAGES`: no node has it.
"""

from __future__ import annotations

from rackpin import layout
from rackpin.desired import Desired, Target
from rackpin.inventory import Fleet, FleetConfig, Node, RayConfig
from rackpin.stack.lock import Lock
from rackpin.stack.packages import image_names
from rackpin.stages import base, python, serve


def target(lock: Lock, wheelhouse_url: str) -> Target:
    """The one node of a fleet that is an image: nothing of it may depend on a node."""
    config = FleetConfig(fleet="image", stack=lock.stack, wheelhouse_url=wheelhouse_url)
    node = Node(name="image", groups=["head"], address="0.0.0.0", sku="image", gpus=0)
    return Target(Fleet(config=config, nodes={node.name: node}), node, lock)


def os_release(text: str) -> tuple[str, str]:
    """``ID`` and ``VERSION_ID`` of ``/etc/os-release``; empty where it doesn't say."""
    entries = (line.partition("=") for line in text.splitlines())
    values = {key: value.strip().strip('"') for key, _, value in entries}
    return values.get("ID", ""), values.get("VERSION_ID", "")


def environment(lock: Lock) -> dict[str, str]:
    """``ENV`` of the image: as in ``/etc/rackpin/node.env``, without what is a node's own."""
    # Which variables a stack's engine needs (its NCCL, for one).
    extra = lock.engine_environment(layout.CURRENT)
    own: dict[str, str] = base.data("image.yaml")["env"]
    return extra | base.common_env(RayConfig()) | own


def desired(target: Target) -> Desired:
    host = base.desired(target)
    every = target.lock.packages.get(target.os_key, [])
    environment = [item.name for item in every if item.role == "environment"]
    return Desired(
        files=tuple(serve.common_files()),
        directories=tuple(d for d in host.directories if d.path != layout.BACKUPS),
        packages=tuple(dict.fromkeys([*environment, *image_names(target.os_key)])),
        foreign=python.desired(target).foreign,
    )
