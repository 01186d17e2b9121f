"""serve: one ``vllm@NAME`` unit per instance, on the first of its nodes."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from rackpin import layout
from rackpin.desired import Desired, OwnedDir, OwnedFile, Target, owned
from rackpin.inventory import Instance
from rackpin.stack.lock import Lock
from rackpin.stack.placed import PlacedModel, model_of, models_at
from rackpin.stages import cards, ray

# vLLM hands its environment to its Ray workers on other nodes, except these names: a secret, and
# what every node finds out about its own adapters.
OF_ONE_NODE = (
    "GLOO_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",
    "NCCL_IB_GID_INDEX",
    "NCCL_IB_HCA",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_SOCKET_IFNAME",
)
NOT_CARRIED = json.dumps(["VLLM_API_KEY", "Owned by rackpin", *OF_ONE_NODE]) + "\n"


def plain_arguments(instance: Instance, address: str) -> list[str]:
    """The engine's command line after the module, one word an item. No secret is ever here."""
    given = [
        f"--model={instance.model}",
        f"--served-model-name={instance.served_name}",
        f"--host={address}",
        f"--port={instance.port}",
        f"--tensor-parallel-size={instance.tp}",
        f"--pipeline-parallel-size={instance.pp}",
        f"--gpu-memory-utilization={instance.gpu_memory_utilization:g}",
    ]
    if instance.max_model_len:
        given.append(f"--max-model-len={instance.max_model_len}")
    if instance.executor == "ray":
        given.append("--distributed-executor-backend=ray")
    return given + list(instance.args)


def arguments(instance: Instance, address: str) -> list[str]:
    """The same words as a unit file takes them; only what a person wrote can need quotes."""
    words = plain_arguments(instance, address)
    own = len(words) - len(instance.args)
    return words[:own] + [systemd_quote(argument) for argument in words[own:]]


def systemd_quote(text: str) -> str:
    """One word of an ``ExecStart`` line: specifiers and variables taken literally."""
    text = text.replace("%", "%%").replace("$", "$$")
    if any(c in text for c in " \t'\"\\;"):
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return text


def placed(target: Target) -> list[PlacedModel]:
    """The stack's models that this node gets, for all engines with ranks on it."""
    return models_at(target.lock, target.fleet.models_on(target.node))


def run_file(instance: Instance, address: str, lock: Lock) -> str:
    """What the gate and the readiness probe need to know. Not secret."""
    wanted = {
        "address": address,
        "port": instance.port,
        "model": instance.model,
        "served_name": instance.served_name,
        "executor": instance.executor,
        "tp": instance.tp,
        "pp": instance.pp,
        "wait_s": instance.wait_s,
        "start_timeout_s": instance.start_timeout_s,
    }
    if instance.model_pin:  # the mark of its files, which the gate waits for
        model = model_of(lock, instance.model_pin, instance.model)
        wanted["model_mark"] = [model.mark, model.digest]
    return json.dumps({"_owned": "Owned by rackpin", **wanted}, indent=1) + "\n"


@cache
def common_files() -> tuple[OwnedFile, ...]:
    """What every engine needs, whichever instance it is."""
    return (
        OwnedFile(f"{layout.XDG_CONFIG}/vllm/ray_non_carry_over_env_vars.json", NOT_CARRIED),
        owned("usr/local/lib/rackpin/vllm-gate.j2", mode="755"),
        owned("usr/local/lib/rackpin/vllm-ready.j2", mode="755"),
    )


def desired(target: Target) -> Desired:
    fleet, node = target.fleet, target.node
    instances = fleet.instances_on(node)
    if not instances:
        return Desired()
    files = list(common_files())
    if not fleet.in_ray(node):  # else Ray's stage has put it there
        files += cards.files(node)
    for instance in instances:
        base = f"{layout.INSTANCE_DIR}/{instance.name}"
        key = Path(instance.api_key_file).expanduser().read_text().strip()
        files += [
            OwnedFile(f"{base}.json", run_file(instance, node.address, target.lock)),
            OwnedFile(
                f"{base}.env",
                f"# Owned by rackpin; secret, mode 0600\nVLLM_API_KEY={key}\n",
                mode="600",
                secret=True,
            ),
            owned(
                "etc/systemd/system/vllm@INSTANCE.service.j2",
                path=f"/etc/systemd/system/{layout.vllm_unit(instance.name)}",
                values={
                    "instance": instance,
                    "arguments": arguments(instance, node.address),
                    "cards_gate": cards.gate(node, instance.wait_s),
                    "ray_unit": ray.unit_name(target) if instance.executor == "ray" else "",
                    "user": layout.USER,
                    "state": layout.STATE,
                    "etc": layout.ETC,
                    "lib": layout.LIB,
                    "instance_dir": layout.INSTANCE_DIR,
                    "python": layout.PYTHON,
                    "limits": fleet.config.limits,
                    "env": {k: systemd_env(v) for k, v in instance.env.items()},
                },
                triggers=("daemon-reload",),
            ),
        ]
    return Desired(
        files=tuple(files),
        directories=(OwnedDir(layout.INSTANCE_DIR),),
        units=tuple(layout.vllm_unit(i.name) for i in instances),
    )


def systemd_env(value: str) -> str:
    """A value inside ``Environment="KEY=…"``."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
