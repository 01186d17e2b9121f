"""How a container of the image is run for one engine of the inventory."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rackpin import layout
from rackpin.image.engine import ImageError
from rackpin.inventory import Fleet, Instance
from rackpin.skus import load_sku
from rackpin.stages import serve
from rackpin.stages.base import data, own_env

NOT_ONE_NODE = ("RAY_ADDRESS",)  # only engines over several nodes have a Ray to join


def has_gpu(sku: str) -> bool:
    gpus = load_sku(sku).gpus
    return gpus.count > 0 and gpus.model != "none"


def flags(fleet: Fleet, instance: Instance, gpu: bool, rdma: bool) -> list[list[str]]:
    """``docker run`` options of rackpin/data/image.yaml, filled, as words."""
    limits = fleet.config.limits
    table = data("image.yaml")
    values = {
        "memlock": _ulimit(limits.memlock, limits.observed_memlock_min),
        "nofile": _ulimit(limits.nofile, limits.observed_nofile_min),
        "tasks": "-1" if limits.tasks_max == "infinity" else str(limits.tasks_max),
        "shm": f"{table['shm_gib_per_rank'] * instance.tp * instance.pp}g",
        "stop": str(instance.stop_timeout_s),
    }
    has: dict[str | None, bool] = {None: True, "gpu": gpu, "rdma": rdma}
    rows: list[dict[str, Any]] = [row for row in table["run"] if has[row.get("needs")]]
    return [row["flags"].format(**values).split(" ") for row in rows]


def _ulimit(wanted: int | str, observed: int | str | None) -> str:
    """Docker refuses to start a container whose limit the host itself can't give."""
    value = observed if observed is not None else wanted
    return "-1" if value == "infinity" else str(value)


def words(fleet: Fleet, instance: Instance, tag: str, rdma: bool | None = None) -> list[list[str]]:
    """The whole command in groups of words, one group a line; no secret is in it.

    ``rdma`` None: where there is a GPU. Raises :class:`ImageError` for an engine that one
    container can't be.
    """
    if len(instance.nodes) > 1:
        raise ImageError(
            f"engine {instance.name} is over {len(instance.nodes)} nodes, and one container is on "
            "one: serve it by its unit (deploys/serve.py), or give it one node in the inventory"
        )
    node = fleet.nodes[instance.nodes[0]]
    gpu = has_gpu(node.sku)
    env = own_env(fleet, node) | instance.env
    env = {key: value for key, value in env.items() if key not in NOT_ONE_NODE}
    env["RACKPIN_URL"] = f"http://{node.address}:{instance.port}"  # whom the health check asks
    model = instance.model
    return [
        ["docker", "run", "--detach", "--name", f"vllm-{instance.name}"],
        *flags(fleet, instance, gpu, gpu if rdma is None else rdma),
        ["--mount", f"type=bind,src={model},dst={model},readonly"],
        # The API key: in no argument, no image and no log; whoever may ask Docker is root anyway.
        ["--env-file", f"{layout.INSTANCE_DIR}/{instance.name}.env"],
        *[["--env", f"{key}={value}"] for key, value in sorted(env.items())],
        [tag],
        *[[word] for word in serve.plain_arguments(instance, node.address)],
    ]


def text(groups: list[list[str]]) -> str:
    """The command as a shell reads it, one group a line."""
    return " \\\n  ".join(shlex.join(group) for group in groups)


def pick(fleet: Fleet, stack: str, names: tuple[str, ...], inventory: Path) -> list[Instance]:
    """Engines by name, all when none is named; :class:`ImageError` names what doesn't fit."""
    if fleet.config.stack != stack:
        raise ImageError(
            f"{inventory}: its stack is {fleet.config.stack}, not {stack}; name that one"
        )
    known = {i.name: i for i in fleet.config.instances}
    if unknown := [name for name in names if name not in known]:
        raise ImageError(
            f"{inventory}: no engine {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    return [known[name] for name in names] if names else list(known.values())
