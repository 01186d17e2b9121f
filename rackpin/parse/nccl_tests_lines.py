"""The lines around nccl-tests' table: banners, devices, summary, failures, and what they say."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rackpin.parse.nccl_tests_rows import Rows

OPS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoallv",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
    "hypercube",
)
TAG = re.compile(r"\[[^\]\s]{1,200}\]<std(?:out|err|diag)>: ?")
_OP = re.compile(rf"(?<![\w-])({'|'.join(OPS)})_perf(?:_mpi)?(?![\w.]*\.(?:cu|cc|log|txt)\b)\b")
_CONCLUDED = re.compile(r"Collective test (starting|concluded): (\w+)")
_THREADS = re.compile(r"nThread +(\d+) +nGpus +(\d+) +minBytes +(\d+) +maxBytes +(\d+)")
_VALIDATION = re.compile(r"\bvalidation: *(\d+)")
_VERSION = re.compile(r"nccl-tests version (\S+)(?:.*?nccl-library=(\d+))?")
_NCCL = re.compile(r"NCCL version (\d+\.\d+[\w.+-]*)")
_REDUCED = re.compile(r"Reducing maxBytes to (\d+)")
_RANK = re.compile(
    r"Rank +(?P<rank>\d{1,7})(?: +Group +\d+)?(?: +Pid +\d+)? +on +(?P<host>\S+) +device +\d+ +"
    r"\[[^\]]{1,40}\] *(?P<name>.*?)\s*$"
)
_BOUNDS = re.compile(r"Out of bounds values *: *(\d+) *(OK|FAILED)?")
_AVERAGE = re.compile(r"Avg bus bandwidth *: *(\S+) *(OK|FAILED)?")
_FAILURE = re.compile(
    r"(?:(?:NCCL|CUDA|MPI|CURAND|CuRAND) failure |Test (?:NCCL|CUDA|MPI) failure |Test timeout "
    r"|Invalid number of GPUs|Incompatible NCCL versions|invalid (?:type|op|option|size)"
    r"|error while loading shared libraries|is not supported by this test"
    r"|Segmentation fault|Bus error|CUDA error|an illegal memory access"
    r"|There are not enough slots|(?:ORTE|PRTE) (?:has lost|was unable)|MPI_ABORT was invoked"
    r"|MPI_Init.* failed|srun: error: |slurmstepd: error: |exited on signal \d+"
    r"|exited with non-zero status)"
)
_SOURCE = re.compile(rf"\b({'|'.join(OPS)})\.cu:\d+")
_CONSEQUENCE = re.compile(r"pid +\d+: Test failure ")
EXIT = re.compile(r"Exit(?:ed with exit)? code:? *(\d{1,3})\s*$")
LONGEST = 2000
PROMPT = re.compile(r"\s*\[?\S*@\S*[^#$]{0,80}[#$]\s*$")  # a shell's, with nothing typed


@dataclass
class Seen:
    """One run as far as it was read."""

    table: Rows = field(default_factory=Rows)
    op: str | None = None
    next_op: str | None = None  # named below this run, and so of the next
    banners: set[str] = field(default_factory=set)
    ranks: dict[int, tuple[str, str]] = field(default_factory=dict)
    list_is_last: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    sizes: tuple[int, int] | None = None
    reduced: int | None = None
    validation: bool | None = None
    bounds: tuple[int, str | None] | None = None
    average: tuple[str, str | None] | None = None
    errors: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    @property
    def summed(self) -> bool:
        return self.bounds is not None or self.average is not None

    @property
    def empty(self) -> bool:
        known = (self.table.rows, self.banners, self.ranks, self.errors, self.table.header)
        return not any(known) and not self.summed and not self.table.unreadable


def banner(text: str, seen: list[Seen]) -> bool:
    if match := _CONCLUDED.search(text):
        if match[1] == "concluded":
            seen[-1].op = seen[-1].op or match[2]
        else:
            _begin(seen, "starting").op = match[2]
    elif match := _THREADS.search(text):
        one = _begin(seen, "threads")
        one.sizes = (int(match[3]), int(match[4]))
        if validation := _VALIDATION.search(text):
            one.validation = validation[1] != "0"
    elif match := _VERSION.search(text):
        one = _begin(seen, "version")
        one.versions |= {"tests": match[1]} | ({"library": match[2]} if match[2] else {})
    elif match := _RANK.search(text):
        rank = int(match["rank"])
        if rank in seen[-1].ranks and seen[-1].table.rows:
            _begin(seen, "ranks")
        seen[-1].ranks.setdefault(rank, (match["host"], match["name"]))
        seen[-1].list_is_last = True
    elif match := _REDUCED.search(text):
        seen[-1].reduced = int(match[1])
    elif match := _NCCL.search(text):
        seen[-1].versions.setdefault("nccl", match[1])
        seen[-1].list_is_last = False
    else:
        return False
    return True


def _begin(seen: list[Seen], banner: str) -> Seen:
    """The run that this line of a banner belongs to: a new one when the last has it or is over."""
    one = seen[-1]
    if banner in one.banners or one.table.rows or one.summed or banner == "ranks":
        one.table.drop()
        seen.append(Seen(op=one.next_op))
    seen[-1].banners.add(banner)
    return seen[-1]


def summary(text: str, one: Seen, cut: bool) -> bool:
    if match := _BOUNDS.search(text):
        if match[2] or not cut:
            one.bounds = (int(match[1]), match[2])
    elif match := _AVERAGE.search(text):
        if match[2] or not cut:
            one.average = (match[1], match[2])
    else:
        return False
    one.table.drop()
    return True


def failure(text: str, one: Seen) -> bool:
    if _FAILURE.search(text):
        one.errors[text.strip(" #\t")] = None
        if one.op is None and (match := _SOURCE.search(text)):
            one.op = f"{match[1]}_perf"
    elif _CONSEQUENCE.search(text):
        one.warnings[text.strip()] = None
    else:
        return False
    one.list_is_last = False
    return True


def log_line(text: str, one: Seen) -> None:
    """A message of NCCL's own log."""
    one.list_is_last = False
    if match := _NCCL.search(text):
        one.versions.setdefault("nccl", match[1])
    if "NCCL WARN" in text and len(text) <= LONGEST:
        one.warnings[text.strip()] = None


def command(text: str, one: Seen) -> None:
    """A line that names a program: a command, a script's heading. It is of the output below."""
    if not (match := _OP.search(text)):
        return
    if one.table.rows or one.summed:
        one.next_op = f"{match[1]}_perf"
    elif one.op is None:
        one.op = f"{match[1]}_perf"
