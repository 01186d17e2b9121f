"""Memory of the host: errors that the hardware reported, what is left, /dev/shm (F099, F114)."""

from __future__ import annotations

import re

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.host import Answer, HostCheck

CORRECTED_WARN = 100  # since boot; a DIMM that works corrects a few in a year
FREE_WARN, FREE_FAIL = 0.10, 0.03  # of all memory; Ray kills workers at its own threshold before
# NCCL asks some 10 MB for each channel and peer: Docker's default of 64 MiB is what breaks (F099).
SHM_FAIL_KIB, SHM_WARN_KIB = 64 * 1024, 1024 * 1024


def kib(answer: Answer) -> dict[str, int]:
    """/proc/meminfo in KiB."""
    pairs = (re.match(r"(\w+):\s+(\d+) kB$", line) for line in answer.lines("memory"))
    return {match[1]: int(match[2]) for match in pairs if match}


def _errors(ctx: Context, answer: Answer) -> str:
    told, rows = answer.told, answer.lines("edac")
    corrupt = kib(answer).get("HardwareCorrupted")
    for row in rows:
        match = re.fullmatch(r"(mc\d+) ce=(\d+) ue=(\d+)", row)
        if not match:
            told.untold.append(f"memory controller: {row}")
            continue
        corrected, uncorrected = int(match[2]), int(match[3])
        if uncorrected:
            told.faults.append(f"{match[1]}: {uncorrected} memory errors not corrected")
        if corrected:
            text = f"{match[1]}: {corrected} memory errors corrected since boot"
            if corrected >= CORRECTED_WARN:
                told.worries.append(text)
            answer.metrics["corrected_count"] = answer.metrics.get("corrected_count", 0) + corrected
    if corrupt:
        told.faults.append(f"the kernel took {corrupt} KiB of corrupt memory out of use")
    elif "MemTotal" not in kib(answer):
        told.untold.append("/proc/meminfo")
    if not rows:
        return "no corrupt page; the kernel watches no memory controller here"
    return f"no uncorrected error on {len(rows)} memory controllers"


def _free(ctx: Context, answer: Answer) -> str:
    found = kib(answer)
    total, free = found.get("MemTotal"), found.get("MemAvailable")
    if not total or free is None:
        answer.told.untold.append("how much memory is available")
        return ""
    text = f"{free / 2**20:.1f} of {total / 2**20:.0f} GiB available"
    listed = answer.told.faults if free < FREE_FAIL * total else answer.told.worries
    if free < FREE_WARN * total:
        listed.append(f"memory is short: {text}")
    answer.metrics["available_percent"] = round(100 * free / total, 1)
    return text


def _shm(ctx: Context, answer: Answer) -> str | None:
    if not (ctx.node.in_ray or gpuinfo.has_cards(ctx)):
        return None  # nobody shares memory there
    text = "".join(answer.lines("shm"))
    match = re.fullmatch(r"\S+\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s+(\S+)", text)
    if not match or match[4] != "/dev/shm":
        answer.told.untold.append("the size of /dev/shm: it is not a file system of its own")
        return ""
    size, free = int(match[1]), int(match[3])
    text = f"/dev/shm has {size / 1024:.0f} MiB, {free / 1024:.0f} free"
    if min(size, free) <= SHM_FAIL_KIB:
        answer.told.faults.append(text)
    elif min(size, free) < SHM_WARN_KIB:
        answer.told.worries.append(text)
    return text


ERRORS = HostCheck(
    id="memory.errors",
    title="The host's memory has no errors",
    expected=f"nothing uncorrected, fewer than {CORRECTED_WARN} corrected errors since boot",
    source="kernel docs: EDAC; /proc/meminfo HardwareCorrupted",
    remedy="ras-mc-ctl --errors or the BMC's event log names the DIMM: replace it",
    parts=("edac", "memory"),
    look=_errors,
)
FREE = HostCheck(
    id="memory.free",
    title="Memory is left",
    expected=f"{FREE_WARN:.0%} of memory available, at the least {FREE_FAIL:.0%}",
    source="failures F114: Ray kills workers when memory runs out",
    remedy="ps axo rss,comm --sort -rss | head; a leak, or more engines than fit",
    parts=("memory",),
    look=_free,
)
SHM = HostCheck(
    id="shm",
    title="/dev/shm is large enough for engines and NCCL",
    expected=f"more than {SHM_WARN_KIB // 1024} MiB free where engines run",
    source="failures F099",
    remedy="see what lies in /dev/shm (ls -lS), remove leftovers of dead engines; "
    "mount -o remount,size=… /dev/shm, and its line in /etc/fstab",
    parts=("shm",),
    look=_shm,
)
