"""Which packages carry the pins of a host, and under which versions."""

from typing import Any

import pytest

from rackpin.stack.items import Package
from rackpin.stack.lock import load_stack
from rackpin.stack.model import StackError
from rackpin.stack.packages import host_of, packages_of
from rackpin.stack.pins import Pins

BASE: dict[str, Any] = {
    "name": "tiny",
    "summary": "a stack for tests",
    "os": [{"id": "ubuntu", "version": "22.04"}, {"id": "debian", "version": "12"}],
    "python": "3.10",
    "engine": {"distribution": "alpha", "version": "1.0", "module": "alpha"},
    "dists": {},
    "uv": "1.0",
    "debs": {"ubuntu-22.04": ["python3"], "debian-12": []},
}


def driver(version: str, flavour: str, source: str, **more: Any) -> dict[str, Any]:
    branch = version.partition(".")[0]
    return {"version": version, "branch": branch, "flavour": flavour, "source": source, **more}


def packages(os: int = 0, **pins: Any) -> dict[str, Package]:
    found = Pins.model_validate({**BASE, **pins})
    return {p.name: p for p in packages_of(found, found.os[os])}


@pytest.mark.parametrize(
    ("pin", "versions"),
    [
        (
            driver("535.129.03", "closed", "nvidia", fabric_manager=True),
            {"nvidia-driver-535": "535.129.03-0ubuntu1",
             "nvidia-fabricmanager-535": "535.129.03-1"},
        ),
        (  # a revision that nobody has told: the driver's version is what is pinned
            driver("535.309.01", "closed", "nvidia", fabric_manager=True),
            {"nvidia-driver-535": None, "nvidia-fabricmanager-535": "535.309.01-1"},
        ),
        (
            driver("580.178.04", "open", "ubuntu", fabric_manager=True),
            {"nvidia-driver-580-server-open": None, "nvidia-fabricmanager-580": None},
        ),
        (
            driver("580.178.04", "closed", "ubuntu"),
            {"nvidia-driver-580-server": None},
        ),
        (
            driver("595.71.05", "open", "nvidia", fabric_manager=True),
            {"nvidia-open": None, "nvidia-fabricmanager": None},
        ),
        (
            driver("580.159.04", "open", "nvidia",
                   revisions=[{"packages": "nvidia-*", "revision": "-1ubuntu1"}]),
            {"nvidia-driver-580-open": "580.159.04-1ubuntu1"},
        ),
        (
            driver("535.261.03", "closed", "debian"),
            {"nvidia-kernel-dkms": None, "nvidia-smi": None, "libcuda1": None,
             "nvidia-persistenced": None},
        ),
    ],
)  # fmt: skip
def test_driver_packages(pin: dict[str, Any], versions: dict[str, str | None]) -> None:
    found = packages(driver=pin)
    parts = {n: p.version for n, p in found.items() if p.role in ("driver", "fabric_manager")}
    assert parts == versions
    assert {found[n].repository for n in versions} == {
        "nvidia" if pin["source"] == "nvidia" else "os"
    }


def test_debian_has_no_fabric_manager() -> None:
    with pytest.raises(StackError, match=r"no fabric manager packages known for 535.261.03 closed"):
        packages(1, driver=driver("535.261.03", "closed", "debian", fabric_manager=True))


def test_the_rest_of_a_host() -> None:
    found = packages(
        driver=driver("535.129.03", "closed", "nvidia"),
        kernel={"release": "6.5.0-45-generic", "compiler": "gcc-12"},
        cuda={"version": "12.2.2"},
        nccl={"host": {"version": "2.19.3", "cuda": "12.2"}},
        dcgm={"version": "1:3.3.6"},
        container_toolkit={"version": "1.19.1-1"},
        rdma={"stack": "inbox"},
    )
    versions = {name: package.version for name, package in found.items()}
    assert versions["cuda-toolkit-12-2"] == "12.2.2-1"
    assert versions["libnccl2"] == versions["libnccl-dev"] == "2.19.3-1+cuda12.2"
    assert versions["datacenter-gpu-manager"] == "1:3.3.6"
    assert versions["libnvidia-container1"] == "1.19.1-1"
    assert versions["linux-modules-extra-6.5.0-45-generic"] is None
    assert found["gcc-12"].role == "kernel"
    assert found["rdma-core"].repository == "os"
    assert found["openmpi-bin"].role == found["libopenmpi-dev"].role == "mpi"
    assert found["python3"].role == "environment"
    assert not {"cuda", "cuda-12-2", "cuda-drivers"} & set(found), "they bring a newer driver"


def test_without_a_network_there_is_no_mpi() -> None:
    assert not [p for p in packages().values() if p.role == "mpi"]
    locks = {name: load_stack(name).lock for name in ("cpu-lab", "debian12-r535")}
    roles = {name: {p.role for p in lock.packages["debian-12"]} for name, lock in locks.items()}
    assert "mpi" not in roles["cpu-lab"] and "mpi" in roles["debian12-r535"]
    debs = {deb.name for deb in locks["debian12-r535"].require_debs("debian-12").debs}
    assert {"libopenmpi-dev", "openmpi-bin", "libopenmpi3"} <= debs


def test_newer_majors_have_other_names() -> None:
    found = packages(
        driver=driver("580.178.04", "open", "ubuntu"),
        cuda={"version": "13.0.3"},
        dcgm={"version": "1:4.5.2-1"},
        rdma={"stack": "doca", "version": "3.2.1"},
    )
    assert found["datacenter-gpu-manager-4-cuda13"].version == "1:4.5.2-1"
    assert (found["doca-ofed"].version, found["doca-ofed"].repository) == ("3.2.1", "doca")
    assert "rdma-core" not in found


def test_fabric_manager_is_the_drivers() -> None:
    pins = Pins.model_validate(
        {**BASE, "driver": driver("535.129.03", "closed", "nvidia", fabric_manager=True)}
    )
    assert host_of(pins).fabric_manager == "535.129.03"
    assert host_of(Pins.model_validate(BASE)).model_dump(exclude_none=True) == {"nccl": {}}
