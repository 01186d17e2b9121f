"""What a stack pins, as flat items that rules can ask for: ``driver`` → ``535.129.03``.

| item | value |
|---|---|
| ``os`` | ``ubuntu-22.04`` |
| ``gpu`` | a generation it is meant for: ``h100`` |
| ``kernel``, ``kernel.compiler`` | ``6.5.0``, ``gcc-12`` |
| ``driver``, ``driver.branch``, ``driver.flavour``, ``driver.source`` | |
| ``fabric_manager``, ``driver.member`` | upstream versions of the locked debs, else the driver's |
| ``cuda``, ``nccl.host``, ``nccl.host.cuda`` | toolkit and NCCL of the host |
| ``nccl.engine``, ``nccl.engine.cuda``, ``nccl.override`` | NCCL of the engine: ``12``, ``yes`` |
| ``engine``, ``engine.cuda`` | distribution; CUDA runtime that its wheels carry |
| ``python``, ``dist.NAME`` | version of a distribution, from the lock, else the pins |
| ``excluded.NAME``, ``env.NAME`` | ``yes``; the variable's value |
| ``dcgm``, ``container_toolkit``, ``rdma``, ``rdma.version``, ``gdrcopy``, ``nccl_tests`` | |
| ``image.cuda``, ``image.os``, ``image.listed`` | of the images, as far as their names say |
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

from rackpin.stack.content import Lock
from rackpin.stack.items import DebClosure
from rackpin.stack.pins import Pins

Facts = dict[str, list[str]]  # an item may have several values, as os has

CODENAMES = {"bookworm": "debian-12", "trixie": "debian-13", "jammy": "ubuntu-22.04",
             "noble": "ubuntu-24.04"}  # fmt: skip
# Driver packages by name; versions follow the driver's. Fabric manager is asked for by itself.
MEMBERS = ("nvidia-driver-*", "nvidia-dkms-*", "nvidia-utils-*", "nvidia-compute-utils-*",
           "nvidia-kernel-*", "libnvidia-*", "nvidia-kernel-dkms")  # fmt: skip
NOT_MEMBERS = ("libnvidia-container*", "libnvidia-egl-*", "nvidia-kernel-support*")
# Debian's nvidia-support packages, of a version of their own.
NOT_DEBIANS = ("nvidia-kernel-common",)


# Items that stand in the pins as they are, and where.
PATHS = {
    "kernel.compiler": "kernel.compiler",
    "driver": "driver.version",
    "driver.branch": "driver.branch",
    "driver.flavour": "driver.flavour",
    "driver.source": "driver.source",
    "cuda": "cuda.version",
    "nccl.host": "nccl.host.version",
    "nccl.host.cuda": "nccl.host.cuda",
    "nccl.engine": "nccl.engine.version",
    "dcgm": "dcgm.upstream",
    "container_toolkit": "container_toolkit.upstream",
    "rdma": "rdma.stack",
    "rdma.version": "rdma.version",
    "gdrcopy": "gdrcopy.version",
    "nccl_tests": "nccl_tests.version",
}


def _upstream(version: str) -> str:
    """A Debian version without epoch and revision."""
    return re.sub(r"^\d+:|-[^-]*$", "", version)


def _of_image(ref: str) -> Facts:
    """What an image's name says: ``nvidia/cuda:12.2.2-base-ubuntu22.04``."""
    name, _, tag = ref.rpartition("/")[2].partition(":")
    found: Facts = {}
    if name == "cuda" and (match := re.match(r"(\d+\.\d+(?:\.\d+)?)-", tag)):
        found["image.cuda"] = [match[1]]
    if match := re.search(r"(debian|ubuntu):?-?(\d+(?:\.\d+)?)", f"{name}:{tag}"):
        found["image.os"] = [f"{match[1]}-{match[2]}"]
    elif name in ("debian", "ubuntu") and (codename := tag.partition("-")[0]) in CODENAMES:
        found["image.os"] = [CODENAMES[codename]]
    return found


def _of_debs(pins: Pins, lock: Lock | None) -> Facts:
    """Versions that the locked debs really have; without them what the pins lead to."""
    if pins.driver is None:
        return {}
    found: Facts = {"driver.member": [], "fabric_manager": []}
    others = (*NOT_MEMBERS, *(NOT_DEBIANS if pins.driver.source == "debian" else ()))
    for closure in lock.debs_closure.values() if lock else ():
        for deb in closure.debs if isinstance(closure, DebClosure) else ():
            if fnmatchcase(deb.name, "nvidia-fabricmanager*"):
                found["fabric_manager"].append(_upstream(deb.version))
            elif any(fnmatchcase(deb.name, p) for p in MEMBERS) and not any(
                fnmatchcase(deb.name, p) for p in others
            ):
                found["driver.member"].append(_upstream(deb.version))
    if pins.driver.fabric_manager and not found["fabric_manager"]:
        found["fabric_manager"].append(pins.driver.version)
    return {item: sorted(set(values)) for item, values in found.items() if values}


def _of_host(pins: Pins) -> Facts:
    found: Facts = {}
    for item, path in PATHS.items():
        value: Any = pins
        for name in path.split("."):
            value = getattr(value, name, None)
        if value is not None:
            found[item] = [value]
    if pins.kernel:
        found["kernel"] = [pins.kernel.release.partition("-")[0]]
    if engine := pins.nccl.engine:
        found["nccl.engine.cuda"] = [engine.distribution.rpartition("cu")[2]]
        found["nccl.override"] = ["yes" if engine.override else "no"]
    return found


def facts_of(pins: Pins, lock: Lock | None) -> Facts:
    """Every item of a stack; ``lock`` (None if there is none that fits) makes it complete."""
    dists = {name: pin.version for name, pin in pins.dists.items()}
    dists[pins.engine.distribution] = pins.engine.version
    if lock:
        dists |= lock.dists
    facts = _of_host(pins)
    facts |= {"os": [os.key for os in pins.os], "python": pins.pythons}
    facts["engine"] = [pins.engine.distribution]
    facts |= {f"dist.{name}": [version] for name, version in dists.items()}
    facts |= {f"excluded.{exclusion.name}": ["yes"] for exclusion in pins.exclude}
    facts |= {f"env.{name}": [value] for name, value in pins.engine_env.items()}
    if pins.gpus:
        facts["gpu"] = list(pins.gpus)
    runtimes = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu13")
    if carried := [dists[name] for name in runtimes if name in dists]:
        facts["engine.cuda"] = carried
    facts |= _of_debs(pins, lock)
    for image in pins.images.values():
        for item, values in _of_image(image.ref).items():
            facts.setdefault(item, []).extend(values)
    if found := facts.get("image.os"):
        facts["image.listed"] = ["yes" if set(found) <= set(facts["os"]) else "no"]
    return facts
