"""Repositories and pins that come from the lock: who gets which, and from where."""

from __future__ import annotations

import dataclasses

import pytest

from rackpin.apt import wanted
from rackpin.desired import Target
from rackpin.inventory_parts import AptPin, AptRepository, BundleConfig
from rackpin.stack.hostpins import DriverPin
from rackpin.stack.items import Deb, DebClosure, Host, Package, Reason, Unresolved
from rackpin.stages import apt as stage

OS = "debian-12"
URL = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"


def deb(name: str, version: str, repository: str) -> Deb:
    return Deb(
        name=name, version=version, architecture="amd64", filename=f"pool/{name}.deb",
        sha256="a" * 64, size=1, repository=repository,
    )  # fmt: skip


def asked(name: str, role: str, repository: str = "os") -> Package:
    return Package(name=name, version=None, role=role, repository=repository)


CLOSURE = DebClosure(
    debs=[
        deb("chrony", "4.3-2", "debian"),
        deb("libssl3", "3.0.22-1", "debian-security"),
        deb("libnccl2", "2.19.3-1+cuda12.2", "nvidia-cuda"),
        deb("libcublas-12-2", "12.2.5.6-1", "nvidia-cuda"),
        deb("nvidia-kernel-dkms", "535.261.03-1", "debian"),
        deb("nvidia-kernel-support", "535.261.03-1", "debian"),
        deb("libibverbs1", "44.0-2", "debian"),
    ]
)


@pytest.fixture
def locked(target: Target) -> Target:
    """The fleet's stack with a closure, without anything apt's in the inventory."""
    driver = DriverPin(version="535.261.03", branch="535", flavour="closed", source="debian")
    lock = target.lock.but(
        host=Host(driver=driver),
        packages={
            OS: [
                asked("chrony", "base"),
                asked("libibverbs1", "image"),
                asked("libnccl2", "nccl", "nvidia"),
                asked("nvidia-kernel-dkms", "driver"),
            ]
        },
        debs_closure={OS: CLOSURE},
    )
    return dataclasses.replace(with_config(target, apt_repositories=[], apt_pins=[]), lock=lock)


def with_config(target: Target, **update: object) -> Target:
    config = target.fleet.config.model_copy(update=update)
    fleet = target.fleet.model_copy(update={"config": config})
    return dataclasses.replace(target, fleet=fleet)


def without_gpus(target: Target) -> Target:
    return dataclasses.replace(target, node=target.fleet.nodes["gate1"])


def names(target: Target) -> list[str]:
    return [pin.name for pin in wanted.pins(target)]


def test_by_name_from_a_vendor_and_the_family_are_pinned_other_libraries_not(
    locked: Target,
) -> None:
    assert names(locked) == [
        "chrony", "libcublas-12-2", "libnccl2", "nvidia-kernel-dkms", "nvidia-kernel-support",
    ]  # fmt: skip
    origins = {pin.name: pin.origin for pin in wanted.pins(locked)}
    assert origins["libcublas-12-2"] == "nvidia-cuda"
    assert origins["chrony"] is None, "the host has the OS's repositories by itself"


def test_a_node_without_gpus_has_no_vendor(locked: Target) -> None:
    gate = without_gpus(locked)
    assert names(gate) == ["chrony"]
    assert wanted.repositories(gate) == []
    assert [r.name for r in wanted.repositories(locked)] == ["nvidia-cuda"]


def test_the_inventory_counts_before_the_lock(locked: Target) -> None:
    mirror = AptRepository(name="nvidia-cuda", uri="http://mirror/x", suite="/", trusted=True)
    own = with_config(
        locked, apt_repositories=[mirror], apt_pins=[AptPin(name="chrony", version="4.5-1")]
    )
    assert [r.uri for r in wanted.repositories(own)] == ["http://mirror/x"]
    assert {pin.name: pin.version for pin in wanted.pins(own)}["chrony"] == "4.5-1"
    assert wanted.missing_keys(own) == []


def test_a_vendors_key_that_is_not_here_is_said(locked: Target) -> None:
    (repository,) = wanted.repositories(locked)
    assert repository.uri == URL and not repository.trusted
    (missing,) = wanted.missing_keys(locked)
    assert "nvidia-cuda.asc is not there" in missing
    assert wanted.missing_keys(without_gpus(locked)) == []


def test_a_bundle_is_the_only_place(locked: Target) -> None:
    offline = with_config(locked, bundle=BundleConfig(url="http://10.9.0.1:8901/", trusted=True))
    found = {r.name: r for r in wanted.repositories(offline)}
    assert sorted(found) == ["debian", "debian-security", "nvidia-cuda"]
    assert found["debian"].uri == "http://10.9.0.1:8901/debs/debian-12/debian"
    assert all(r.trusted and r.flat for r in found.values())
    assert {pin.origin for pin in wanted.pins(offline)} == {"debian", "nvidia-cuda"}
    assert wanted.missing_keys(offline) == []
    files = {file.path: file.content for file in stage.desired(offline).files}
    assert "/etc/apt/rackpin.d/rackpin-debian.sources" in files
    last = "/etc/apt/apt.conf.d/92-rackpin-sources"
    assert list(files)[-1] == last and 'sourcelist "/dev/null"' in files[last]


def test_without_a_closure_nothing_is_pinned_and_it_says_why(locked: Target) -> None:
    why = Unresolved(wanted=OS, unresolved=Reason(reason="no answer from x"))
    bare = dataclasses.replace(locked, lock=locked.lock.but(debs_closure={OS: why}))
    assert wanted.pins(bare) == [] and "no answer from x" in wanted.unpinned(bare)
    assert wanted.unpinned(locked) == ""
