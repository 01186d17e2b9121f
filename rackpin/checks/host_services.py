"""System services that the stack stands on; packages that are whole (F027, F028, F054, F056)."""

from __future__ import annotations

from rackpin.checks import gpuinfo, unitinfo
from rackpin.checks.base import Context
from rackpin.checks.host import Answer, HostCheck

PERSISTENCED = "nvidia-persistenced.service"


def _services(ctx: Context, answer: Answer) -> str:
    told = answer.told
    units = unitinfo.parse_show(answer.parts["services"])
    if not units:
        told.untold.append("systemctl names no unit")
        return ""
    there = {name: unit for name, unit in units.items() if unit.get("LoadState") == "loaded"}
    for name, unit in units.items():
        state = unit.get("ActiveState", "")
        if not state or not unit.get("LoadState"):
            told.untold.append(f"{name}: its state")
        elif state == "failed":
            told.faults.append(f"{name} failed ({unit.get('Result') or 'result not told'})")
        elif name in there and unit.get("UnitFileState") == "enabled" and state == "inactive":
            _idle(name, unit, answer)
    if gpuinfo.has_cards(ctx) and answer.place.container is False:
        state = there.get(PERSISTENCED, {}).get("UnitFileState", "not installed")
        if state not in ("enabled", "static"):
            told.worries.append(f"{PERSISTENCED} is {state}: after a boot persistence is off")
    return f"{len(there)} services of the system, none failed"


def _idle(name: str, unit: dict[str, str], answer: Answer) -> None:
    """Enabled and not running: its condition wasn't met at boot (a container has several)."""
    if answer.place.container or name.startswith(("systemd-", "containerd")):
        return
    why = "its condition was not met at boot" if unit.get("ConditionResult") == "no" else "stopped"
    answer.told.worries.append(f"{name} is enabled and does not run: {why}")


def _packages(ctx: Context, answer: Answer) -> str:
    lines = answer.lines("dpkg")
    if lines and all(line.strip().isdigit() for line in lines):
        answer.told.faults.append("dpkg was interrupted: /var/lib/dpkg/updates is not empty")
    elif lines:
        named = [x.split()[0] for x in lines if x[:1] == " " and x.split()] or [lines[0][:80]]
        answer.told.faults.append(f"packages are half installed: {', '.join(named[:6])}")
    return "every package is whole"


SERVICES = HostCheck(
    id="services",
    title="The system's services that the stack needs run",
    expected="none failed, none enabled and left out at boot, nvidia-persistenced where cards are",
    source="failures F054, F056; NVIDIA, driver persistence",
    remedy="systemctl status UNIT, journalctl -b -u UNIT; persistenced with an unmet condition: "
    "the driver was loaded after it, start it now",
    parts=("services",),
    look=_services,
)
PACKAGES = HostCheck(
    id="packages",
    title="Every package is whole",
    expected="dpkg --audit names nothing",
    source="failures F027, F028",
    remedy="dpkg --configure -a, and read what the package's script says; then run the deploy",
    parts=("dpkg",),
    look=_packages,
)
