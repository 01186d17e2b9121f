"""What an audit takes from a lock, with and without its later layers."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace as Any_
from typing import Any

from rackpin.audit import expect, locked
from rackpin.desired import Target
from rackpin.stack.lock import Lock


def deb(name: str, version: str | None, role: str = "driver") -> Any:
    return Any_(name=name, version=version, role=role)


def layered(lock: Lock) -> Any:
    """A lock with a host below its environment; one OS is resolved, the other isn't."""
    return Any_(
        debs={"debian-12": ["python3", "libnuma1"]},
        packages={
            "debian-12": [
                deb("python3", None, "environment"),
                deb("nvidia-driver", None),
                deb("libnccl2", "2.19.3-1+cuda12.2", "nccl"),
            ]
        },
        debs_closure={
            "debian-12": Any_(debs=[deb("nvidia-driver", "535.129.03-1"), deb("libnuma1", "2.0")]),
            "ubuntu-22.04": Any_(wanted="ubuntu-22.04", unresolved="no repository"),
        },
        host=Any_(
            driver=Any_(version="535.129.03", flavour="closed"),
            kernel=Any_(release="6.1.0-50-amd64"),
        ),
        dists={"torch": "2.3.0", "nvidia-nccl-cu12": "2.19.3"},
        digest="d",
        env_digest="e",
    )


def test_debs_have_versions_where_the_lock_has_them(lock: Lock) -> None:
    made = layered(lock)
    assert locked.debs(made, gpus=True) == {
        "debian-12": {
            "python3": None,
            "libnuma1": "2.0",
            "nvidia-driver": "535.129.03-1",
            "libnccl2": "2.19.3-1+cuda12.2",
        }
    }
    assert locked.debs(made, gpus=False) == {"debian-12": {"python3": None, "libnuma1": "2.0"}}
    assert locked.debs_closure(made)["ubuntu-22.04"] == {}


def test_driver_kernel_and_nccl(lock: Lock) -> None:
    made = layered(lock)
    assert locked.driver(made) == {"version": "535.129.03", "flavour": "closed"}
    assert locked.kernel(made) == "6.1.0-50-amd64"
    assert locked.nccl(made) == {"dist": "nvidia-nccl-cu12", "version": "2.19.3"}
    assert locked.env_digest(made) == "e"


def test_a_stack_without_gpus_has_none_of_it(lock: Lock) -> None:
    assert locked.driver(lock) is None and locked.kernel(lock) is None
    assert locked.nccl(lock) is None
    assert locked.debs(lock, gpus=True)["debian-12"].keys() == {"python3", "libnuma1"}


def test_only_nodes_with_gpus_are_asked_about_them(target: Target, monkeypatch: Any) -> None:
    monkeypatch.setattr(locked, "driver", lambda _: {"version": "1", "flavour": "open"})
    monkeypatch.setattr(locked, "kernel", lambda _: "6.1")
    monkeypatch.setattr(locked, "nccl", lambda _: {"dist": "nvidia-nccl-cu12", "version": "2"})
    head = expect.for_node(target)
    gate = expect.for_node(dataclasses.replace(target, node=target.fleet.nodes["gate1"]))
    assert head.driver and head.kernel == "6.1" and head.engines == ["vllm@two.service"]
    assert gate.driver is None and gate.kernel is None and gate.engines == []
