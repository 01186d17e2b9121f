"""The units a node should run, and what ``systemctl show`` says of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackpin import layout
from rackpin.checks.base import Command, Context
from rackpin.inventory import Instance

PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,MainPID,ExecMainStatus,FragmentPath,"
    "DropInPaths,NeedDaemonReload,UnitFileState,ActiveEnterTimestamp,TimeoutStartUSec,KillMode,"
    "ControlGroup,TasksMax"
)
# systemd's own spelling of "no limit" in older versions.
UINT64_MAX = str(2**64 - 1)
_SPAN = {
    "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800,
    "month": 2629800, "y": 31557600,
}  # fmt: skip


@dataclass(frozen=True)
class Expected:
    """A unit that should be there; ``instance`` for an engine's."""

    unit: str
    instance: Instance | None = None

    @property
    def short(self) -> str:
        return self.unit.removesuffix(".service")


def expected_units(ctx: Context) -> list[Expected]:
    """Ray's unit by the node's group, and one unit for each engine whose API server is here."""
    units = []
    if ctx.node.is_head:
        units.append(Expected(layout.RAY_HEAD_UNIT))
    elif ctx.fleet.in_ray(ctx.node):
        units.append(Expected(layout.RAY_WORKER_UNIT))
    for instance in ctx.fleet.instances_on(ctx.node):
        units.append(Expected(layout.vllm_unit(instance.name), instance))
    return units


def show_command(ctx: Context) -> Command | None:
    """One ``systemctl show`` over all expected units; None when the node runs none."""
    units = " ".join(expected.unit for expected in expected_units(ctx))
    if not units:
        return None
    return Command("units.show", f"systemctl show --no-pager -p {PROPERTIES} -- {units}")


def parse_show(text: str) -> dict[str, dict[str, str]]:
    """Properties by unit from ``systemctl show -p Id,… UNIT…`` (blocks split by blank lines)."""
    units: dict[str, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.split("=", 1) for line in block.splitlines() if "=" in line)
        properties = {key.strip(): value.strip() for key, value in pairs}
        if properties.get("Id"):
            units[properties["Id"]] = properties
    return units


def timespan(text: str) -> float | None:
    """Seconds of systemd's ``1min 30s``; inf for ``infinity``; None when it is neither."""
    if text == "infinity":
        return float("inf")
    total = 0.0
    for part in text.split():
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", part)
        if not match or match[2] not in _SPAN:
            return None
        total += float(match[1]) * _SPAN[match[2]]
    return total if text.split() else None
