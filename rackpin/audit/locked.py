"""What lock and inventory say that an audit can compare; later layers of a lock are optional."""

from __future__ import annotations

from typing import Any

from rackpin.inventory import Fleet
from rackpin.stack.lock import Lock

# Distributions that bring libnccl.so.2, by CUDA generation.
NCCL_PREFIX = "nvidia-nccl-"
# Packages of a driver branch and its toolkit: none of them comes from anywhere but the lock.
DRIVER_FAMILY = (
    r"nvidia-",
    r"libnvidia-",
    r"libcuda",
    r"cuda-",
    r"cuda$",
    r"xserver-xorg-video-nvidia",
    r"firmware-nvidia",
    r"linux-(modules|objects|signatures|image)-nvidia",
)

Versions = dict[str, str | None]  # package -> version, None: the lock names none


def env_digest(lock: Lock) -> str:
    """What ``.complete`` of the lock's environment says."""
    found: str = getattr(lock, "env_digest", lock.digest)
    return found


def debs(lock: Lock, gpus: bool) -> dict[str, Versions]:
    """Packages that must be there, by OS key. ``gpus``: with those of driver and network.

    A version that the lock's list leaves open is the one of the resolved closure.
    """
    found: dict[str, Versions] = {key: dict.fromkeys(names) for key, names in lock.debs.items()}
    packages: dict[str, Any] = getattr(lock, "packages", {})
    for key, items in packages.items():
        wanted = [item for item in items if gpus or item.role == "environment"]
        found.setdefault(key, {}).update({item.name: item.version for item in wanted})
    closures = debs_closure(lock)
    return {
        key: {name: version or closures.get(key, {}).get(name) for name, version in table.items()}
        for key, table in found.items()
    }


def debs_closure(lock: Lock) -> dict[str, Versions]:
    """Every package of the closures by OS key; one that isn't resolved has none."""
    closures: dict[str, Any] = getattr(lock, "debs_closure", {})
    return {
        key: {deb.name: deb.version for deb in getattr(closure, "debs", ())}
        for key, closure in closures.items()
    }


def apt_pins(fleet: Fleet) -> dict[str, str]:
    """Packages that are pinned and held on every node."""
    return {pin.name: pin.version for pin in getattr(fleet.config, "apt_pins", ())}


def nccl(lock: Lock) -> dict[str, str] | None:
    """The NCCL that engines must load: distribution and version."""
    for name, version in sorted(lock.dists.items()):
        if name.startswith(NCCL_PREFIX):
            return {"dist": name, "version": version}
    return None


def driver(lock: Lock) -> dict[str, str] | None:
    """Version and flavour (``open`` or ``closed``) of the kernel module, for nodes with GPUs."""
    pin = getattr(getattr(lock, "host", None), "driver", None)
    return {"version": pin.version, "flavour": pin.flavour} if pin else None


def kernel(lock: Lock) -> str | None:
    """The kernel release, as ``uname -r`` says it, that the lock names for nodes with GPUs."""
    pin = getattr(getattr(lock, "host", None), "kernel", None)
    return str(pin.release) if pin else None
