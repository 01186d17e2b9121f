"""Who has a card open: an engine's orphan keeps its memory, the next start fails (F125, F126)."""

from __future__ import annotations

import re

from rackpin.checks import gpuinfo
from rackpin.checks.base import Command, Context
from rackpin.checks.host import PLACE, Answer, HostCheck
from rackpin.checks.procinfo import UNIT_PATTERN
from rackpin.driver.table import table

# Names only: command lines may hold keys.
HOLDERS = Command(
    "gpu.holders",
    PLACE
    + """echo '## holders'
timeout 10 find /proc/[0-9]*/fd -lname '/dev/nvidia[0-9]*' 2>/dev/null | cut -d / -f 3 | sort -un |
  while read -r p; do
    c=; s=; read -r c 2>/dev/null <"/proc/$p/comm"; [ -n "$c" ] || continue
    s=$(sed -n 's/^State:[^A-Z]*\\([A-Z]\\).*/\\1/p' "/proc/$p/status" 2>/dev/null)
    echo "$p|$c|${s:-?}|$(tail -n 1 "/proc/$p/cgroup" 2>/dev/null)"
  done
echo '## units'
systemctl list-units --all --plain --no-legend --no-pager 'ray-*.service' 'vllm@*.service' 2>&1
echo '## end'
""",
    deadline_s=15.0,
)
LIVE = ("active", "activating", "deactivating", "reloading")


def _holders(ctx: Context, answer: Answer) -> str:
    told, ours = answer.told, 0
    rows = [line.split() for line in answer.lines("units")]
    units = {row[0]: row[2] for row in rows if len(row) >= 4 and row[0].endswith(".service")}
    if len(units) < len(rows):
        told.untold.append("systemctl doesn't list our units")
    daemons = set(table()["daemons"])
    for line in answer.lines("holders"):
        fields = line.split("|", 3)
        if len(fields) != 4 or not fields[0].isdigit():
            told.untold.append(f"a process: {line[:80]}")
            continue
        pid, name, state, cgroup = fields
        who = f"{name}[{pid}]"
        unit = re.search(UNIT_PATTERN, cgroup)
        if state == "D":
            told.worries.append(f"{who} has a card open and hangs in the driver (state D)")
        if unit and units.get(f"{unit[1]}.service") in LIVE:
            ours += 1
        elif unit:
            told.faults.append(f"{who} is left over from {unit[1]}, which does not run")
        elif name not in daemons:
            where = cgroup.rpartition("/")[2] or "no unit"
            told.worries.append(f"{who} of {where} has a card open, and is none of ours")
    return f"{ours} processes of our units have cards open, nobody else"


CHECK = HostCheck(
    id="gpu.holders",
    title="Only our units and the driver's daemons have cards open",
    expected="no process of a stopped unit, none of anybody else",
    source="failures F125, F126",
    remedy="systemctl kill --kill-whom=all -s KILL UNIT (KillMode must not be process); one that "
    "stays in state D ends only with a reboot",
    parts=("holders", "units"),
    look=_holders,
    command=HOLDERS,
    asks=gpuinfo.has_cards,
)
