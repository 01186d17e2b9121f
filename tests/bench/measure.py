"""One program run to its end: seconds, CPU, memory; and what rackpin counted meanwhile."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PEAK_S = 0.05  # between two looks at a program's memory


class BenchError(Exception):
    """A run that can't be compared: it failed, or changed what it had to leave alone."""


@dataclass
class Measured:
    """One run. ``load`` is the machine's one-minute load when it began."""

    step: str  # scale, compare, latency, build, verify
    tool: str  # rackpin, ansible, stock
    kind: str  # no-op, change, build, verify
    nodes: int
    wall_s: float
    cpu_s: float  # user and system time of the controller and its children
    rss_mb: float  # most memory of the controller's first process
    load: float
    more: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Ended:
    code: int
    text: str
    wall_s: float
    cpu_s: float
    rss_mb: float
    load: float


def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, deadline_s: float) -> Ended:
    """Run a program; BenchError when it passes its deadline."""
    load = os.getloadavg()[0]
    # An operator's machine keeps compiled modules, also of the tools that are compared.
    usual = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        env={**usual, **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    late = threading.Timer(deadline_s, process.kill)
    late.start()
    peak = Peak(process.pid)
    peak.start()
    try:
        assert process.stdout is not None
        text = process.stdout.read().decode(errors="replace")
        # of this child alone, whatever ran before
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
    finally:
        late.cancel()
        peak.ended.set()
    process.returncode = os.waitstatus_to_exitcode(status)
    if wall >= deadline_s:
        raise BenchError(f"{argv[0]} did not end within {deadline_s:g} s:\n{text[-3000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Ended(process.returncode, text, wall, cpu, peak.mb, load)


class Peak(threading.Thread):
    """The most memory of a process. The kernel's own ru_maxrss begins with its parent's."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.status, self.mb, self.ended = Path(f"/proc/{pid}/status"), 0.0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(PEAK_S):
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self.status.read_text())
            except OSError:
                return  # it has ended
            if found:
                self.mb = int(found[1]) / 1024


def measured(step: str, tool: str, kind: str, nodes: int, ended: Ended, **more: Any) -> Measured:
    wall, cpu, rss = round(ended.wall_s, 2), round(ended.cpu_s, 2), round(ended.rss_mb, 1)
    return Measured(step, tool, kind, nodes, wall, cpu, rss, round(ended.load, 2), dict(more))


def counted(path: Path) -> dict[str, Any]:
    """Of RACKPIN_COUNTS: executions and bytes per node as least and most, operations, misses."""
    counts = json.loads(path.read_text())
    total = {name: counts["sent"][name] + counts["received"][name] for name in counts["sent"]}
    spread = {"executions": counts["executions"], "bytes_per_node": total}
    found = {key: [min(by.values()), max(by.values())] for key, by in spread.items()}
    for key in ("sent", "received"):
        found[f"{key}_per_node"] = [round(statistics.mean(counts[key].values()))]
    return found | {"operations": counts["operations"], "misses": counts["misses"]}


def median_of(runs: Sequence[Measured]) -> Measured:
    """The run with the middle wall time; all of them stay in ``more``."""
    chosen = sorted(runs, key=lambda r: r.wall_s)[(len(runs) - 1) // 2]
    chosen.more["all_wall_s"] = [r.wall_s for r in runs]
    return chosen
