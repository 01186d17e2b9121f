"""Facts that need a whole text and not one line: taken from the readers of ``rackpin parse``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackpin.diagnose.rules import xids
from rackpin.parse import nccl_log, system
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.loglines import lines

_LEAST_MEMLOCK = 1 << 30  # bytes; NCCL registers buffers of this order (failures F066)
_NO_SWITCH = "NV_WARN_NOTHING_TO_DO"
_LEAST_FILES = 4096  # raylet and engine need more (failures F068)
_UNIT_BYTES = {"bytes": 1, "kbytes": 1024}
_CARDS = ("3D controller", "VGA compatible controller", "Display controller", "Ethernet controller",
          "Infiniband controller", "InfiniBand controller", "Network controller", "")  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """A fact named for a rule's ``reading``; the rest is for facts that bring their own words."""

    name: str
    evidence: str
    line: int
    details: dict[str, str] = field(default_factory=dict)
    cause: str = ""
    remedy: str = ""
    kind: str = "root"
    confidence: str = "high"
    source: str = ""
    echoes: tuple[str, ...] = ()


def read_all(text: str) -> list[Reading]:
    """All such facts of a text, each with the first line that shows it."""
    found: list[Reading] = []
    shown = [(line.number, line.shown) for line in lines(text)]
    facts = [*_nccl(text), *_system(text)]
    for reading, pattern in facts:
        look = re.compile(pattern)
        number, evidence = next(((n, s) for n, s in shown if look.search(s)), (0, ""))
        if number:
            values = {**reading.__dict__, "evidence": evidence, "line": number}
            found.append(Reading(**values))
    return found


def _fact(name: str, **details: object) -> Reading:
    return Reading(name, "", 0, {key: str(value) for key, value in details.items()})


def _nccl(text: str) -> Iterator[tuple[Reading, str]]:
    """(fact, pattern of its evidence) of a NCCL log."""
    try:
        log = nccl_log.read(text)
    except NotThisKind:
        return
    evidence = {
        "gdr-disabled": r"GPU Direct RDMA Disabled",
        "different-builds": r"NET/Plugin ?:|Bootstrap ?:|NCCL version",
        "loopback": r"interface lo:",
    }
    for name in log.derived:
        yield _fact(f"nccl.{name}"), evidence[name]
    by_layer: dict[str, list[str]] = {}
    for hca in log.hcas:
        by_layer.setdefault("IB" if "/IB" in hca else "RoCE", []).append(hca)
    if len(by_layer) == 2 and len(log.hcas) > 2:
        odd = min(by_layer.values(), key=len)
        names = ",".join(hca.split(":")[0] for hca in odd)
        yield _fact("nccl.mixed-links", odd=", ".join(odd), odd_names=names), r"Using \[0\]"
    if log.network == "Socket" and log.several_hosts:
        yield _fact("nccl.socket-fallback"), r"Failed to open libibverbs"


def _system(text: str) -> Iterator[tuple[Reading, str]]:
    """(fact, pattern of its evidence) of a text of the system's tools."""
    try:
        seen = system.read(text)
    except NotThisKind:
        return
    yield from _xids(seen, text)
    for code, fatal in dict.fromkeys((s.code, s.severity == "Fatal") for s in seen.sxids):
        name = "system.sxid-fatal" if fatal else "system.sxid"
        same = [s for s in seen.sxids if (s.code, s.severity == "Fatal") == (code, fatal)]
        places = ", ".join(f"{s.device} {s.bus}".strip() for s in same)
        yield _fact(name, code=code, places=places), rf"SXid \([^)\n]{{1,40}}\): {code}"
    info, running = seen.modinfo, seen.running_kernel
    if info and info.kernel and running and info.kernel != running:
        yield (
            _fact("system.vermagic", module_kernel=info.kernel, running_kernel=running),
            "vermagic",
        )
    yield from _dkms(seen)
    yield from _pci(seen)
    fabric = seen.fabric_manager
    other = fabric and [error for error in fabric.errors if _NO_SWITCH not in error]
    if fabric and other and not (fabric.mismatch or fabric.switch_errors):
        yield _fact("system.fabric-error"), rf"\[(?:ERROR|CRITICAL|FATAL)\] \[tid(?!.*{_NO_SWITCH})"
    for interface, count in seen.lost_carrier.items():
        if re.match(r"ib|mlx|rdma|roce", interface):
            fact = _fact("system.link-flap", interface=interface, count=count)
            yield fact, rf"{re.escape(interface)}: .*(?:Lost carrier|[Dd]own)"
    for limit in seen.limits:
        factor = _UNIT_BYTES.get(limit.unit or "bytes", 1)
        soft = limit.soft
        if soft is not None and limit.name == "locked memory" and soft * factor < _LEAST_MEMLOCK:
            yield _fact("system.memlock", soft=soft, unit=limit.unit or ""), r"locked memory"
        if soft is not None and limit.name == "open files" and soft < _LEAST_FILES:
            yield _fact("system.nofile", soft=soft), r"open files"


def _xids(seen: system.SystemReading, text: str) -> Iterator[tuple[Reading, str]]:
    table = xids()
    buses: dict[int, list[str]] = {}
    for fault in seen.xids:
        buses.setdefault(fault.code, []).append(fault.bus or "a GPU")
    for code, where in buses.items():
        pattern = rf"(?<![A-Za-z])Xid[^\n]{{0,60}}: {code}\b"
        told = [line.shown for line in lines(text) if re.search(pattern, line.shown)]
        if code == 154 and all("(None)" in line.rsplit(" to ", 1)[-1] for line in told):
            continue  # the driver says that no recovery is needed any more
        known = table.get(code)
        mild = all("Nonfatal" in line for line in told)
        yield (
            Reading(
                name=f"xid.{code}",
                evidence="",
                line=0,
                details={"code": str(code), "bus": ", ".join(where)},
                cause=f"Xid {code} on {', '.join(where)}: "
                + (known.says if known else "a GPU fault that the table of codes does not have"),
                remedy=known.fix if known else "NVIDIA's Xid catalogue tells what it is",
                kind="symptom" if mild or not known else known.kind,
                confidence="low" if not known else "high",
                source="NVIDIA Xid catalogue",
                echoes=tuple(known.echoes) if known else (),
            ),
            pattern,
        )


def _dkms(seen: system.SystemReading) -> Iterator[tuple[Reading, str]]:
    ours = [module for module in seen.dkms if module.module.startswith("nvidia")]
    for module in ours:
        line = rf"{re.escape(module.module)}(?:/|, ){re.escape(module.version)}"
        facts = {"module": module.module, "version": module.version, "state": module.state}
        if module.state in ("built", "added", "broken"):
            yield _fact("system.dkms-not-installed", **facts), line
        if module.differs:
            yield _fact("system.dkms-differs", **facts), line
    versions = {module.version for module in ours}
    if seen.loaded_version and ours and seen.loaded_version not in versions:
        facts = {"loaded": seen.loaded_version, "version": ", ".join(sorted(versions))}
        yield _fact("system.loaded-other", **facts), re.escape(seen.loaded_version)


def _pci(seen: system.SystemReading) -> Iterator[tuple[Reading, str]]:
    if not seen.lspci:
        return
    for device in seen.lspci.devices:
        cap, sta = device.cap, device.sta
        if cap and sta and sta.width < cap.width and device.kind in _CARDS:
            fact = _fact(
                "system.pcie-width",
                device=device.slot or "the device",
                width=sta.width,
                max_width=cap.width,
            )
            yield fact, rf"LnkSta:.*Width x{sta.width}\b"
    if seen.lspci.acs.redirecting:
        count = seen.lspci.acs.redirecting
        yield _fact("system.acs", count=count), r"ACSCtl:.*(?:ReqRedir|CmpltRedir)\+"
