"""The errors of a system text, in words: what its tools report as their own failure."""

from __future__ import annotations

from rackpin.parse.apt_output import Apt, Unmet
from rackpin.parse.dkms import DkmsModule
from rackpin.parse.fabric_manager import FabricManager
from rackpin.parse.kernel_log import Kernel
from rackpin.parse.modules import Modules

# Links that containers make and take down all day.
_VIRTUAL = ("veth", "docker", "br-", "cali", "cni", "flannel", "lxc", "tap", "vnet", "virbr")


def errors_of(
    messages: Kernel,
    mods: Modules,
    built: tuple[DkmsModule, ...],
    packages: Apt | None,
    fabric: FabricManager | None,
    unit_errors: tuple[str, ...],
) -> tuple[str, ...]:
    """Each error once, hardware first. Xids of applications are errors too."""
    said = [f"Xid {x.code} on {x.bus or 'a GPU'} ({x.count} lines)" for x in messages.xids]
    said += [f"SXid {s.code} on {s.device} {s.bus} ({s.count} lines)" for s in messages.sxids]
    if messages.mismatch:
        said.append(
            f"driver/library version mismatch: library {messages.mismatch.user}, "
            f"module {messages.mismatch.module}"
        )
    said += [f"{name} ({count} lines)" for name, count in messages.faults.items()]
    said += [f"{s.module}: {s.problem} {s.symbol}" for s in messages.symbols]
    said += [
        f"{m.module} is built for kernel {m.module_kernel}, running {m.running_kernel}"
        for m in messages.version_magic
    ]
    said += [f"out of memory: killed {o.process} ({o.pid})" for o in messages.oom]
    said += [
        f"{name}: lost carrier {times} times"
        for name, times in messages.lost_carrier.items()
        if not name.startswith(_VIRTUAL)
    ]
    said += [f"could not {r.action} {r.module}: {r.why}" for r in mods.refused]
    said += _dkms(built, mods.loaded_version)
    if packages:
        said += [_needs(unmet) for unmet in packages.unmet]
        said += [f"key missing: {key}" for key in packages.missing_keys]
        said += packages.errors
    if fabric:
        if fabric.mismatch:
            said.append(
                f"fabric manager {fabric.version} doesn't match driver {fabric.driver or '(cut)'}"
            )
        said += fabric.errors
        if fabric.no_nvswitch and not fabric.errors:
            said.append("fabric manager saw no NVSwitch (NV_WARN_NOTHING_TO_DO)")
    said += unit_errors
    if (
        mods.modinfo
        and mods.running_kernel
        and mods.modinfo.kernel not in (None, mods.running_kernel)
    ):
        said.append(f"module for kernel {mods.modinfo.kernel}, running {mods.running_kernel}")
    return tuple(dict.fromkeys(said))


def _dkms(built: tuple[DkmsModule, ...], loaded: str | None) -> list[str]:
    """NVIDIA modules that are not installed as built, or are not the loaded ones."""
    ours = [module for module in built if module.module.startswith("nvidia")]
    said = [
        f"dkms: {m.module} {m.version} is {m.state}, not installed"
        for m in ours
        if m.state != "installed"
    ]
    said += [
        f"dkms: {m.module} {m.version} on {m.kernel}: installed files differ from those built"
        for m in ours
        if m.differs
    ]
    if loaded and ours and loaded not in {module.version for module in ours}:
        said.append(
            f"loaded module {loaded} is none of dkms ({', '.join(m.version for m in ours)})"
        )
    return said


def _needs(unmet: Unmet) -> str:
    bound = f" ({unmet.op} {unmet.version})" if unmet.op else ""
    but = f", but {unmet.reason}" if unmet.reason else ""
    return f"{unmet.package or '?'} {unmet.relation.lower()} {unmet.needs}{bound}{but}"
