"""CPUs: all online, one microcode, the governor; memory alike on all NUMA nodes."""

from __future__ import annotations

import re

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.host import Answer, HostCheck

GOVERNOR = "performance"
LOPSIDED = 0.75  # a NUMA node with less than this of the largest one has lost a DIMM, or a channel


def numbers(text: str) -> set[int] | None:
    """``0-3,8`` as the kernel prints sets of CPUs; None when it is no such list."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        if not match:
            return None
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def counted(answer: Answer, part: str, key: str = "") -> dict[str, int]:
    """``COUNT key : value`` lines of ``uniq -c``: count by value."""
    found: dict[str, int] = {}
    for line in answer.lines(part):
        match = re.fullmatch(r"\s*(\d+) (?:([a-z ]+?) ?: ?)?(.*)", line)
        if match and (match[2] or "") == key:
            found[match[3].strip()] = int(match[1])
    return found


def _cpu(ctx: Context, answer: Answer) -> str:
    told = answer.told
    words = dict(line.split(" ", 1) for line in answer.lines("cpu") if line[:1] in "po")
    present, online = (numbers(words.get(key, "")) for key in ("present", "online"))
    models = counted(answer, "cpu", "model name")
    if not present or not online:
        told.untold.append("which CPUs are online")
    elif off := present - online:
        told.worries.append(f"{len(off)} of {len(present)} CPUs are offline")
    if len(models) > 1:
        told.worries.append(f"{len(models)} models of CPU: {', '.join(models)}")
    codes = counted(answer, "cpu", "microcode")
    if len(codes) > 1:
        told.faults.append(f"CPUs run different microcode: {', '.join(codes)}")
    governors = counted(answer, "governor")
    slow = {word: count for word, count in governors.items() if word != GOVERNOR}
    if slow and gpuinfo.has_cards(ctx) and answer.place.bare_metal:
        said = ", ".join(f"{count} CPUs {word}" for word, count in slow.items())
        told.worries.append(f"governor is not {GOVERNOR}: {said}")
    _numa(answer)
    return f"{len(online or ())} CPUs online: {', '.join(models) or 'model not told'}"


def _numa(answer: Answer) -> None:
    sizes: dict[str, int] = {}
    for line in answer.lines("numa"):
        name, _, amount = line.partition(" ")
        if amount.strip().isdigit() and int(amount):
            sizes[name] = int(amount)
    # Nodes without memory are of other kinds (accelerators, CXL), and a board may have them.
    for name, size in sizes.items():
        if size < LOPSIDED * max(sizes.values()):
            largest = max(sizes.values()) / 2**20
            answer.told.worries.append(
                f"NUMA {name} has {size / 2**20:.0f} GiB, another has {largest:.0f}"
            )


CHECK = HostCheck(
    id="cpu",
    title="CPUs and memory are all there, and run at full clock",
    expected=f"all CPUs online, one microcode, governor {GOVERNOR} with cards, NUMA nodes alike",
    source="kernel docs: cpufreq, NUMA",
    remedy="offline CPUs and lopsided memory: the BIOS's log, then DIMMs; microcode: update the "
    "package or BIOS and reboot; cpupower frequency-set -g performance",
    parts=("cpu", "governor", "numa"),
    look=_cpu,
)
