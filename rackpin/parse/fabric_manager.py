"""NVIDIA fabric manager: its own log file, its journal, and how it says that versions differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rackpin.parse.loglines import Line

_RECORD = re.compile(
    r"\[(?P<level>INFO|ERROR|WARNING|WARN|CRITICAL|FATAL|DEBUG)\] \[tid \d+\] (?P<text>.*)$"
)
_MISMATCH = re.compile(
    r"fabric manager NVIDIA GPU driver interface version (?P<fm>\d+(?:\.\d+)+)\s+don't match"
    r"(?:\s+with driver version (?P<driver>\d+(?:\.\d+)+))?"
)
_STATE = re.compile(
    r"^\s*Fabric\s*\n\s*State\s+: ([A-Z][\w /]*?)\s*\n\s*Status\s+: ([\w /]+?)\s*$", re.M
)
_SWITCH = re.compile(
    r"detected NVSwitch (?P<severity>non-fatal|fatal) error "
    r"(?P<code>\d+) on fid \d+ on NVSwitch pci bus id "
    r"(?P<bus>[0-9a-fA-F:.]+) physical id \d+ port (?P<port>\d+)"
)
_MENTION = re.compile(
    r"nv-fabricmanager(?:\[|:)|nvidia-fabricmanager-start"
    r"|fabric manager NVIDIA|NVSwitch device information"
)


@dataclass(frozen=True)
class SwitchError:
    """An NVSwitch error as fabric manager reports it."""

    code: int
    severity: str
    bus: str
    port: int


@dataclass(frozen=True)
class FabricManager:
    """``errors``: texts of [ERROR] records and worse, one for each record. ``no_nvswitch``: it
    saw no NVSwitch, which is normal on PCIe machines and a fault on SXM ones. ``gpu_states``:
    ``State/Status`` of each GPU's Fabric section in ``nvidia-smi -q``."""

    records: int
    errors: tuple[str, ...]
    switch_errors: tuple[SwitchError, ...]
    version: str | None
    driver: str | None
    mismatch: bool
    no_nvswitch: bool
    gpu_states: tuple[str, ...] = ()


def fabric_manager(lines: Sequence[Line]) -> FabricManager | None:
    """What fabric manager says in these lines; None when it doesn't speak."""
    records, mentioned = 0, False
    errors: list[str] = []
    switch: list[SwitchError] = []
    joined = "\n".join(line.text for line in lines)
    for line in lines:
        mentioned = mentioned or bool(_MENTION.search(line.shown))
        if match := _RECORD.search(line.text):
            records += 1
            if match["level"] in ("ERROR", "CRITICAL", "FATAL"):
                errors.append(match["text"].strip())
        if match := _SWITCH.search(line.text):
            switch.append(
                SwitchError(int(match["code"]), match["severity"], match["bus"], int(match["port"]))
            )
    differs = _MISMATCH.search(joined)
    states = tuple(f"{match[1]}/{match[2]}" for match in _STATE.finditer(joined))
    if not (records or mentioned or differs or states):
        return None
    return FabricManager(
        records,
        tuple(errors),
        tuple(switch),
        differs["fm"] if differs else None,
        differs["driver"] if differs else None,
        bool(differs),
        "NV_WARN_NOTHING_TO_DO" in joined,
        states,
    )
