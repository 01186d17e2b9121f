"""What lock and inventory say that an audit can compare."""

from __future__ import annotations

import re

from rackpin.stack.items import DebClosure
from rackpin.stack.lock import Lock
from rackpin.stack.packages import image_names

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

# Those of them that come from the host's driver; in an image they would stand in its way.
OF_THE_DRIVER = re.compile(
    r"(lib)?nvidia-(?!container)|libcuda1|xserver-xorg-video-nvidia|firmware-nvidia|linux-"
)

Versions = dict[str, str | None]  # package -> version, None: the lock names none


def debs(lock: Lock, gpus: bool, image: bool = False, nvswitch: bool = True) -> dict[str, Versions]:
    """Packages that must be there, by OS key. ``gpus``: with those of driver and network.

    Fabric manager is only for nodes with NVSwitches.

    A version that the lock's list leaves open is the one of the resolved closure.
    """
    found: dict[str, Versions] = {}
    for key, items in lock.packages.items():
        roles = {"environment"} if image else {"environment", "base"}
        # what a gateway needs is in its stage's wish
        apart = {"image", "gateway"} if nvswitch else {"image", "gateway", "fabric_manager"}
        wanted = [i for i in items if i.role in roles or (gpus and i.role not in apart)]
        found[key] = {item.name: item.version for item in wanted}
        if image:
            found[key] |= dict.fromkeys(image_names(key))
    closures = debs_closure(lock)
    return {
        key: {name: version or closures.get(key, {}).get(name) for name, version in table.items()}
        for key, table in found.items()
    }


def debs_closure(lock: Lock) -> dict[str, Versions]:
    """Every package of the closures by OS key; one that isn't resolved has none."""
    return {
        key: {deb.name: deb.version for deb in closure.debs}
        for key, closure in lock.debs_closure.items()
        if isinstance(closure, DebClosure)
    }


def family_known(lock: Lock, required: Versions, os_key: str) -> bool:
    """Whether every package of the driver family that may be there is known by name.

    It isn't where the lock wants some of them and what they pull in was never resolved.
    """
    resolved = isinstance(lock.debs_closure.get(os_key), DebClosure)
    return resolved or not any(re.match("|".join(DRIVER_FAMILY), name) for name in required)


def nccl(lock: Lock) -> dict[str, str] | None:
    """The NCCL that engines must load: distribution and version."""
    for name, version in sorted(lock.dists.items()):
        if name.startswith(NCCL_PREFIX):
            return {"dist": name, "version": version}
    return None


def driver(lock: Lock) -> dict[str, str] | None:
    """Version and flavour (``open`` or ``closed``) of the kernel module, for nodes with GPUs."""
    pin = lock.host.driver
    return {"version": pin.version, "flavour": pin.flavour} if pin else None


def kernel(lock: Lock) -> str | None:
    """The kernel release, as ``uname -r`` says it, that the lock names for nodes with GPUs."""
    return lock.host.kernel.release if lock.host.kernel else None


def in_image(closure: Versions) -> Versions:
    """A closure without what only a host may have."""
    return {name: v for name, v in closure.items() if not OF_THE_DRIVER.match(name)}
