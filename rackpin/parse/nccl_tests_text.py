"""nccl-tests' printed output: banner, devices, table and summary of one run after another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rackpin.parse.nccl_tests_model import Run, peak, validated, verdict
from rackpin.parse.nccl_tests_op import inferred
from rackpin.parse.nccl_tests_rows import Rows, header, without_log
from rackpin.parse.text import number

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
_EXIT = re.compile(r"Exit(?:ed with exit)? code:? *(\d{1,3})\s*$")
_LONGEST = 2000


@dataclass
class _Seen:
    """One run as far as it was read."""

    table: Rows = field(default_factory=Rows)
    op: str | None = None
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


def runs(found: Sequence[str], whole_end: bool) -> tuple[list[Run], int | None]:
    """All runs in these lines, and the exit code that a launcher reports."""
    seen = [_Seen()]
    named: str | None = None
    exit_code: int | None = None
    last = max((place for place, line in enumerate(found) if line.strip()), default=-1)
    for place, line in enumerate(found):
        text, log = without_log(TAG.sub("", line, count=1))
        if log:
            _log(log, seen[-1])
        if not text.strip():
            continue
        cut = not whole_end and place == last
        if _table(text, seen, bool(log), cut):
            seen[-1].list_is_last = False
            continue
        if len(text) > _LONGEST:
            continue
        if match := _EXIT.search(text):
            exit_code = int(match[1])
        if not cut and _banner(text, seen):
            continue
        if not _summary(text, seen[-1], cut) and not _failure(text, seen[-1]):
            named = _command(text, seen[-1]) or named
            seen[-1].list_is_last &= not text.strip(" #")
    for one in seen:
        one.table.drop()
    kept = [one for one in seen if not one.empty]
    return [_run(one, named) for one in kept], exit_code


def _table(text: str, seen: list[_Seen], torn: bool, cut: bool) -> bool:
    if "algbw" in text and (head := header(text)):
        if seen[-1].table.rows:
            seen.append(_Seen(op=seen[-1].op if not seen[-1].summed else None))
        seen[-1].table.header = head
        return True
    body = text.lstrip()
    if not body[:1].isdigit() and not seen[-1].table.is_open:
        return False
    if cut:
        seen[-1].table.drop(text)  # its last number may be cut
        return True
    if seen[-1].summed and body[:1].isdigit():
        fresh = _Seen()
        fresh.table.header = seen[-1].table.header
        if fresh.table.take(text, torn):
            seen.append(fresh)
            return True
        return False
    return seen[-1].table.take(text, torn)


def _banner(text: str, seen: list[_Seen]) -> bool:
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


def _begin(seen: list[_Seen], banner: str) -> _Seen:
    """The run that this line of a banner belongs to: a new one when the last has it or is over."""
    one = seen[-1]
    if banner in one.banners or one.table.rows or one.summed or banner == "ranks":
        one.table.drop()
        seen.append(_Seen())
    seen[-1].banners.add(banner)
    return seen[-1]


def _summary(text: str, one: _Seen, cut: bool) -> bool:
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


def _failure(text: str, one: _Seen) -> bool:
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


def _log(log: str, one: _Seen) -> None:
    one.list_is_last = False
    if match := _NCCL.search(log):
        one.versions.setdefault("nccl", match[1])
    if "NCCL WARN" in log and len(log) <= _LONGEST:
        one.warnings[log.strip()] = None


def _command(text: str, one: _Seen) -> str | None:
    """The program's name in a command line above the output."""
    match = _OP.search(text)
    if match and one.op is None and not one.table.rows:
        one.op = f"{match[1]}_perf"
    return f"{match[1]}_perf" if match else None


def _run(one: _Seen, named: str | None) -> Run:
    rows = tuple(one.table.rows)
    head = one.table.header
    ranks = None if one.list_is_last or not one.ranks else max(one.ranks) + 1
    guess = None if one.op else inferred(rows, ranks, bool(head and not head.redop))
    check = head.check if head else ("wrong" if validated(rows) else None)
    bounds, said = one.bounds or (None, None)
    average, judged = one.average or ("", None)
    ok, why = verdict(
        rows,
        counts=check == "wrong",
        failed=bool(one.errors) or "FAILED" in (said, judged),
        out_of_bounds=bounds,
        complete=one.summed,
        ranks=ranks,
    )
    if judged == "FAILED":
        why = (*why, "the average bus bandwidth is below what was asked for")
    unreadable = tuple(f"not a row: {line[:200]}" for line in one.table.unreadable[:20])
    library = one.versions.get("library")
    return Run(
        op=one.op or guess,
        op_from="text" if one.op else ("numbers" if guess else None),
        ranks=ranks,
        ranks_listed=len(one.ranks),
        hosts=len({host for host, _ in one.ranks.values()}),
        devices=tuple(dict.fromkeys(name for _, name in one.ranks.values() if name)),
        tests_version=one.versions.get("tests"),
        nccl_version=one.versions.get("nccl"),
        nccl_library=int(library) if library else None,
        min_bytes=one.sizes[0] if one.sizes else None,
        max_bytes=one.sizes[1] if one.sizes else None,
        reduced_max_bytes=one.reduced,
        validation=one.validation,
        rows=rows,
        check_column=check,
        max_size=max((row.size for row in rows), default=None),
        peak_busbw=peak(rows),
        avg_busbw=number(average),
        out_of_bounds=bounds,
        validated=validated(rows),
        complete=one.summed,
        ok=ok,
        errors=(*one.errors, *(why if ok is False else ())),
        warnings=(*one.warnings, *unreadable, *(why if ok is None else ())),
    )
