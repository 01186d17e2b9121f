"""``ibstat``, ``ibstatus``, ``ibv_devinfo`` and ``mlxlink``: ``key: value`` lines below a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.parse.infiniband_model import (
    LANE_GBPS,
    LAYERS,
    Device,
    Gid,
    Infiniband,
    Port,
    first_word,
    lanes,
    rate,
    reading,
    whole,
)
from rackpin.parse.text import number

_CA = re.compile(r"[\s#>]*CA:? '([^']{1,64})'")
_CA_PORT = re.compile(r"[\s#>]*Port (\d{1,3}):")
_STATUS = re.compile(r"[\s#>]*Infiniband device '([^']{1,64})' port (\d{1,3}) status:", re.I)
_HCA = re.compile(r"[\s#>]*hca_id:\s*(\S{1,64})")
_HCA_PORT = re.compile(r"\s*port:\s*(\d{1,3})\s*$")
_GID = re.compile(r"\s*GID\[\s*(\d{1,4})\]:\s*([0-9a-fA-F:.]{2,45})(?:,\s*(?:RoCE )?(\S.*?))?\s*$")
_FIELD = re.compile(r"[\s#>]*([A-Za-z][A-Za-z _]{1,40}?)\s*:\s*(.*?)\s*$")
_MLXLINK = re.compile(r'\s*"?([A-Z][A-Za-z .()]{1,40}?)"?\s*:\s*"?(.*?)"?,?\s*$')


@dataclass
class _Block:
    device: str | None
    port: int | None
    fields: dict[str, str] = field(default_factory=dict)


_Maker = Callable[[_Block], Port]


def ibstat(found: Sequence[str]) -> Infiniband | None:
    """``CA 'mlx5_0'`` with its ports below; also ``ibstat NAME PORT``."""
    devices, ports = _blocks(found, _CA, _CA_PORT)
    if not devices and not any("state" in block.fields for block in ports):
        return None
    return _answer("ibstat", devices, ports, _ibstat_port)


def ibstatus(found: Sequence[str]) -> Infiniband | None:
    """A block for each port, its device and number in the heading."""
    ports: list[_Block] = []
    for line in found:
        if match := _STATUS.match(line):
            ports.append(_Block(match[1], int(match[2])))
        elif ports and (match := _FIELD.match(line)):
            ports[-1].fields.setdefault(match[1].lower(), match[2])
    made = [_ibstatus_port(block) for block in ports]
    return reading("ibstatus", made, complete=_even(ports)) if ports else None


def devinfo(found: Sequence[str]) -> Infiniband | None:
    """``ibv_devinfo``; with ``-v`` it has the physical state, the rate and the GIDs too."""
    devices, ports = _blocks(found, _HCA, _HCA_PORT)
    gids = _gids(found)
    lost = [line for line in found if re.match(r"\s*phys_state:", line)] if not devices else []
    if not devices and not gids:
        return None
    if lost and not ports:  # the tail of -v: whose port it is has been cut off
        words = first_word(lost[0].partition(":")[2])
        ports.append(_Block(None, None, {"phys_state": words or ""}))
    verbose = gids or any("phys_state" in b.fields for b in ports) or _verbose(found)
    answer = _answer("ibv_devinfo -v" if verbose else "ibv_devinfo", devices, ports, _hca_port)
    again = reading(answer.tool, answer.ports, answer.devices, gids, answer.complete)
    return again if devices else reading(answer.tool, answer.ports, (), gids, False)


def mlxlink(found: Sequence[str]) -> Infiniband | None:
    """One port's operational state, as text or as JSON, whose device only the command names."""
    fields: dict[str, str] = {}
    for line in found:
        if match := _MLXLINK.match(line):
            fields.setdefault(match[1].strip(), match[2].strip())
    if not {"State", "Physical state"} <= fields.keys() or not {"Speed", "Width"} & fields.keys():
        return None
    tool = "mlxlink json" if any('"State"' in line for line in found) else "mlxlink"
    speed, width = fields.get("Speed"), fields.get("Width")
    gbps, layer = _mlxlink_speed(speed or "", width)
    port = Port(
        None,
        None,
        fields["State"] or None,
        fields["Physical state"] or None,
        gbps,
        layer,
        width=width,
        speed=speed,
        fec=fields.get("FEC"),
    )
    return reading(tool, [port])


def _mlxlink_speed(speed: str, width: str | None) -> tuple[int | float | None, str | None]:
    if match := re.match(r"IB-([A-Z]+\d*)$", speed):
        lane, count = LANE_GBPS.get(match[1]), lanes(width)
        return (lane * count if lane and count else None), "InfiniBand"
    if match := re.match(r"(\d+(?:\.\d+)?)G(?:bE|E|_)?", speed):
        return number(match[1]), "Ethernet"
    return None, None


def _blocks(
    found: Sequence[str], device: re.Pattern[str], port: re.Pattern[str]
) -> tuple[list[_Block], list[_Block]]:
    devices: list[_Block] = []
    ports: list[_Block] = []
    now: _Block | None = None
    for line in found:
        if match := device.match(line):
            now = _Block(match[1], None)
            devices.append(now)
        elif match := port.match(line):
            now = _Block(devices[-1].device if devices else None, int(match[1]))
            ports.append(now)
        elif now is not None and (match := _FIELD.match(line)):
            now.fields.setdefault(match[1].lower(), match[2])
    return devices, ports


def _answer(
    tool: str, devices: Sequence[_Block], ports: Sequence[_Block], make: _Maker
) -> Infiniband:
    named = [_device(block) for block in devices if block.device]
    made = [make(block) for block in ports]
    counts = {device.device: device.ports for device in named if device.ports is not None}
    seen = {name: {b.port for b in ports if b.device == name} for name in counts}
    whole_set = all(len(seen[name]) == count for name, count in counts.items())
    complete = _even(ports) and whole_set if counts else (None if _even(ports) else False)
    return reading(tool, made, named, complete=complete)


def _even(ports: Sequence[_Block]) -> bool:
    """Whether the last port has all the fields of the first."""
    return not ports or ports[-1].fields.keys() >= ports[0].fields.keys()


def _device(block: _Block) -> Device:
    get = block.fields.get
    return Device(
        block.device or "",
        get("ca type") or get("vendor_part_id"),
        get("firmware version") or get("fw_ver"),
        _guid(get("node guid") or get("node_guid")),
        get("board_id"),
        whole(get("number of ports") or get("phys_port_cnt")),
    )


def _guid(text: str | None) -> str | None:
    return text if text and re.fullmatch(r"(?:0x)?[0-9a-fA-F:]{16,19}", text) else None


def _layer(fields: Mapping[str, str], key: str) -> str | None:
    return fields[key] if fields.get(key) in LAYERS else None


def _ibstat_port(block: _Block) -> Port:
    get = block.fields.get
    return Port(
        block.device,
        block.port,
        get("state") or None,
        get("physical state") or None,
        rate(get("rate")),
        _layer(block.fields, "link layer"),
        lid=whole(get("base lid")),
        sm_lid=whole(get("sm lid")),
        guid=_guid(get("port guid")),
    )


def _ibstatus_port(block: _Block) -> Port:
    get = block.fields.get
    kind = re.search(r"\((\d+X)(?: (\w+))?\)", get("rate") or "")
    return Port(
        block.device,
        block.port,
        (get("state") or "").partition(":")[2].strip() or None,
        (get("phys state") or "").partition(":")[2].strip() or None,
        rate(get("rate")),
        _layer(block.fields, "link_layer"),
        width=kind[1] if kind else None,
        speed=kind[2] if kind else None,
        lid=whole(get("base lid")),
        sm_lid=whole(get("sm lid")),
    )


def _hca_port(block: _Block) -> Port:
    get = block.fields.get
    width, speed = first_word(get("active_width")), rate(get("active_speed"))
    count = lanes(width)
    return Port(
        block.device,
        block.port,
        first_word(get("state")),
        first_word(get("phys_state")),
        speed * count if speed is not None and count else None,
        _layer(block.fields, "link_layer"),
        width=width,
        active_mtu=whole(get("active_mtu")),
        max_mtu=whole(get("max_mtu")),
        lid=whole(get("port_lid")),
        sm_lid=whole(get("sm_lid")),
    )


def _gids(found: Sequence[str]) -> list[Gid]:
    gids = []
    device, port = None, None
    for line in found:
        if match := _HCA.match(line):
            device, port = match[1], None
        elif match := _HCA_PORT.match(line):
            port = int(match[1])
        elif match := _GID.match(line):
            version = match[3] if match[3] in ("v1", "v2") else None
            gids.append(Gid(device, port, int(match[1]), match[2], mapped(match[2]), version))
    return gids


def mapped(gid: str) -> str | None:
    """The IPv4 address of an IPv4-mapped GID, in either notation."""
    if match := re.fullmatch(r"::ffff:(\d{1,3}(?:\.\d{1,3}){3})", gid, re.I):
        return match[1]
    match = re.fullmatch(r"(?:0{1,4}:){5}ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})", gid, re.I)
    if not match:
        return None
    high, low = int(match[1], 16), int(match[2], 16)
    return f"{high >> 8}.{high & 255}.{low >> 8}.{low & 255}"


def _verbose(found: Sequence[str]) -> bool:
    return any("max_mr_size:" in line for line in found)
