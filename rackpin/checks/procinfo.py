"""The processes of our units as ``/proc`` has them: limits, environment in use, program."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackpin import layout
from rackpin.checks.base import NO_ANSWER, Command, Outputs, unseen

SERVING_UNITS = "ray-head|ray-worker|vllm@[^/:]+"
UNIT_PATTERN = rf"/({SERVING_UNITS})\.service(/|$)"
# One program per question over all processes, not one per process: Ray keeps hundreds.
# Command lines are not read: what is shown in a report must not hold a key.
COMMAND = Command(
    "procs",
    f"""\
cd /proc || exit 71
echo '## self'; cat self/cgroup || exit 71
p=$(grep -sE '{UNIT_PATTERN}' [0-9]*/cgroup | cut -d/ -f1 | sort -un)
f() {{ for i in $p; do printf '%s/%s ' "$i" "$1"; done; }}
echo '## cgroup'; [ -z "$p" ] || grep -sHE '{UNIT_PATTERN}' $(f cgroup)
echo '## comm'; [ -z "$p" ] || grep -sH '' $(f comm)
echo '## exe'; [ -z "$p" ] || find $(f exe) -maxdepth 0 -printf '%p:%l\\n' 2>/dev/null
echo '## limits'; [ -z "$p" ] || grep -sHE '^Max (locked memory|open files) ' $(f limits)
echo '## maps'; [ -z "$p" ] || grep -soHE '{layout.ENV_DIR}/[^/ ]+' $(f maps) | sort -u
echo '## environ'
[ -z "$p" ] || grep -szHE '^VLLM_HOST_IP=' $(f environ) | tr '\\0' '\\n'
echo '## end'
""",
    deadline_s=15,
)


@dataclass
class Proc:
    """One process of one of our units. Limits are bytes or files; inf for ``unlimited``."""

    pid: int
    unit: str = ""  # with .service
    comm: str = ""
    exe: str = ""
    memlock: float | None = None  # soft limit, the one that counts
    nofile: float | None = None
    envs: set[str] = field(default_factory=set)  # environments it maps files of
    host_ip: str | None = None  # VLLM_HOST_IP, where the process still shows its environment

    def __str__(self) -> str:
        return f"{self.comm or 'process'}[{self.pid}]"


class Unreadable(ValueError):
    """The survey's text is not what the command prints."""


def parse(text: str) -> dict[int, Proc]:
    """Processes by pid. :class:`Unreadable` when the text isn't a whole survey."""
    section = ""
    procs: dict[int, Proc] = {}
    seen = set()
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
            seen.add(section)
            continue
        match = re.match(r"(\d+)/[a-z]+:(.*)", line)
        if not match or section == "self":
            continue
        pid, value = int(match[1]), match[2]
        proc = procs.setdefault(pid, Proc(pid))
        if section == "cgroup":
            unit = re.search(UNIT_PATTERN, value)
            proc.unit = f"{unit[1]}.service" if unit else proc.unit
        elif section == "comm":
            proc.comm = value
        elif section == "exe":
            proc.exe = value
        elif section == "limits":
            _limit(proc, value)
        elif section == "maps":
            proc.envs.add(value)
        elif section == "environ":
            proc.host_ip = value.partition("=")[2]
    if not {"self", "cgroup", "limits", "maps", "end"} <= seen:
        raise Unreadable("the survey of /proc is not whole")
    # A process that ended between two of the questions has no unit or no limits any more.
    return {pid: proc for pid, proc in procs.items() if proc.unit}


def _limit(proc: Proc, line: str) -> None:
    match = re.match(r"Max (locked memory|open files)\s+(\S+)", line)
    if not match:
        return
    value = float("inf") if match[2] == "unlimited" else None
    if match[2].isdigit():
        value = float(match[2])
    if match[1] == "locked memory":
        proc.memlock = value
    else:
        proc.nofile = value


def read(outputs: Outputs) -> tuple[dict[int, Proc] | None, str]:
    """Processes by pid, or None and why they are not known."""
    output = outputs.get(COMMAND.name, NO_ANSWER)
    if why := unseen(COMMAND, output):
        return None, why
    try:
        return parse(output.stdout), ""
    except Unreadable as error:
        return None, str(error)


def of_unit(procs: dict[int, Proc], unit: str) -> list[Proc]:
    return [proc for proc in procs.values() if proc.unit == unit]
