"""What /sys shows of the hardware: the PCI tree, IOMMU groups and class/infiniband, as files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rackpin.lab.hardware import kernel, lspci, pci
from rackpin.lab.hardware.model import Node

ACS_AT = 0x148  # as lspci shows it
ACS_ON = 0x1D  # source validation, request and completion redirect, upstream forwarding
CONFIG_SIZE = 4096
GONE = b"\xff" * CONFIG_SIZE  # what reads of a device that left the bus give
DEVICES = "bus/pci/devices"
IOMMU = "class/iommu/dmar0"


@dataclass(frozen=True)
class Link:
    """A symbolic link in a tree of files."""

    target: str


Content = str | bytes | Link


def files(node: Node) -> dict[str, Content]:
    """Path below /sys → text, bytes or link."""
    found: dict[str, Content] = {f"{IOMMU}/uevent": ""}
    chains = pci.chains(node.preset)
    groups = 0
    for one in lspci.devices(node):
        path = _path(one, chains)
        found |= {f"{path}/{name}": content for name, content in _device(node, one).items()}
        found[f"{DEVICES}/{one.bus}"] = _link(f"{DEVICES}/{one.bus}", path)
        if not one.port and one.kind != lspci.HOST_BRIDGE:
            group = f"kernel/iommu_groups/{groups}"
            found[f"{path}/iommu_group"] = _link(f"{path}/iommu_group", group)
            found[f"{group}/type"] = "DMA-FQ\n" if node.iommu_translates else "identity\n"
            groups += 1
    for name, text in kernel.sys_infiniband(node).items():
        if not name.partition("/")[2].startswith("device/"):
            found[f"class/infiniband/{name}"] = text
    for nic in node.nics:
        path = "devices/" + "/".join(chains[nic.slot.bus])
        here = f"class/infiniband/{nic.device}"
        found[f"{here}/device"] = _link(f"{here}/device", path)
        found[f"{path}/net/{nic.netdev}/dev_port"] = "0\n"
    return found


def _path(one: lspci.Device, chains: dict[str, pci.Chain]) -> str:
    for chain in chains.values():
        if one.bus in chain:
            return "devices/" + "/".join(chain[: chain.index(one.bus) + 1])
    return f"devices/pci{one.bus[:7]}/{one.bus}"


def _link(at: str, target: str) -> Link:
    """Relative, as sysfs has them."""
    return Link(os.path.relpath(target, Path(at).parent))


def _device(node: Node, one: lspci.Device) -> dict[str, Content]:
    text: dict[str, Content] = {
        "vendor": f"0x{one.vendor}\n",
        "device": f"0x{one.device}\n",
        "class": f"0x{one.kind}00\n",
        "numa_node": f"{one.numa}\n",
        "uevent": (f"DRIVER={one.driver}\n" if one.driver else "") + f"PCI_SLOT_NAME={one.bus}\n",
        "config": _config(node, one) if one.alive else GONE,
    }
    if one.link:
        able, width = one.link
        text["max_link_width"] = f"{able.width}\n"
        text["current_link_width"] = f"{width}\n"
    return text


def _config(node: Node, one: lspci.Device) -> bytes:
    """Its configuration space, as far as anybody walks through it: PCI Express at 0x60, and of
    ports that can redirect the extended capabilities AER and ACS."""
    config = bytearray(CONFIG_SIZE)

    def put(at: int, value: int, size: int) -> None:
        config[at : at + size] = value.to_bytes(size, "little")

    put(0x00, int(one.vendor, 16), 2)
    put(0x02, int(one.device, 16), 2)
    if one.link:
        put(0x34, 0x60, 1)
        put(0x60, 0x0010, 2)  # PCI Express, the last capability
        put(0x68, 0x2830, 2)  # device control, relaxed ordering (bit 4) as in lspci's DevCtl
    redirects = one.link is not None and one.port in (pci.ROOT, pci.DOWNSTREAM)
    put(0x100, 0x0001 | 1 << 16 | (ACS_AT if redirects else 0) << 20, 4)
    if redirects:
        put(ACS_AT, 0x000D | 1 << 16, 4)
        put(ACS_AT + 6, ACS_ON if node.acs else 0, 2)
    return bytes(config)
