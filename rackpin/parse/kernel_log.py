"""Kernel messages (dmesg in every form, /dev/kmsg, journal, syslog): what the NVIDIA driver,
NVSwitches, the IOMMU, the module loader and the OOM killer say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.loglines import Line

# "Xid" must not be the tail of "SXid"; old drivers leave PCI: or the whole place out, MIG adds
# an instance. The number behind the place is the code, whatever the text says.
_XID = re.compile(
    r"(?<![A-Za-z])Xid(?: \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)"
    r"(?: GPU-I:\w+)?\))?: (?P<code>\d{1,4})\b"
)
_SXID = re.compile(
    r"(?:(?P<device>nvidia-nvswitch\d+): )?SXid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): "
    r"(?P<code>\d{4,6})\b(?:, (?P<severity>Fatal|Non-fatal))?"
)
_MISMATCH = re.compile(
    r"API mismatch: the client(?: '[^'\n]{1,80}' \(pid \d+\))? has the version (?P<user>[\d.]+\d)"
    r"[,.]?(?: but)?\s+(?:NVRM: )?this kernel module has the version (?P<module>[\d.]+\d)"
)
_OOM = re.compile(
    r"(?:Killed process|Kill process"
    r"|oom_reaper: reaped process) (\d+),? \(?(?:UID \d+, )?\(?([^),\s]+)\)?"
)
_LINK = re.compile(
    r"(?P<name>[\w.-]{1,40}): (?P<what>Lost carrier|Gained carrier)|"
    r"(?P<name2>[\w.-]{1,40}): (?:NIC )?[Ll]ink is (?P<what2>[Dd]own|[Uu]p)\b",
    re.ASCII,
)
_IOMMU = re.compile(
    r"(?P<amd>[0-9a-f:.]{7,14}): AMD-Vi: Event logged \[IO_PAGE_FAULT"
    r"|IO_PAGE_FAULT device=(?P<amd2>[0-9a-f:.]{7,14})"
    r"|DMAR: \[.*?Request device \[(?P<intel>[0-9a-f:.]{7,14})\]"
)
_SYMBOL = re.compile(
    r"(?P<module>[\w-]{1,60}): (?P<what>disagrees about version of symbol"
    r"|Unknown symbol|no symbol version for) (?P<symbol>\w+)"
)
_MAGIC = re.compile(
    r"(?P<module>[\w-]{1,60}): version magic '"
    r"(?P<built>[^' ]+)[^']*' should be '(?P<running>[^' ]+)"
)
_FAULTS = (
    ("driver out of memory", re.compile(r"NV_ERR_NO_MEMORY")),
    ("GPU fell off the bus", re.compile(r"GPU has fallen off the bus")),
    ("GSP RPC timeout", re.compile(r"Timeout after \d+s of waiting for RPC")),
    ("GPU not initialised", re.compile(r"RmInitAdapter failed|rm_init_adapter failed")),
    ("peermem invalid context", re.compile(r"nv_get_p2p_free_callback:\d+ ERROR")),
    ("IOMMU page fault", re.compile(r"IO_PAGE_FAULT|DMAR: .*fault")),
    ("memory errors corrected (EDAC)", re.compile(r"EDAC [^\n]{0,40}\b[1-9]\d* CE ")),
    ("memory errors not corrected (EDAC)", re.compile(r"EDAC [^\n]{0,40}\b[1-9]\d* UE ")),
    ("segmentation fault of a process", re.compile(r"\]: segfault at [0-9a-f]+ ip ")),
    ("PCIe AER error", re.compile(r"PCIe Bus Error: severity=Uncorrect|AER: Uncorrected")),
    ("NIC limited by PCIe", re.compile(r"mlx5_core .*limited by .*PCIe", re.IGNORECASE)),
    (
        "module rejected by Secure Boot",
        re.compile(r"Loading of (?:unsigned )?module .* rejected|Lockdown: .*unsigned module"),
    ),
    (
        "nouveau in the way",
        re.compile(r"already bound to nouveau|nouveau .*kernel module .*conflict", re.IGNORECASE),
    ),
    ("no PCIe atomics", re.compile(r"PCIE atomic ops is not supported", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Xid:
    """A fault code of a GPU: ``bus`` as printed ("" when the driver names none)."""

    bus: str
    code: int
    count: int


@dataclass(frozen=True)
class Sxid:
    """A fault code of an NVSwitch; ``severity`` is null where no line of it says."""

    device: str
    bus: str
    code: int
    count: int
    severity: str | None


@dataclass(frozen=True)
class Versions:
    """Driver versions that should be the same: of the library and of the loaded module."""

    user: str
    module: str


@dataclass(frozen=True)
class Oom:
    """A process that the OOM killer took."""

    pid: int
    process: str


@dataclass(frozen=True)
class Symbol:
    """A module that doesn't fit the kernel or another module, and by which symbol."""

    module: str
    problem: str
    symbol: str


@dataclass(frozen=True)
class Magic:
    """A module built for another kernel than the running one."""

    module: str
    module_kernel: str
    running_kernel: str


@dataclass(frozen=True)
class Kernel:
    """``faults``: text → number of lines. ``lost_carrier``: interface → times its link went.
    ``iommu_faults``: PCI addresses whose DMA the IOMMU refused."""

    xids: tuple[Xid, ...]
    sxids: tuple[Sxid, ...]
    mismatch: Versions | None
    oom: tuple[Oom, ...]
    symbols: tuple[Symbol, ...]
    faults: dict[str, int]
    lost_carrier: dict[str, int]
    iommu_faults: tuple[str, ...]
    version_magic: tuple[Magic, ...]


def kernel(lines: Sequence[Line]) -> Kernel:
    """What kernel messages among these lines say."""
    xids: Counter[tuple[str, int]] = Counter()
    sxids: Counter[tuple[str, str, int]] = Counter()
    severities: dict[tuple[str, str, int], str] = {}
    faults: Counter[str] = Counter()
    carrier: Counter[str] = Counter()
    iommu: dict[str, None] = {}
    magic: dict[Magic, None] = {}
    oom: dict[Oom, None] = {}
    symbols: dict[Symbol, None] = {}
    for line in lines:
        text = line.text
        if "Xid" in text and (match := _SXID.search(text)):
            key = (match["device"] or _switch(line.shown), match["bus"], int(match["code"]))
            sxids[key] += 1
            if match["severity"]:
                severities[key] = match["severity"]
        elif "Xid" in text and (match := _XID.search(text)):
            xids[(match["bus"] or "", int(match["code"]))] += 1
        for name, pattern in _FAULTS:
            if pattern.search(text):
                faults[name] += 1
        if match := _IOMMU.search(text):
            iommu[match["amd"] or match["amd2"] or match["intel"]] = None
        if "version magic" in text and (match := _MAGIC.search(text)):
            magic[Magic(match["module"], match["built"], match["running"])] = None
        if match := _OOM.search(text):
            oom[Oom(int(match[1]), match[2])] = None
        if "symbol" in text and (match := _SYMBOL.search(text)):
            symbols[Symbol(match["module"], match["what"], match["symbol"])] = None
        link = _LINK.search(text) if "arrier" in text or "ink is" in text else None
        if (match := link) and (match["what"] or match["what2"]) in _GONE:
            carrier[match["name"] or match["name2"]] += 1
    return Kernel(
        xids=tuple(Xid(bus, code, count) for (bus, code), count in xids.items()),
        sxids=tuple(Sxid(*key, count, severities.get(key)) for key, count in sxids.items()),
        mismatch=_mismatch(lines),
        oom=tuple(oom),
        symbols=tuple(symbols),
        faults=dict(faults),
        lost_carrier=dict(carrier),
        iommu_faults=tuple(iommu),
        version_magic=tuple(magic),
    )


_GONE = {"Lost carrier", "down", "Down"}


def _switch(shown: str) -> str:
    match = re.search(r"nvidia-nvswitch\d+", shown)
    return match[0] if match else ""


def _mismatch(lines: Sequence[Line]) -> Versions | None:
    """The driver says it in up to four lines, each of them with its own prefix."""
    for at, line in enumerate(lines):
        if "API mismatch" in line.text:
            said = "\n".join(part.text for part in lines[at : at + 4])
            if match := _MISMATCH.search(said):
                return Versions(match["user"], match["module"])
    return None
