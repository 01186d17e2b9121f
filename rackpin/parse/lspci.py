"""``lspci`` in its forms: plain, ``-nn``, ``-vv`` to ``-vvv``, and what grep leaves of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_DEVICE = re.compile(
    r"^(?P<slot>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) "
    r"(?P<class>[A-Z0-9][^\[\n:]*?)(?: \[(?P<class_id>[0-9a-f]{4})\])?: (?P<name>.+)$"
)
_IDS = re.compile(r"\[([0-9a-f]{4}):([0-9a-f]{4})\]")
_LINK = re.compile(
    r"Lnk(?P<what>Cap|Sta):\s*(?:Port #\d+,\s*)?Speed (?P<speed>[\d.]+)GT/s(?: \((?P<s>\w+)\))?,\s*"
    r"Width x(?P<width>\d+)(?: \((?P<w>ok|downgraded|overdriven|strange)\))?(?=[\s,(]|$)"
)
_ACS = re.compile(r"ACSCtl:\s*((?:[A-Za-z]+[+-]\s*)+)")
_DRIVER = re.compile(r"Kernel driver in use: (\S+)")
NVIDIA, MELLANOX = "10de", "15b3"
# Class 0680 (bridge) with NVIDIA's id is an NVSwitch; 0302/0300 are GPUs (pci.ids).
_GPU_CLASSES = ("3D controller", "VGA compatible controller", "Display controller")


@dataclass(frozen=True)
class Link:
    """PCIe speed in GT/s and lanes; the notes are lspci's own (``ok``, ``downgraded``)."""

    speed_gts: float
    width: int
    speed_note: str | None = None
    width_note: str | None = None


@dataclass(frozen=True)
class Device:
    """``slot`` is "" where the text begins inside a device. ``acs``: flag → on."""

    slot: str
    kind: str = ""
    name: str = ""
    vendor_id: str | None = None
    device_id: str | None = None
    cap: Link | None = None
    sta: Link | None = None
    degraded: bool | None = None
    acs: dict[str, bool] | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Acs:
    """``lines`` with ACSCtl, how many check sources, how many send peer traffic to the root."""

    lines: int
    srcvalid_plus: int
    redirecting: int


@dataclass(frozen=True)
class Lspci:
    """``nvswitches`` are NVIDIA's bridges; counts are null in a text without device lines."""

    devices: tuple[Device, ...]
    acs: Acs
    nvidia_gpus: int | None
    nvswitches: int | None
    mellanox: int | None


def is_lspci(line: str) -> bool:
    """Whether a line is one that only lspci prints."""
    return bool(_DEVICE.match(line) or _LINK.search(line) or _ACS.search(line))


def lspci(lines: Sequence[str]) -> Lspci:
    """Devices with their link and ACS state. Lines of anything else are passed over."""
    devices: list[Device] = []
    acs: list[dict[str, bool]] = []
    for line in lines:
        if match := _DEVICE.match(line):
            ids = _IDS.findall(line)
            vendor, device = ids[-1] if ids else (None, None)
            devices.append(Device(match["slot"], match["class"], match["name"], vendor, device))
        elif match := _LINK.search(line):
            link = Link(float(match["speed"]), int(match["width"]), match["s"], match["w"])
            part = "cap" if match["what"] == "Cap" else "sta"
            if not devices or getattr(devices[-1], part):
                devices.append(Device(""))
            devices[-1] = (
                replace(devices[-1], cap=link) if part == "cap" else replace(devices[-1], sta=link)
            )
        elif match := _ACS.search(line):
            flags = {flag[:-1]: flag.endswith("+") for flag in match[1].split()}
            acs.append(flags)
            if devices and devices[-1].slot:
                devices[-1] = replace(devices[-1], acs=flags)
        elif (match := _DRIVER.search(line)) and devices:
            devices[-1] = replace(devices[-1], driver=match[1])
    return _counted([replace(device, degraded=_degraded(device)) for device in devices], acs)


def _counted(devices: list[Device], acs: list[dict[str, bool]]) -> Lspci:
    listed = [device for device in devices if device.slot]
    ours = [device for device in listed if _of(device, NVIDIA, "NVIDIA")]
    summary = Acs(
        len(acs),
        sum(flags.get("SrcValid", False) for flags in acs),
        sum(flags.get("ReqRedir", False) or flags.get("CmpltRedir", False) for flags in acs),
    )
    if not listed:
        return Lspci(tuple(devices), summary, None, None, None)
    return Lspci(
        tuple(devices),
        summary,
        sum(device.kind in _GPU_CLASSES for device in ours),
        sum(device.kind == "Bridge" for device in ours),
        sum(_of(device, MELLANOX, "Mellanox") for device in listed),
    )


def _of(device: Device, vendor: str, name: str) -> bool:
    return device.vendor_id == vendor if device.vendor_id else device.name.startswith(name)


def _degraded(device: Device) -> bool | None:
    """Whether the link is below what the device can; a low speed alone is normal at idle."""
    if not device.cap or not device.sta:
        return None
    return (
        device.sta.width < device.cap.width
        or device.sta.speed_gts < device.cap.speed_gts
        or "downgraded" in (device.sta.speed_note, device.sta.width_note)
    )
