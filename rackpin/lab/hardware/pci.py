"""Where a preset's devices hang on the bus: host bridges, root ports, switches, nested as in sysfs.

Two devices of one ``host bridge/switch`` share a PCIe switch; a device alone there sits on a root
port of its own.
"""

from __future__ import annotations

from rackpin.lab.hardware.model import Preset, Slot

ROOT, UPSTREAM, DOWNSTREAM = "Root Port (Slot+)", "Upstream Port", "Downstream Port (Slot+)"
Chain = tuple[str, ...]  # pci0000:15, 0000:15:01.0, 0000:16:00.0, 0000:17:00.0, 0000:18:00.0


def _number(slot: str) -> int:
    return int(slot[5:7], 16)


def _slot(bus: int, device: int = 0) -> str:
    return f"0000:{bus:02x}:{device:02x}.0"


def chains(preset: Preset) -> dict[str, Chain]:
    """What is above each device, by its slot: host bridge first, the device itself last."""
    every = [*preset.slots, *(nic.slot for nic in preset.nics)]
    hosts: dict[str, dict[str, list[Slot]]] = {}
    for slot in sorted(every, key=lambda one: one.bus):
        host, switch, _ = slot.path.split("/")
        hosts.setdefault(host, {}).setdefault(switch, []).append(slot)
    found: dict[str, Chain] = {}
    for switches in hosts.values():
        first = next(iter(switches.values()))
        # The numbers just below the first device are free: root bus, switch, the bus in it.
        root = _number(first[0].bus) - (3 if len(first) > 1 else 1)
        for place, below in enumerate(switches.values(), 1):
            above = (f"pci0000:{root:02x}", _slot(root, place))
            lowest = _number(below[0].bus)
            for port, one in enumerate(below):
                inner = (_slot(lowest - 2), _slot(lowest - 1, port)) if len(below) > 1 else ()
                found[one.bus] = (*above, *inner, one.bus)
    if preset.nvswitches:
        root = _number(preset.nvswitches[0]) - 1
        for place, bus in enumerate(preset.nvswitches, 1):
            found[bus] = (f"pci0000:{root:02x}", _slot(root, place), bus)
    return found


def kinds(path: Chain) -> dict[str, str]:
    """The bridges of a chain and what kind of port each is."""
    bridges = path[1:-1]
    return dict(zip(bridges, (ROOT, UPSTREAM, DOWNSTREAM), strict=False))
