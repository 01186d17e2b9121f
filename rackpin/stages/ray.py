"""ray: head and worker units, their gate, and the environment they share with the engines."""

from __future__ import annotations

from rackpin import layout
from rackpin.desired import Desired, Target, owned
from rackpin.stages import cards
from rackpin.stages.base import node_env


def unit_name(target: Target) -> str:
    return layout.RAY_HEAD_UNIT if target.node.is_head else layout.RAY_WORKER_UNIT


def desired(target: Target) -> Desired:
    fleet, node = target.fleet, target.node
    if not fleet.in_ray(node):
        return Desired()
    unit = unit_name(target)
    ray = fleet.config.ray
    # Ray's workers inherit it; an engine of 0.4.2 passes hardly a variable on to them.
    engine_env = target.lock.engine_environment(layout.CURRENT)
    env = engine_env | node_env(fleet, node, target.interface)
    return Desired(
        files=(
            owned("etc/rackpin/node.env.j2", values={"env": env}),
            owned("usr/local/lib/rackpin/node-gate.j2", mode="755"),
            *cards.files(node),
            owned(
                "etc/systemd/system/ray-ROLE.service.j2",
                path=f"/etc/systemd/system/{unit}",
                values={
                    "role": "head" if node.is_head else "worker",
                    "fleet": fleet.config.fleet,
                    "user": layout.USER,
                    "state": layout.STATE,
                    "etc": layout.ETC,
                    "lib": layout.LIB,
                    "current": layout.CURRENT,
                    "python": layout.PYTHON,
                    "address": node.address,
                    "head_address": fleet.head.address,
                    "num_gpus": fleet.ray_gpus(node),
                    "cards_gate": cards.gate(node, ray.wait_head_s),
                    "ray": ray,
                    "ports": ray.ports,
                    "limits": fleet.config.limits,
                },
                triggers=("daemon-reload",),
            ),
        ),
        units=(unit,),
    )
