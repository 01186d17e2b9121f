"""Kernel modules that must be built again because the kernel, OFED or the driver moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rackpin.fabric.model import Fabric
from rackpin.stack.hostpins import RdmaPin

# dkms 2: "nvidia, 535.129.03, 6.5.0-45-generic, x86_64: installed"; dkms 3: "nvidia/535.129.03, …"
_STATUS = re.compile(r"([\w.+-]+)(?:/|, )([\w.+~:-]+), ([\w.+~-]+), (\w+): (\w+)")

PEERMEM = "nvidia-peermem"
_ADDED = re.compile(r"gdrdrv(?:/|, )([\w.+~:-]+?)(?:, .*)?: added")  # known to dkms, never built


@dataclass(frozen=True)
class Rebuild:
    """One command that builds, and the module that must then be there for the running kernel."""

    why: str
    command: str
    module: str


def status(lines: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    """Module, version, kernel and state of the lines of ``dkms status`` that have all four."""
    found = (_STATUS.match(line) for line in lines)
    return [(m[1], m[2], m[3], m[5]) for m in found if m]


def needed(fabric: Fabric, pin: RdmaPin | None) -> list[Rebuild]:
    """What to build on this node, in this order: a later one may need an earlier one's symbols."""
    if not fabric.hcas:
        return []
    # The OS's own stack comes with the kernel and needs nothing.
    own = pin.stack if pin and pin.stack != "inbox" else ""
    network = list(_network(fabric, own)) if own else []
    driver_anew = any(item.module == PEERMEM for item in network)
    return [*network, *_gdrcopy(fabric, driver_anew)]


def _times(fabric: Fabric) -> dict[str, int]:
    """When each module of the running kernel was built, by its name as loaded."""
    return {name.split(".")[0].replace("-", "_"): when for name, when in fabric.dkms.modules}


def _network(fabric: Fabric, stack: str) -> Iterator[Rebuild]:
    times, symbols = _times(fabric), fabric.dkms.symbols
    if "mlx5_core" not in times:
        why = f"{stack} has no modules for the running kernel {fabric.kernel}"
        yield Rebuild(why, f"dkms autoinstall -k {fabric.kernel}", "mlx5_core")
    if symbols is not None and times.get("nvidia_peermem", symbols) < symbols:
        for module, version, kernel, _ in status(fabric.dkms.status):
            if module.startswith("nvidia") and kernel == fabric.kernel:
                why = f"{stack} is newer than nvidia-peermem, which was built against another"
                yield Rebuild(why, _again(module, version, kernel), PEERMEM)


def _gdrcopy(fabric: Fabric, driver_anew: bool) -> Iterator[Rebuild]:
    """gdrdrv where it is: it takes symbols of the driver, which must be the same one's (F061)."""
    rows = [row for row in status(fabric.dkms.status) if row[0] == "gdrdrv"]
    added = [m[1] for line in fabric.dkms.status if (m := _ADDED.fullmatch(line))]
    here = [row for row in rows if row[2] == fabric.kernel and row[3] == "installed"]
    versions = [row[1] for row in rows] or added
    times = _times(fabric)
    if versions and not here:
        why = f"gdrdrv {versions[-1]} is not built for the running kernel {fabric.kernel}"
        command = f"dkms install -m gdrdrv -v {versions[-1]} -k {fabric.kernel}"
        yield Rebuild(why, command, "gdrdrv")
    elif here and (driver_anew or times.get("gdrdrv", 0) < times.get("nvidia", 0)):
        why = "the driver was built after gdrdrv, which took another one's symbols"
        yield Rebuild(why, _again("gdrdrv", here[0][1], fabric.kernel), "gdrdrv")


def _again(module: str, version: str, kernel: str) -> str:
    name = f"-m {module} -v {version} -k {kernel}"
    return f"dkms build --force {name} && dkms install --force {name}"
