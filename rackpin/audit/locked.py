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


def debs(lock: Lock) -> dict[str, Versions]:
    """Packages that must be there, by OS key: the stack's list, with versions where locked."""
    closure: dict[str, Versions] = debs_closure(lock)
    return {
        key: {name: closure.get(key, {}).get(name) for name in names}
        for key, names in lock.debs.items()
    }


def debs_closure(lock: Lock) -> dict[str, Versions]:
    """Every package of the resolved closures, by OS key; empty for a lock without any."""
    closures: dict[str, Any] = getattr(lock, "debs_closure", None) or {}
    return {key: {deb.name: deb.version for deb in items} for key, items in closures.items()}


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
    pin = getattr(lock, "driver", None)
    return {"version": pin.version, "flavour": pin.flavour} if pin else None


def kernel(lock: Lock) -> str | None:
    """The kernel release (``uname -r``) that the lock names."""
    found: str | None = getattr(lock, "kernel", None)
    return found
