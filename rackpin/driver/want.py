"""What lock and inventory ask of a node's driver. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackpin.apt import wanted
from rackpin.debs.families import load_family
from rackpin.debs.host import Driver
from rackpin.desired import Target
from rackpin.driver.table import table

KERNEL_ROLES = ("kernel",)
DRIVER_ROLES = ("driver", "fabric_manager")


@dataclass(frozen=True)
class Want:
    """The driver of one node. ``kernel`` and ``compiler`` are "" where the stack pins none."""

    version: str
    flavour: str
    source: str
    kernel: str = ""
    compiler: str = ""
    fabric_manager: bool = False  # the stack has one
    nvswitch: bool = False  # the node needs one
    gpus: int = 0
    reboot: str = "idle"
    options: Mapping[str, str] = field(default_factory=dict)  # with NVreg_ in their names

    @property
    def module(self) -> str:
        """DKMS's name of the module, with which its files begin."""
        return str(table()["module"][self.source][self.flavour])

    @property
    def parts(self) -> list[str]:
        """The module files that must be there for a kernel."""
        return [f"{self.module}{part}" for part in table()["parts"]]


def want(target: Target) -> Want | None:
    """None where the stack has no driver or the inventory says that the node has no GPU."""
    pin, node = target.lock.host.driver, target.node
    if pin is None or not node.gpus:
        return None
    kernel = target.lock.host.kernel
    return Want(
        version=pin.version,
        flavour=pin.flavour,
        source=pin.source,
        kernel=kernel.release if kernel else "",
        compiler=kernel.compiler if kernel else "",
        fabric_manager=pin.fabric_manager,
        nvswitch=node.nvswitch,
        gpus=node.gpus,
        reboot=node.reboot,
        options={key: str(value) for key, value in sorted(node.nvidia_options.items())},
    )


def kernel_packages(target: Target) -> tuple[str, ...]:
    """Kernel, headers and compiler by name."""
    return _by_role(target, KERNEL_ROLES)


def driver_packages(target: Target) -> tuple[str, ...]:
    """The driver's whole closure by name, so that all of it is one version and held.

    Fabric manager is among them only for a node with NVSwitches.
    """
    asked = _by_role(target, DRIVER_ROLES)
    pin = target.lock.host.driver
    if pin is None or not asked:
        return ()
    origin = "nvidia" if pin.source == "nvidia" else wanted.SYSTEM
    family = load_family(Driver(pin.version, origin).family_name(target.os_key), pin.version)
    members = [deb.name for deb in wanted.locked(target) if family.has(deb.name)]
    managers = fabric_packages(target)
    left_out = set() if target.node.nvswitch else set(managers)
    return tuple(sorted({*asked, *members} - left_out))


def fabric_packages(target: Target) -> tuple[str, ...]:
    """Fabric manager's packages of the stack, whether the node needs them or not."""
    return _by_role(target, ("fabric_manager",))


def versions(target: Target) -> dict[str, str]:
    """The pinned version of each package."""
    return {pin.name: pin.version for pin in wanted.pins(target)}


def upstream(version: str) -> str:
    """``535.129.03`` of ``1:535.129.03-0ubuntu1``."""
    return re.sub(r"^\d+:|-[^-]*$", "", version)


def _by_role(target: Target, roles: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(p.name for p in wanted.packages(target) if p.role in roles)
