"""What an audit takes from a lock, with and without a host's layers in it."""

from __future__ import annotations

import dataclasses

import pytest

from rackpin.audit import expect, locked
from rackpin.desired import Target
from rackpin.inventory_parts import AptPin
from rackpin.stack.hostpins import DriverPin, KernelPin
from rackpin.stack.items import Deb, DebClosure, Host, Package, Reason, Unresolved
from rackpin.stack.lock import Lock

OS = "debian-12"


def deb(name: str, version: str) -> Deb:
    return Deb(
        name=name, version=version, architecture="amd64", filename=f"{name}.deb",
        sha256="0" * 64, size=1, repository="os",
    )  # fmt: skip


@pytest.fixture
def layered(lock: Lock) -> Lock:
    """The lab's lock with a driver below it, its packages resolved."""
    nccl = lock.wheels[0].model_copy(update={"name": "nvidia-nccl-cu12", "version": "2.19.3"})
    return Lock(
        **{
            **{name: getattr(lock, name) for name in Lock.model_fields},
            "host": Host(
                kernel=KernelPin(release="6.1.0-50-amd64", compiler="gcc-12"),
                driver=DriverPin(
                    version="535.129.03", branch="535", flavour="closed", source="nvidia"
                ),
            ),
            "packages": {
                OS: [
                    Package(name="python3", version=None, role="environment", repository="os"),
                    Package(name="nvidia-driver", version=None, role="driver", repository="nvidia"),
                    Package(name="libnccl2", version="2.19.3-1", role="nccl", repository="nvidia"),
                ]
            },
            "debs_closure": {
                OS: DebClosure(
                    debs=[
                        deb("cuda-cudart-12-2", "12.2.140-1"),
                        deb("libnuma1", "2.0.16-1"),
                        deb("libnvidia-ml1", "535.129.03-1"),
                        deb("nvidia-driver", "535.129.03-1"),
                    ]
                )
            },
            "wheels": [*lock.wheels, nccl],
        }
    )


def unresolved(lock: Lock) -> Lock:
    reason = Reason(reason="no repository could be reached")
    return lock.model_copy(update={"debs_closure": {OS: Unresolved(wanted=OS, unresolved=reason)}})


def test_debs_have_versions_where_the_lock_has_them(layered: Lock) -> None:
    environment = {"python3": None}
    assert locked.debs(layered, gpus=False) == {OS: environment}
    assert locked.debs(layered, gpus=True) == {
        OS: {**environment, "nvidia-driver": "535.129.03-1", "libnccl2": "2.19.3-1"}
    }
    assert locked.debs_closure(unresolved(layered)) == {}


def test_driver_kernel_and_nccl(layered: Lock, lock: Lock) -> None:
    assert locked.driver(layered) == {"version": "535.129.03", "flavour": "closed"}
    assert locked.kernel(layered) == "6.1.0-50-amd64"
    assert locked.nccl(layered) == {"dist": "nvidia-nccl-cu12", "version": "2.19.3"}
    assert (locked.driver(lock), locked.kernel(lock), locked.nccl(lock)) == (None, None, None)


def test_only_nodes_with_gpus_are_asked_about_them(target: Target, layered: Lock) -> None:
    target = dataclasses.replace(target, lock=layered)
    head = expect.for_node(target)
    gate = expect.for_node(dataclasses.replace(target, node=target.fleet.nodes["gate1"]))
    assert head.driver and head.kernel and head.engines == ["vllm@two.service"]
    assert gate.driver is None and gate.kernel is None and gate.engines == []
    assert "nvidia-driver" in head.debs[OS] and "nvidia-driver" not in gate.debs[OS]
    assert head.environment.digest == layered.env_digest != layered.digest


def test_strangers_can_be_told_where_the_closure_is_known(target: Target, layered: Lock) -> None:
    for lock, known in ((layered, [OS]), (unresolved(layered), []), (target.lock, [OS])):
        wish = expect.for_node(dataclasses.replace(target, lock=lock))
        assert wish.family_known == known


def test_an_image_has_no_driver(layered: Lock) -> None:
    wish = expect.for_image(layered, "x")
    assert set(wish.debs_known[OS]) == {"cuda-cudart-12-2", "libnuma1"}
    rdma = dict.fromkeys(["libibverbs1", "ibverbs-providers", "librdmacm1"])
    assert wish.debs == {OS: {"python3": None, **rdma}}
    assert wish.driver is None and wish.units == [] and wish.files == []


def test_pins_are_held_and_compared(target: Target) -> None:
    pins = [AptPin(name="libcuda1", version="535.129.03-1")]
    config = target.fleet.config.model_copy(update={"apt_pins": pins})
    fleet = target.fleet.model_copy(update={"config": config})
    wish = expect.for_node(dataclasses.replace(target, fleet=fleet))
    assert wish.holds == {OS: ["libcuda1"]}
    assert wish.candidates == {OS: {"libcuda1": "535.129.03-1"}}
    assert wish.debs_known[OS]["libcuda1"] == "535.129.03-1"
    assert "libcuda1" not in wish.debs[OS], "a pin installs nothing"
