"""PCIe of cards and adapters from their registers: payload, error counters, adapters' links."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from rackpin.checks import gpuinfo
from rackpin.checks.base import Command, Context
from rackpin.checks.host import PLACE, Answer, HostCheck
from rackpin.fabric.look import shell

# Capability 0x10 (PCI Express): device capabilities at +4, device control at +8.
REGISTERS = Command(
    "gpu.pci",
    PLACE
    + shell("pci.sh")
    + r"""express() {
  uint "$1" 52 1; hops=0 cap= ctl=
  while [ -n "$value" ] && [ "$value" -ge 64 ] && [ "$hops" -lt 48 ]; do
    at=$value hops=$((hops + 1))
    uint "$1" "$at" 2
    [ -n "$value" ] || return
    if [ $((value & 255)) -eq 16 ]; then
      uint "$1" $((at + 4)) 2; cap=$value; uint "$1" $((at + 8)) 2; ctl=$value; return
    fi
    value=$((value >> 8))
  done
}
aer() { # requests that nobody answers are usual while devices are looked for
  awk '$1 !~ /^(TOTAL_|UnsupReq|AdvNonFatalErr)/ {n += $2; s = 1} END {if (s) print n}' \
    "$1/aer_dev_$2" 2>/dev/null
}
row() {
  express "$2/config"; set -- "$1" "$2" "${2%/*}"
  get "$2/current_link_speed"; cs=$value; get "$2/max_link_speed"; ms=$value
  get "$2/current_link_width"; cw=$value; get "$2/max_link_width"; mw=$value
  e="$(aer "$2" correctable)|$(aer "$2" nonfatal)|$(aer "$2" fatal)"
  echo "$1|${2##*/}|${3##*/}|$cap|$ctl|$cs|$ms|$cw|$mw|$e"
}
above=
echo '## devices'
for d in /sys/bus/pci/devices/*; do
  is_card "$d" || continue
  p=$(readlink -f "$d"); above="$above $p"; row gpu "$p"; done
for h in /sys/class/infiniband/*; do
  [ -e "$h/device/config" ] || continue
  p=$(readlink -f "$h/device"); above="$above $p"; row "${h##*/}" "$p"; done
bridges_above $above | while read -r p; do row bridge "$p"; done
echo '## end'
""",
    deadline_s=15.0,
)
CORRECTED_WARN = 100  # since boot; a link that works corrects next to nothing


@dataclass(frozen=True)
class Device:
    """A card, adapter or bridge. None: its register or file could not be read."""

    kind: str
    slot: str
    parent: str
    payload_max: int | None  # bytes that it can
    payload: int | None  # bytes that are set
    read_request: int | None
    speed: float | None  # GT/s
    speed_max: float | None
    width: int | None
    width_max: int | None
    errors: tuple[int | None, int | None, int | None]  # corrected, not fatal, fatal


def devices(answer: Answer) -> dict[str, Device]:
    """By slot; a garbled row is told, not left out silently."""
    found: dict[str, Device] = {}
    for line in answer.lines("devices"):
        fields = line.split("|")
        if len(fields) != 12 or not re.fullmatch(r"[0-9a-f:.]{7,13}", fields[1]):
            answer.told.untold.append(f"a device: {line[:80]}")
            continue
        cap, ctl = _int(fields[3]), _int(fields[4])
        found[fields[1]] = Device(
            fields[0],
            fields[1],
            fields[2],
            None if cap is None else 128 << (cap & 7),
            None if ctl is None else 128 << (ctl >> 5 & 7),
            None if ctl is None else 128 << (ctl >> 12 & 7),
            _speed(fields[5]),
            _speed(fields[6]),
            _int(fields[7]),
            _int(fields[8]),
            (_int(fields[9]), _int(fields[10]), _int(fields[11])),
        )
    return found


def _int(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _speed(text: str) -> float | None:
    match = re.match(r"(\d+(?:\.\d+)?) GT/s", text)
    return float(match[1]) if match else None


def _some(answer: Answer) -> dict[str, Device]:
    """Nothing at all is no answer where the node's bus is its own; a container may see another."""
    found = devices(answer)
    if not found and not answer.place.container:
        answer.told.untold.append("no card is in /sys/bus/pci")
    return found


def _payload(ctx: Context, answer: Answer) -> str | None:
    """Bare metal only: in a virtual machine the bridges are not the real ones."""
    found, told = _some(answer), answer.told
    if not found or not answer.place.bare_metal:
        return None
    ends = [one for one in found.values() if one.kind != "bridge"]
    for one in ends:
        if one.payload is None or one.payload_max is None:
            told.untold.append(f"{one.slot}: its PCIe registers")
            continue
        above = found.get(one.parent)
        if above and above.payload is not None and one.payload > above.payload:
            told.faults.append(
                f"{one.slot} sends payloads of {one.payload} bytes, {above.slot} takes "
                f"{above.payload}"
            )
        could = min([one.payload_max, *_path(found, one)])
        if one.payload < could:
            told.worries.append(f"{one.slot}: MaxPayload {one.payload} of {could} bytes")
    _alike([one for one in ends if one.kind == "gpu"], answer)
    _alike([one for one in ends if one.kind != "gpu"], answer)
    return f"MaxPayload of {len(ends)} devices is as large as their way allows"


def _path(found: dict[str, Device], one: Device) -> list[int]:
    """What every bridge above can take."""
    sizes, up = [], found.get(one.parent)
    while up is not None:
        if up.payload_max is not None:
            sizes.append(up.payload_max)
        up = found.get(up.parent)
    return sizes


def _alike(some: list[Device], answer: Answer) -> None:
    sizes = Counter(one.read_request for one in some if one.read_request)
    if len(sizes) > 1:
        usual = sizes.most_common(1)[0][0]
        for one in some:
            if one.read_request not in (usual, None):
                answer.told.worries.append(
                    f"{one.slot}: MaxReadReq {one.read_request}, its siblings {usual}"
                )


def _errors(ctx: Context, answer: Answer) -> str | None:
    found, told = _some(answer), answer.told
    if not found:
        return None
    counted = 0
    for one in found.values():
        corrected, nonfatal, fatal = one.errors
        counted += corrected is not None
        if fatal:
            told.faults.append(f"{one.slot} ({one.kind}): {fatal} fatal PCIe errors")
        if nonfatal:
            told.worries.append(f"{one.slot} ({one.kind}): {nonfatal} uncorrected PCIe errors")
        if corrected and corrected >= CORRECTED_WARN:
            told.worries.append(f"{one.slot} ({one.kind}): {corrected} corrected PCIe errors")
    if not counted and not answer.place.bare_metal:
        return None  # a virtual machine isn't shown them
    answer.metrics["corrected_count"] = float(sum(one.errors[0] or 0 for one in found.values()))
    if not counted:
        told.untold.append("no device has error counters: the firmware keeps AER to itself")
    return f"{counted} devices count errors, none worth a look"


def _adapters(ctx: Context, answer: Answer) -> str | None:
    found, told = _some(answer), answer.told
    adapters = [one for one in found.values() if one.kind not in ("gpu", "bridge")]
    for one in adapters:
        above = found.get(one.parent)
        limits = [d for d in (one, above) if d]
        width = min([d.width_max for d in limits if d.width_max], default=None)
        speed = min([d.speed_max for d in limits if d.speed_max], default=None)
        if one.width is None or one.speed is None or width is None or speed is None:
            told.untold.append(f"{one.kind} at {one.slot}: its PCIe link")
            continue
        if one.width < width:
            told.faults.append(f"{one.kind} at {one.slot} has {one.width} of {width} PCIe lanes")
        if one.speed < speed:
            told.faults.append(f"{one.kind} at {one.slot} runs at {one.speed:g} of {speed:g} GT/s")
    return f"{len(adapters)} adapters have all lanes and their speed" if adapters else None


PAYLOAD = HostCheck(
    id="gpu.pci_payload",
    title="PCIe payloads fit the way",
    expected="MaxPayload as large as device and bridges allow, MaxReadReq alike (bare metal)",
    source="PCI Express: device control; Azure's NDv4 health checks",
    remedy="BIOS: PCIe MaxPayload to auto; kernel parameter pci=pcie_bus_perf; MaxReadReq: "
    "setpci on the device that differs",
    parts=("devices",),
    look=_payload,
    command=REGISTERS,
    level="node",
    asks=gpuinfo.has_cards,
)
ERRORS = HostCheck(
    id="gpu.pci_errors",
    title="No PCIe errors on cards, adapters and the bridges above them",
    expected=f"nothing fatal or uncorrected, fewer than {CORRECTED_WARN} corrected since boot",
    source="kernel docs: PCIe advanced error reporting",
    remedy="reseat the device and its riser, clean the contacts; then replace it",
    parts=("devices",),
    look=_errors,
    command=REGISTERS,
    level="node",
    asks=gpuinfo.has_cards,
    may_miss=True,
)
ADAPTERS = HostCheck(
    id="fabric.hca_pcie",
    title="Adapters have all PCIe lanes and their speed",
    expected="width and speed that adapter and slot allow",
    source="kernel docs: current_link_width, current_link_speed; failures F051",
    remedy="reseat the adapter and its riser, check the slot's settings in the BIOS",
    parts=("devices",),
    look=_adapters,
    command=REGISTERS,
    level="node",
    asks=gpuinfo.has_cards,
)
