"""Disks: file systems that turned read-only, and what the drives say of themselves."""

from __future__ import annotations

import re

from rackpin.checks.base import Command, Context
from rackpin.checks.disk import paths
from rackpin.checks.host import PLACE, Answer, HostCheck

# One drive that hangs must not take the others' answers with it. -d is guessed by smartctl.
HEALTH = Command(
    "host.disks",
    PLACE
    + """echo '## drives'
for d in /dev/nvme[0-9]*n1 /dev/sd[a-z] /dev/sd[a-z][a-z]; do [ -b "$d" ] && echo "$d"; done
echo '## tool'; command -v smartctl || echo none
echo '## smart'
command -v smartctl >/dev/null && for d in /dev/nvme[0-9]*n1 /dev/sd[a-z] /dev/sd[a-z][a-z]; do
  [ -b "$d" ] || continue
  echo "drive $d"; timeout 5 smartctl -H -A "$d" 2>&1 | grep -E \\
    'result:|Health Status|Critical Warning|Available Spare|Percentage Used|Media and Data|Open dev'
  [ $? -eq 0 ] || echo 'nothing'
done
echo '## end'
""",
    deadline_s=40.0,
    slow=True,
)
WORN_PERCENT = 90  # of the endurance that the vendor states; at 100 its promise ends
_VALUE = re.compile(r"^(?P<key>[A-Za-z][A-Za-z -]*?)(?: Threshold)?:\s+(?P<value>\S+)")


def _mounts(ctx: Context, answer: Answer) -> str:
    told = answer.told
    mounts: dict[str, tuple[str, set[str]]] = {}
    for line in answer.lines("mounts"):
        words = line.split()
        if len(words) == 3:
            mounts[words[0]] = (words[1], set(words[2].split(",")))
    if "/" not in mounts:
        told.untold.append("the root's own line in /proc/mounts")
        return ""
    watched = {_holder(path, mounts) for path in [*paths(ctx), "/var", "/var/log", "/tmp"]}
    told.faults += [f"{mount} is mounted read-only" for mount in sorted(watched) if
                    "ro" in mounts[mount][1]]  # fmt: skip
    return f"{', '.join(sorted(watched))} can be written"


def _holder(path: str, mounts: dict[str, tuple[str, set[str]]]) -> str:
    """The mount point that a path lies on."""
    over = [m for m in mounts if m == "/" or path == m or path.startswith(f"{m}/")]
    return max(over, key=len)


def _drives(ctx: Context, answer: Answer) -> str:
    """``nvme`` and ``scsi``: the kernel's own word, without any tool."""
    told, seen = answer.told, 0
    for part, good in (("nvme", "live"), ("scsi", "running")):
        for line in answer.lines(part):
            fields = [field.strip() for field in line.split("|")]
            if len(fields) != 4:
                told.untold.append(f"a drive: {line[:80]}")
                continue
            seen += 1
            if fields[1] != good:
                state = fields[1] or "state not told"
                told.faults.append(f"{fields[0]} ({fields[2] or 'model not told'}) is {state}")
    return f"{seen} drives work" if seen else "no NVMe or SCSI drive"


def reports(answer: Answer) -> dict[str, list[str]]:
    """Lines of smartctl by drive."""
    found: dict[str, list[str]] = {}
    drive = ""
    for line in answer.lines("smart"):
        if line.startswith("drive "):
            drive = line.removeprefix("drive ").strip()
            found[drive] = []
        elif drive:
            found[drive].append(line.strip())
    return found


def _health(ctx: Context, answer: Answer) -> str | None:
    told, drives = answer.told, answer.lines("drives")
    if not drives:
        return None  # a container, a diskless node: disk.state says what the kernel sees
    if answer.lines("tool") in ([], ["none"]):
        told.untold.append("smartctl is not installed, so no drive was asked for its health")
        return None
    found = reports(answer)
    for drive in drives:
        _judge(drive, found.get(drive, []), answer)
    return f"{len(drives)} drives say they are healthy"


def _judge(drive: str, lines: list[str], answer: Answer) -> None:
    told = answer.told
    values = {m["key"]: m["value"] for line in lines if (m := _VALUE.match(line))}
    overall = [line.rpartition(":")[2].strip() for line in lines if "result:" in line]
    overall += [values[key] for key in ("SMART Health Status",) if key in values]
    if not overall:
        told.untold.append(f"{drive}: whether it is healthy")
    elif overall[0] not in ("PASSED", "OK"):
        told.faults.append(f"{drive} says of itself: {overall[0]}")
    if values.get("Critical Warning", "0x00") != "0x00":
        told.faults.append(f"{drive}: critical warning {values['Critical Warning']}")
    errors = _number(values.get("Media and Data Integrity Errors"))
    if errors:
        told.faults.append(f"{drive}: {errors} media errors")
    used = _number(values.get("Percentage Used"))
    if used is not None and used >= WORN_PERCENT:
        told.worries.append(f"{drive} is worn: {used} % of its endurance used")


def _number(text: str | None) -> int | None:
    digits = (text or "").rstrip("%").replace(",", "")
    return int(digits) if digits.isdigit() else None


MOUNTS = HostCheck(
    id="disk.mounts",
    title="No file system turned read-only",
    expected="file systems of the system, environments, logs and Ray can be written",
    source="kernel docs: ext4, errors=remount-ro",
    remedy="dmesg says which error made it so (see log.storage); replace the drive before fsck",
    parts=("mounts",),
    look=_mounts,
)
STATE = HostCheck(
    id="disk.state",
    title="The kernel works with every drive",
    expected="NVMe drives live, SCSI drives running",
    source="kernel docs: /sys/class/nvme, /sys/block",
    remedy="dmesg for the drive (see log.storage); reseat or replace it",
    parts=("nvme", "scsi"),
    look=_drives,
)
SMART = HostCheck(
    id="disk.health",
    title="The drives are healthy by their own account",
    expected=f"SMART passed, no critical warning, no media error, under {WORN_PERCENT} % worn",
    source="NVM Express: SMART / health information log",
    remedy="replace the drive; where smartctl is missing, install smartmontools",
    parts=("drives", "tool", "smart"),
    look=_health,
    command=HEALTH,
    level="node",
    may_miss=True,
)
