"""``ibstat``, ``ibstatus``, ``ibv_devinfo`` and ``mlxlink``: ``key: value`` lines below a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.parse.infiniband_gids import HCA, HCA_PORT, gids
from rackpin.parse.infiniband_model import (
    LAYERS,
    Device,
    Infiniband,
    Port,
    first_word,
    lanes,
    rate,
    reading,
    whole,
)

_CA = re.compile(r"[\s#>]*CA:? '([^']{1,64})'")
_CA_PORT = re.compile(r"[\s#>]*Port (\d{1,3}):")
_STATUS = re.compile(r"[\s#>]*Infiniband device '([^']{1,64})' port (\d{1,3}) status:", re.I)
_FIELD = re.compile(r"[\s#>]*([A-Za-z][A-Za-z _]{1,40}?)\s*:\s*(.*?)\s*$")


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
    devices, ports = _blocks(found, HCA, HCA_PORT)
    table = gids(found)
    lost = [line for line in found if re.match(r"\s*phys_state:", line)] if not devices else []
    if not devices and not table:
        return None
    if lost and not ports:  # the tail of -v: whose port it is has been cut off
        words = first_word(lost[0].partition(":")[2])
        ports.append(_Block(None, None, {"phys_state": words or ""}))
    verbose = table or any("phys_state" in b.fields for b in ports) or _verbose(found)
    answer = _answer("ibv_devinfo -v" if verbose else "ibv_devinfo", devices, ports, _hca_port)
    complete = answer.complete if devices else False
    return reading(answer.tool, answer.ports, answer.devices, table, complete)


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
    layer = fields.get(key) or None
    return LAYERS[0] if layer == "IB" else layer  # what old ibv_devinfo calls it


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


def _verbose(found: Sequence[str]) -> bool:
    return any("max_mr_size:" in line for line in found)
