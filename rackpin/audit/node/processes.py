"""What the running engines have loaded: which environment, and which NCCL."""

from __future__ import annotations

import mmap
import re
from pathlib import Path
from typing import Any

from rackpin.audit.node.place import Place
from rackpin.audit.node.sheet import Sheet

_OF_UNIT = re.compile(r"/(ray-head|ray-worker|vllm@[^/:\n]+)\.service(?:/|$)", re.MULTILINE)
_LIBRARY = re.compile(r"/libnccl\.so[^/]*$")  # not libnccl-net.so and other plugins
_DELETED = " (deleted)"


class Mapped:
    """Files that the processes of one unit have mapped."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.envs: dict[str, int] = {}  # environment -> processes
        self.nccl: dict[str, int] = {}  # path -> processes


def parse_maps(text: str, env_dir: str) -> tuple[set[str], set[str]]:
    """Environments, and paths of NCCL libraries, in one ``/proc/PID/maps``."""
    envs, libraries = set(), set()
    for line in text.splitlines():
        at = line.find("/")
        if at < 0:
            continue
        path = line[at:]
        if path.startswith(f"{env_dir}/"):
            envs.add("/".join(path.split("/")[: env_dir.count("/") + 2]))
        if "libnccl" in path and _LIBRARY.search(path.removesuffix(_DELETED)):
            libraries.add(path)
    return envs, libraries


def survey_processes(place: Place, env_dir: str) -> dict[str, Mapped]:
    """Mapped files by unit. A process that ends meanwhile is left out."""
    units: dict[str, Mapped] = {}
    for name in place.names("/proc"):
        if not name.isdigit():
            continue
        try:
            group = place.at(f"/proc/{name}/cgroup").read_text()
            match = _OF_UNIT.search(group)
            if not match:
                continue
            maps = place.at(f"/proc/{name}/maps").read_text(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = units.setdefault(f"{match[1]}.service", Mapped())
        found.pids.append(int(name))
        envs, libraries = parse_maps(maps, env_dir)
        for table, items in ((found.envs, envs), (found.nccl, libraries)):
            for item in items:
                table[item] = table.get(item, 0) + 1
    return units


def look_at_processes(place: Place, wish: dict[str, Any], sheet: Sheet) -> None:
    env = wish["environment"]
    units = survey_processes(place, env["path"].rpartition("/")[0])
    for unit, mapped in sorted(units.items()):
        for used, count in sorted(mapped.envs.items()):
            if used == env["path"]:
                sheet.agrees("running", unit, f"{count} processes use it")
            else:
                found = f"{count} of {len(mapped.pids)} processes use {used}"
                sheet.differs("running.env", unit, env["path"], found)
    compare_nccl(place, units, wish, sheet)


def compare_nccl(
    place: Place, units: dict[str, Mapped], wish: dict[str, Any], sheet: Sheet
) -> None:
    """The library that was really mapped: from the locked distribution, at its version."""
    locked = wish["nccl"]
    expected = f"{locked['version']} of {locked['dist']}" if locked else "none"
    for unit, mapped in sorted(units.items()):
        for path, count in sorted(mapped.nccl.items()):
            file = path.removesuffix(_DELETED)
            version = library_version(place.at(file)) if file == path else "deleted since"
            inside = file.startswith(f"{wish['environment']['path']}/")
            if locked and inside and version == locked["version"]:
                sheet.agrees("nccl", unit, f"{version}, {path} in {count} processes")
            else:
                found = f"{version}, {path} in {count} processes"
                sheet.differs("nccl.mapped", unit, expected, found)
    silent = [unit for unit in wish["engines"] if not (unit in units and units[unit].nccl)]
    if locked and silent:
        sheet.could_not("nccl", f"no process of {', '.join(silent)} has an NCCL mapped")


def library_version(path: Path) -> str:
    """``2.19.3``: what the library says of itself, from its bytes; nothing is loaded."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = re.search(rb"NCCL version (\d+(?:\.\d+)+)", data)
            return match[1].decode() if match else "unknown version"
    except (OSError, ValueError) as error:
        return f"unreadable ({error})"
