"""What a node says of its cards, adapters and kernel, as plain data; and how near two devices are.

All of it comes from /sys and /proc, so it needs neither a driver nor a tool on the node.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

BARE_METAL = "none"  # what systemd-detect-virt says there


class Near(IntEnum):
    """What lies between two PCI devices, nearest first; the names are NCCL's."""

    PIX = 0  # at most one PCIe switch
    PXB = 1  # several switches, no CPU
    PHB = 2  # a CPU's host bridge, same NUMA node
    SYS = 3  # from one CPU to the other


@dataclass(frozen=True)
class Device:
    """A PCI device. ``path``: host bridge first, itself last; ``numa`` None where unknown."""

    slot: str  # 0000:1b:00.0; empty for a device that is on no PCI bus
    path: tuple[str, ...] = ()
    numa: int | None = None


@dataclass(frozen=True)
class Gpu(Device):
    iommu: str = ""  # type of its IOMMU group: identity, DMA, DMA-FQ; empty without an IOMMU


@dataclass(frozen=True)
class Gid:
    index: int
    gid: str
    version: str  # "v1" or "v2"
    netdev: str = ""

    @property
    def ipv4(self) -> bool:
        return self.gid.lower().startswith("0000:0000:0000:0000:0000:ffff:")


@dataclass(frozen=True)
class Port:
    """A port of an adapter; ``state`` and ``physical`` as the kernel's words."""

    number: int
    state: str  # ACTIVE, DOWN, INIT, ARMED
    physical: str  # LinkUp, Polling, Disabled
    rate_gbps: float
    layer: str  # InfiniBand or Ethernet
    sm_lid: int = 0
    gids: tuple[Gid, ...] = ()
    traffic_class: int | None = None  # set on the adapter for all of its RoCE traffic

    @property
    def up(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class Hca(Device):
    name: str = ""
    board: str = ""
    guid: str = ""
    netdevs: tuple[str, ...] = ()
    relaxed_ordering: bool | None = None  # of its PCI device control; None: could not be read
    ports: tuple[Port, ...] = ()
    virtual: bool = False  # a virtual function whose adapter is on this node too


@dataclass(frozen=True)
class Bridge:
    """A PCI bridge above a card or adapter. ``acs``: its control word; None: has no ACS."""

    slot: str
    acs: int | None = None
    seen: bool = True  # False: its extended configuration could not be read


@dataclass(frozen=True)
class Boot:
    """Kernel parameters: of the running kernel, of the next boot, and as somebody wrote them."""

    running: tuple[str, ...] = ()
    next: tuple[str, ...] | None = None  # of grub.cfg's first entry; None: there is none
    written: tuple[str, ...] = ()  # GRUB_CMDLINE_LINUX(_DEFAULT) of grub's own files


@dataclass(frozen=True)
class Dkms:
    """What the module tree of the running kernel holds, with times of building (epoch, s)."""

    status: tuple[str, ...] = ()  # lines of `dkms status`
    modules: tuple[tuple[str, int], ...] = ()  # file name below updates/, mtime
    ofed: str = ""  # `ofed_info -s`; empty for the inbox stack
    symbols: int | None = None  # mtime of OFED's Module.symvers for this kernel


@dataclass(frozen=True)
class Gdrcopy:
    """gdrcopy's module: versions of what is loaded and what would be, and its device node."""

    loaded: str = ""
    built: str = ""
    node: bool = False


@dataclass(frozen=True)
class Fabric:
    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    bridges: tuple[Bridge, ...] = ()
    kernel: str = ""
    virt: str = BARE_METAL
    boot: Boot = Boot()
    modules: frozenset[str] = frozenset()  # loaded, of those that matter here
    peer_api: bool | None = None  # the kernel lets peermem register; None: can't be told
    open_modules: bool | None = None  # flavour of NVIDIA's modules; None: no driver there
    subnet_manager: bool = False  # an opensm runs on this node
    iommu: bool = False
    dkms: Dkms = Dkms()
    gdrcopy: Gdrcopy = Gdrcopy()
    names: tuple[tuple[str, str], ...] = ()  # slot and name, as pinned on the node before

    @property
    def bare_metal(self) -> bool:
        return self.virt == BARE_METAL


def distance(one: Device, other: Device) -> Near:
    """What lies between two devices, by their PCI paths, as NCCL calls it."""
    shared = 0
    for a, b in zip(one.path, other.path, strict=False):
        if a != b:
            break
        shared += 1
    if shared <= 1:  # not even a root port in common
        return Near.PHB if one.numa == other.numa else Near.SYS
    # Below a switch's upstream port there are its downstream port and the device itself.
    deepest = max(len(one.path), len(other.path)) - shared
    return Near.PIX if deepest <= 2 else Near.PXB


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts mlx5_2 before mlx5_10."""
    parts = re.findall(r"\d+|\D+", name)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts)
