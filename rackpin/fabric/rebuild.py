"""Kernel modules that must be built again because the kernel, OFED or the driver moved."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rackpin.fabric.model import Fabric
from rackpin.stack.hostpins import RdmaPin

# dkms 2: "nvidia, 535.129.03, 6.5.0-45-generic, x86_64: installed"; dkms 3: "nvidia/535.129.03, …"
_STATUS = re.compile(r"([\w.+-]+)(?:/|, )([\w.+~:-]+), ([\w.+~-]+), (\w+): (\w+)")


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
    """What to build on this node. The OS's own stack comes with the kernel and needs nothing."""
    if pin is None or pin.stack == "inbox" or not fabric.hcas:
        return []
    built = dict(fabric.dkms.modules)
    times = {name.split(".")[0].replace("-", "_"): when for name, when in built.items()}
    todo = []
    if "mlx5_core" not in times:
        why = f"{pin.stack} has no modules for the running kernel {fabric.kernel}"
        todo.append(Rebuild(why, f"dkms autoinstall -k {fabric.kernel}", "mlx5_core"))
    symbols, peermem = fabric.dkms.symbols, times.get("nvidia_peermem")
    if symbols is not None and peermem is not None and peermem < symbols:
        for module, version, kernel, _ in status(fabric.dkms.status):
            if module.startswith("nvidia") and kernel == fabric.kernel:
                name = f"-m {module} -v {version} -k {kernel}"
                why = f"{pin.stack} is newer than nvidia-peermem, which was built against another"
                command = f"dkms build --force {name} && dkms install --force {name}"
                todo.append(Rebuild(why, command, "nvidia-peermem"))
    return todo
