"""``nvidia-smi -q``, with or without ``-d``: indented ``Key : value`` lines below each GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackpin.parse.nvidia_smi_model import BUS_ID, Gpu, gpu
from rackpin.parse.text import last_line

LOG = re.compile(r"=+\s*NVSMI LOG\s*=+")
_GPU = re.compile(r"[\s#>]*GPU (" + BUS_ID.pattern + r")\s*$")
_LINE = re.compile(r"(?P<indent>\s*)(?P<key>\S(?:.*?\S)?)\s*(?: : ?(?P<value>.*)|:(?P<none>)\s*)?$")
_WHOLE_WORDS = {"N/A", "None", "Enabled", "Disabled", "enabled", "disabled", "Not Active"}
# Gpu's attribute → the paths where drivers since 270 have it, newest first.
PATHS: dict[str, tuple[str, ...]] = {
    "name": ("Product Name",),
    "uuid": ("GPU UUID", "GPU UID"),
    "serial": ("Serial Number",),
    "memory_used": ("FB Memory Usage / Used", "Memory Usage / Used"),
    "memory_total": ("FB Memory Usage / Total", "Memory Usage / Total"),
    "mig": ("MIG Mode / Current",),
    "mig_pending": ("MIG Mode / Pending",),
    "persistence": ("Persistence Mode",),
    "performance_state": ("Performance State",),
    "temperature": ("Temperature / GPU Current Temp", "Temperature / Gpu"),
    "power": (
        "GPU Power Readings / Average Power Draw",
        "GPU Power Readings / Power Draw",
        "Power Readings / Power Draw",
    ),
    "power_limit": ("GPU Power Readings / Current Power Limit", "Power Readings / Power Limit"),
    "fan": ("Fan Speed",),
    "utilization": ("Utilization / GPU", "Utilization / Gpu"),
    "compute_mode": ("Compute Mode",),
    "ecc": ("ECC Mode / Current", "Ecc Mode / Current"),
    "ecc_uncorrected": ("ECC Errors / Volatile / DRAM Uncorrectable",),
    "page_retirement_pending": (
        "Retired Pages / Pending Page Blacklist",
        "Retired Pages / Pending",
    ),
    "row_remap_pending": ("Remapped Rows / Pending",),
    "row_remap_failed": ("Remapped Rows / Remapping Failure Occurred",),
    "reset_required": ("GPU Reset Status / Reset Required",),
    "recovery_action": ("GPU Recovery Action",),
    "fabric_state": ("Fabric / State",),
    "fabric_status": ("Fabric / Status",),
}


@dataclass
class Log:
    """One report. ``attached`` is the count that it says itself."""

    driver: str | None = None
    cuda: str | None = None
    attached: int | None = None
    gpus: list[Gpu] = field(default_factory=list)
    complete: bool | None = None


def logs(found: Sequence[str], whole_end: bool = True) -> list[Log]:
    """All reports in these lines, in order; none when it isn't such an output.

    ``whole_end`` False: the last line may be cut, and counts when it says a word that is none's
    beginning, or what the same line of another GPU says.
    """
    made: list[Log] = []
    section: _Section | None = None
    end = -1 if whole_end else last_line(found)
    for place, line in enumerate(found):
        if place == end and not _closed(line, found):
            continue
        if LOG.search(line):
            _close(made, section)
            section = None
            made.append(Log())
        elif match := _GPU.match(line):
            _close(made, section)
            if not made:
                made.append(Log())
            section = _Section(match[1])
        elif section is not None:
            section.take(line)
        elif made:
            _head(line, made[-1])
    _close(made, section)
    kept = [log for log in made if log.gpus or log.driver or log.attached is not None]
    for log in kept:
        log.complete = _complete(log)
    return kept


def pick(fields: Mapping[str, str], paths: Mapping[str, tuple[str, ...]]) -> dict[str, str | None]:
    """For each attribute the text of the first of its paths that is there."""
    return {
        attribute: next((fields[path] for path in places if path in fields), None)
        for attribute, places in paths.items()
    }


def _closed(line: str, found: Sequence[str]) -> bool:
    value = line.partition(" : ")[2].strip()
    same = sum(other.rstrip() == line.rstrip() for other in found)
    return value in _WHOLE_WORDS or same > 1


def _head(line: str, log: Log) -> None:
    key, colon, value = line.partition(":")
    key, value = key.strip(" #>\t"), value.strip()
    if not colon or not value:
        return
    version = value.split()[0]  # 610 says behind it that the name is deprecated
    if key in ("Driver Version", "KMD Version"):
        log.driver = log.driver or version
    elif key in ("CUDA Version", "CUDA UMD Version"):
        log.cuda = log.cuda or (version if version[0].isdigit() else None)
    elif key == "Attached GPUs" and re.fullmatch(r"\d{1,4}", value):
        log.attached = int(value)


class _Section:
    """The fields of one GPU by path: the headings above a line are those with less indent."""

    def __init__(self, bus_id: str) -> None:
        self.bus_id = bus_id
        self.fields: dict[str, str] = {}
        self._above: list[tuple[int, str]] = []
        self._seen: Counter[str] = Counter()

    def take(self, line: str) -> None:
        match = _LINE.match(line.expandtabs()) if line.strip() else None
        if not match:
            return
        indent = len(match["indent"])
        while self._above and self._above[-1][0] >= indent:
            self._above.pop()
        parent = f"{self._above[-1][1]} / " if self._above else ""
        path = parent + match["key"]
        self._seen[path] += 1
        if self._seen[path] > 1:  # the second MIG Device, Process ID, …
            path = f"{path} #{self._seen[path]}"
        self._above.append((indent, path))
        if len(self._above) > 12:
            del self._above[0]
        if match["value"] is not None:
            self.fields[path] = match["value"].strip()


def _close(made: list[Log], section: _Section | None) -> None:
    if section is not None and made:
        texts = pick(section.fields, PATHS)
        texts["bus_id"] = section.bus_id
        made[-1].gpus.append(gpu(texts, section.fields))


def _complete(log: Log) -> bool | None:
    """False when GPUs or a GPU's last fields are missing; None when one GPU alone can't tell."""
    if log.attached is not None and log.attached != len(log.gpus):
        return False
    tops = [{path.split(" / ")[0].split(" #")[0] for path in one.fields} for one in log.gpus]
    if not tops:
        return log.attached == 0
    if len(tops) > 1:
        return tops[-1] >= tops[0]
    if "Product Name" in tops[0]:
        return "Processes" in tops[0] or "Compute Processes" in tops[0]
    return None
