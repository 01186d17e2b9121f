"""cuda: the toolkit at its pin, without its driver, and where programs find it."""

from __future__ import annotations

from rackpin.desired import Desired, Target, owned, pending_mark
from rackpin.facts_cuda import Cuda

PROFILE = "/etc/profile.d/90-rackpin-cuda.sh"
LINKER = "/etc/ld.so.conf.d/990-rackpin-cuda.conf"
PATHS = (PROFILE, LINKER, pending_mark("ldconfig"))
LINK = "/usr/local/cuda"


def home(target: Target) -> str:
    """``/usr/local/cuda-12.2``; empty where the lock has no toolkit for this node."""
    pin = target.lock.host.cuda
    return f"{LINK}-{pin.minor}" if pin and target.node.gpus else ""


def packages(target: Target) -> tuple[str, ...]:
    every = target.lock.packages.get(target.os_key, [])
    return tuple(item.name for item in every if item.role == "cuda" and target.node.gpus)


def desired(target: Target) -> Desired:
    place, names = home(target), packages(target)
    if not place:
        return Desired()
    if target.fabric is None:
        return Desired(packages=names, foreign=PATHS)
    if not target.fabric.gpus:
        return Desired(foreign=PATHS)
    files = (
        owned("etc/profile.d/90-rackpin-cuda.sh.j2", values={"home": place}),
        owned(
            "etc/ld.so.conf.d/990-rackpin-cuda.conf.j2",
            values={"home": place},
            triggers=("ldconfig",),
        ),
    )
    return Desired(files=files, packages=names, foreign=PATHS)


def wants_compat(target: Target) -> bool:
    """Does the lock itself bring a libcuda that is newer than the driver's?"""
    every = target.lock.packages.get(target.os_key, [])
    return any(item.name.startswith("cuda-compat") for item in every)


def notes(target: Target, found: Cuda) -> list[str]:
    said = [
        f"LD_LIBRARY_PATH has a compat directory in {line.partition(':')[0]}: its libcuda comes "
        "before the driver's; take it out"
        for line in found.environment
    ]
    others = [place for place in found.toolkits if place != home(target)]
    if others:
        said.append(f"further toolkits, which nothing of rackpin uses: {', '.join(others)}")
    return said
