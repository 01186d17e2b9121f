"""Our units as systemd has them in force: no foreign drop-in, no other file, enabled."""

from __future__ import annotations

import re
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.sheet import Sheet, Unseen

UNIT_DIR = "/etc/systemd/system"
_SHOW = "Id,LoadState,FragmentPath,DropInPaths,NeedDaemonReload,UnitFileState"
_VENDOR = ("/usr/lib/", "/lib/")  # the OS's own, for all services
_OURS = re.compile(r"(ray-\w+|vllm@[^/]+|rackpin-[\w-]+)\.(service|timer)")


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Properties by unit from ``systemctl show -p Id,… UNIT…``."""
    units = {}
    for block in re.split(r"\n\s*\n", text):
        pairs = (line.partition("=") for line in block.splitlines() if "=" in line)
        found = {key: value for key, _, value in pairs}
        if found.get("Id"):
            units[found["Id"]] = found
    return units


def look_at_units(place: Place, wish: dict[str, Any], sheet: Sheet) -> None:
    for name in place.names(UNIT_DIR):
        if _OURS.fullmatch(name) and name not in wish["unit_files"]:
            sheet.differs("unit.extra", name, "no such unit", f"{UNIT_DIR}/{name}")
    if not wish["unit_files"]:
        return
    text = place.ask("systemctl", "show", "--no-pager", "-p", _SHOW, "--", *wish["unit_files"])
    units = parse_units(text)
    owned = {file["path"] for file in wish["files"]}
    for name in wish["unit_files"]:
        if name not in units or "FragmentPath" not in units[name]:
            raise Unseen(f"systemctl says nothing of {name}")
        compare_unit(name, units[name], name in wish["units"], owned, sheet)


def compare_unit(
    name: str, unit: dict[str, str], enabled: bool, owned: set[str], sheet: Sheet
) -> None:
    """One unit's properties; a unit that isn't installed is a missing file, said elsewhere."""
    if unit.get("LoadState") == "not-found":
        return
    before = sum(sheet.counts.values())
    if unit["FragmentPath"] != f"{UNIT_DIR}/{name}":
        found = unit["FragmentPath"] or unit.get("LoadState", "?")
        sheet.differs("unit.shadowed", name, f"{UNIT_DIR}/{name}", found)
    for path in unit.get("DropInPaths", "").split():
        if not path.startswith(_VENDOR) and path not in owned:
            sheet.differs("unit.dropin", name, "no drop-in", path)
    if unit.get("NeedDaemonReload") == "yes":
        sheet.differs("unit.reload", name, "loaded as on disk", "changed since it was loaded")
    if enabled and unit.get("UnitFileState") != "enabled":
        sheet.differs("unit.disabled", name, "enabled", unit.get("UnitFileState") or "disabled")
    if sum(sheet.counts.values()) == before:
        sheet.agrees("unit", name, "its own file, no foreign drop-in")
