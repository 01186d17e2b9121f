"""Nodes as /sys shows them, written into a directory, for tests of the fabric."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rackpin.fabric.look import parse, script
from rackpin.fabric.model import Fabric
from tests.unit.shell import sh

IB, ETH = "InfiniBand", "Ethernet"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
ACS_ON, ACS_OFF = 0x001D, 0


def extended(acs: int | None) -> bytes:
    """4096 bytes of configuration: AER at 0x100, then ACS at 0x148 where there is any."""
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | (0x148 if acs is not None else 0) << 20).to_bytes(
        4, "little"
    )
    if acs is not None:
        config[0x148:0x14C] = (0x000D | 1 << 16).to_bytes(4, "little")
        config[0x14E:0x150] = acs.to_bytes(2, "little")
    return bytes(config)


def device_config(relaxed: bool) -> bytes:
    """A device's configuration: power management at 0x40, PCI Express at 0x60."""
    config = bytearray(4096)
    config[0x34] = 0x40
    config[0x40:0x42] = bytes([0x01, 0x60])
    config[0x60:0x62] = bytes([0x10, 0x00])
    config[0x68:0x6A] = (0x2830 if relaxed else 0x2820).to_bytes(2, "little")
    return bytes(config)


@dataclass
class Tree:
    """A node's /sys, /proc and /etc below ``root``."""

    root: Path
    bridges: set[str] = field(default_factory=set)

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def _device(self, path: str, numa: int, acs: int | None) -> Path:
        """``pci0000:15/0000:15:01.0/…``, last the device itself; bridges above it get an ACS."""
        full = self.root / "sys/devices" / path
        full.mkdir(parents=True)
        (full / "numa_node").write_text(f"{numa}\n")
        parts = path.split("/")
        for depth in range(2, len(parts)):
            bridge = self.root / "sys/devices" / "/".join(parts[:depth])
            (bridge / "config").write_bytes(extended(acs))
            self.bridges.add(parts[depth - 1])
        link = self.root / "sys/bus/pci/devices" / parts[-1]
        link.parent.mkdir(parents=True, exist_ok=True)
        self._link(link, full)
        return full

    @staticmethod
    def _link(link: Path, target: Path) -> None:
        """Relative, as in /sys, so that the tree can be carried elsewhere."""
        link.symlink_to(os.path.relpath(target, link.parent))

    def gpu(self, path: str, numa: int = 0, acs: int | None = ACS_OFF, iommu: str = "") -> None:
        full = self._device(path, numa, acs)
        (full / "vendor").write_text("0x10de\n")
        (full / "class").write_text("0x030200\n")
        if iommu:
            group = self.root / "sys/kernel/iommu_groups" / full.name
            group.mkdir(parents=True)
            (group / "type").write_text(f"{iommu}\n")
            self._link(full / "iommu_group", group)
            (self.root / "sys/class/iommu/dmar0").mkdir(parents=True, exist_ok=True)

    def hca(
        self,
        name: str,
        path: str,
        numa: int = 0,
        layer: str = IB,
        rate: int = 400,
        up: bool = True,
        gids: dict[int, tuple[str, str]] | None = None,
        state: str = "",
        sm_lid: int = 1,
        traffic_class: int | None = None,
        relaxed: bool = True,
        number: int = 1,
    ) -> None:
        base = self.root / "sys/class/infiniband" / name
        if number == 1:
            full = self._device(path, numa, ACS_OFF)
            (full / "config").write_bytes(device_config(relaxed))
            base.mkdir(parents=True)
            self._link(base / "device", full)
            (full / "net" / f"net_{name}").mkdir(parents=True)
        here = f"sys/class/infiniband/{name}"
        self.put(f"{here}/board_id", "MT_0000000838")
        self.put(f"{here}/node_guid", "a088:c203:0000:1c00")
        port = f"{here}/ports/{number}"
        self.put(f"{port}/state", state or ("4: ACTIVE" if up else "1: DOWN"))
        self.put(f"{port}/phys_state", "5: LinkUp" if up or state else "2: Polling")
        self.put(f"{port}/rate", f"{rate if up else 10} Gb/sec (4X NDR)")
        self.put(f"{port}/link_layer", layer)
        self.put(f"{port}/sm_lid", f"0x{sm_lid:x}")
        if traffic_class is not None:
            self.put(f"{here}/tc/{number}/traffic_class", f"Global tclass={traffic_class}")
        for index in range(8):
            gid, kind = (gids or {}).get(index, (ZERO, ""))
            self.put(f"{port}/gids/{index}", gid)
            if kind:
                self.put(f"{port}/gid_attrs/types/{index}", kind)
                self.put(f"{port}/gid_attrs/ndevs/{index}", f"net_{name}")

    def look(self) -> Fabric:
        done = sh(script(str(self.root)))
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        return parse(done.stdout.splitlines())


def roce(number: int, first: int = 2) -> dict[int, tuple[str, str]]:
    """GIDs as a RoCE port has them: link-local v1 and v2, then IPv4 v1 and v2."""
    local, ipv4 = (
        "fe80:0000:0000:0000:a288:c2ff:fe03:1c00",
        f"{'0000:' * 5}ffff:0a01:00{number:02x}",
    )
    found = {0: (local, "IB/RoCE v1"), 1: (local, "RoCE v2")}
    return found | {first: (ipv4, "IB/RoCE v1"), first + 1: (ipv4, "RoCE v2")}


def bridge(number: int) -> str:
    return f"pci0000:{number:02x}/0000:{number:02x}:01.0/0000:{number + 1:02x}:00.0"


def switch(number: int, port: int, bus: int) -> str:
    """A device below a PCIe switch: host bridge, root port, upstream and downstream port."""
    slot = f"0000:{bus:02x}:00.0"
    return f"{bridge(number)}/0000:{number + 2:02x}:{port:02x}.0/{slot}"


def below_two(number: int, port: int, bus: int) -> str:
    """The same, one switch deeper."""
    upper = f"0000:{number + 2:02x}:{port:02x}.0"
    lower = f"0000:{bus - 2:02x}:00.0/0000:{bus - 1:02x}:00.0"
    return f"{bridge(number)}/{upper}/{lower}/0000:{bus:02x}:00.0"


BRIDGES = (0x10, 0x30, 0x50, 0x70, 0x90, 0xA8, 0xC0, 0xD8)


def h100(tree: Tree, layer: str = IB, down: tuple[int, ...] = (), name: str = "mlx5_{}") -> Tree:
    """8 cards, each with a 400 Gb/s adapter on its own switch; numbers as on such boards: a
    management port sits between them, and storage has adapters of its own on the root."""
    numbers = (0, 3, 4, 5, 6, 9, 10, 11)
    for i, (start, number) in enumerate(zip(BRIDGES, numbers, strict=True)):
        numa = i // 4
        tree.gpu(switch(start, 0, start + 3), numa)
        tree.hca(
            name.format(number),
            switch(start, 1, start + 4),
            numa,
            layer,
            up=i not in down,
            gids=roce(i + 1) if layer == ETH else None,
        )
    return tree


def storage(tree: Tree, name: str, layer: str, start: int = 0xF0, rate: int = 200) -> Tree:
    """An adapter on a root port of its own."""
    gids = roce(99) if layer == ETH else None
    path = f"pci0000:{start:02x}/0000:{start:02x}:01.0/0000:{start + 1:02x}:00.0"
    tree.hca(name, path, numa=0, layer=layer, rate=rate, gids=gids)
    return tree
