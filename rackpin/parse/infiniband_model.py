"""What the tools of InfiniBand and RoCE say of devices, ports and GIDs, and the words they use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackpin.parse.text import number

# Gb/s of one lane by its name; source: the table of link speeds in the IBTA's roadmap.
LANE_GBPS = {
    "SDR": 2.5,
    "DDR": 5,
    "QDR": 10,
    "FDR10": 10,
    "FDR": 14,
    "EDR": 25,
    "HDR": 50,
    "NDR": 100,
    "XDR": 200,
}
# Logical states of ib_port_state, without ibv's PORT_; Up and Down are ibdev2netdev's.
_UP = {"ACTIVE", "UP"}
_NOT_UP = {"DOWN", "INIT", "INITIALIZE", "INITIALIZING", "ARMED", "ARM", "ACTIVE_DEFER", "NOP"}
LAYERS = ("InfiniBand", "Ethernet")


@dataclass(frozen=True)
class Port:
    """One port; words as printed, None what isn't printed. ``rate_gbps`` of all lanes, Gb/s.

    ``up`` tells whether the state's word means a working link, None for none or an odd word;
    of ibdev2netdev ``state`` is the network interface's. ``gid_index``: the lowest GID that is
    RoCE v2 with an IPv4 address.
    """

    device: str | None
    port: int | None
    state: str | None = None
    physical: str | None = None
    rate_gbps: int | float | None = None
    link_layer: str | None = None
    up: bool | None = None
    width: str | None = None
    speed: str | None = None
    netdev: str | None = None
    netdev_state: str | None = None
    active_mtu: int | None = None
    max_mtu: int | None = None
    lid: int | None = None
    sm_lid: int | None = None
    guid: str | None = None
    fec: str | None = None
    gid_index: int | None = None


@dataclass(frozen=True)
class Device:
    """One adapter; ``ports`` is the number that it says it has."""

    device: str
    type: str | None = None
    firmware: str | None = None
    node_guid: str | None = None
    board: str | None = None
    ports: int | None = None


@dataclass(frozen=True)
class Gid:
    """One entry of a GID table; ``version`` is ``v1``, ``v2`` or None (InfiniBand)."""

    device: str | None
    port: int | None
    index: int
    gid: str
    ipv4: str | None
    version: str | None
    netdev: str | None = None


@dataclass(frozen=True)
class Infiniband:
    """``right_gid_index`` is the ports' ``gid_index`` when all agree. ``complete``: False when
    ports or fields that the text promises are missing, None when it promises nothing.
    """

    tool: str
    ports: tuple[Port, ...] = ()
    devices: tuple[Device, ...] = ()
    gids: tuple[Gid, ...] = ()
    right_gid_index: int | None = None
    complete: bool | None = None
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def is_up(state: str | None) -> bool | None:
    plain = (state or "").upper().removeprefix("PORT_")
    return True if plain in _UP else (False if plain in _NOT_UP else None)


def reading(
    tool: str,
    ports: Sequence[Port],
    devices: Sequence[Device] = (),
    gids: Sequence[Gid] = (),
    complete: bool | None = None,
) -> Infiniband:
    """The answer from what was read: ports once each, with their state judged and their GID."""
    once: dict[tuple[Any, ...], Port] = {}
    twice = []
    for port in ports:
        place = (port.device, port.port)
        if once.setdefault(place, port) != port:
            twice.append(f"{port.device} port {port.port} is given twice, differently")
    found = []
    for port in once.values():
        right = [gid.index for gid in gids if _fits(gid, port) and gid.version == "v2" and gid.ipv4]
        index = min(right, default=None)
        found.append(replace(port, up=is_up(port.state), gid_index=index))
    indices = {port.gid_index for port in found}
    agreed = indices.pop() if len(indices) == 1 else None
    unique = tuple(dict.fromkeys(gids))
    return Infiniband(
        tool,
        tuple(found),
        tuple({device.device: device for device in reversed(devices)}.values())[::-1],
        unique,
        agreed,
        complete,
        notes=tuple(dict.fromkeys(twice)),
    )


def _fits(gid: Gid, port: Port) -> bool:
    return (gid.device, gid.port) == (port.device, port.port)


def lanes(width: str | None) -> int | None:
    """4 of ``4X`` or ``4x``."""
    match = re.match(r"(\d{1,2})[xX]", width or "")
    return int(match[1]) if match else None


def rate(text: str | None) -> int | float | None:
    """``200``, ``100 Gb/sec (4X EDR)``, ``40 (FDR10)``, ``25.0 Gbps (32)``: the first number."""
    match = re.match(r"\s*(\d{1,5}(?:\.\d+)?)(?:\s|$)", text or "")
    return number(match[1]) if match else None


def whole(text: str | None) -> int | None:
    """A decimal or 0x number at the beginning of a text."""
    match = re.match(r"\s*(0x[0-9a-fA-F]{1,16}|\d{1,9})\b", text or "")
    return int(match[1], 0) if match and not re.match(r"0\d", match[1]) else None


def first_word(text: str | None) -> str | None:
    words = (text or "").split()
    return words[0] if words else None
