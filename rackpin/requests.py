"""What the survey asks of a node: every fact that any stage will want, in one go."""

from __future__ import annotations

from typing import Any

from rackpin import layout
from rackpin.desired import Target
from rackpin.driver import want as driver
from rackpin.facts import Packages, Paths, Survey, Text, Units, Users
from rackpin.facts_apt import Apt
from rackpin.facts_cuda import CudaFact
from rackpin.facts_driver import Gpu
from rackpin.facts_fabric import FabricFact
from rackpin.facts_fleet import IdentityFact
from rackpin.facts_models import ModelFact
from rackpin.fleet import mark as marks
from rackpin.preflight import own_units
from rackpin.stages import STAGES, apt, cuda, fabric
from rackpin.stages.driver import UNITS


def survey(target: Target) -> dict[str, Any]:
    """What the survey is asked with: the way to the head, and the ports that must be free."""
    ports = tuple(sorted(own_units(target.fleet, target.node)))
    return {"head_address": target.fleet.head.address, "ports": ports}


def requests(target: Target) -> list[tuple[Any, dict[str, Any]]]:
    """Every fact that the stages will ask of this node: the survey fetches them in one go."""
    facts: list[tuple[Any, dict[str, Any]]] = [
        (Survey, survey(target)),
        (Users, {"names": (layout.USER,)}),
        (Text, {"path": "/etc/hosts"}),
        (Apt, {"names": apt.names(target)}),
        (FabricFact, {}),
        (IdentityFact, {}),
        (Text, {"path": marks.PATH}),
    ]
    if target.node.gpus:  # one by one: which of them a node has is known after the survey
        facts += [(Units, {"names": (unit,)}) for unit in fabric.UNITS]
    if target.node.is_gateway:
        facts.append((Units, {"names": ("nginx.service",)}))
    if cuda.home(target):
        facts.append((CudaFact, {}))
    if driver.want(target):
        facts += [(Gpu, {}), (Units, {"names": UNITS})]
        # installed one after the other, so asked for apart too
        parts = (driver.kernel_packages(target), driver.driver_packages(target))
        facts += [(Packages, {"names": names}) for names in parts if names]
    facts += [(ModelFact, {"path": path}) for path in target.fleet.models_on(target.node)]
    for stage in STAGES.values():
        wish = target.once(stage)
        if wish.paths:
            facts.append((Paths, {"paths": wish.paths}))
        if wish.packages:
            facts.append((Packages, {"names": wish.packages}))
        if wish.units:
            facts.append((Units, {"names": wish.units}))
    return facts
