"""What nccl-tests says of one run of one operation, and whether that is a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Above any GPU's own memory bandwidth by far: such a row has measured nothing. GB/s.
IMPLAUSIBLE_GBPS = 100_000


@dataclass(frozen=True)
class Measure:
    """One half of a row: µs, GB/s, GB/s. ``wrong`` counts wrong elements, None when not checked;
    before 2.13 it is the largest deviation instead (see ``check_column``).
    """

    time_us: int | float | None
    algbw: int | float | None
    busbw: int | float | None
    wrong: int | float | None


@dataclass(frozen=True)
class Row:
    """One size, in bytes; ``redop`` and ``root`` None where the row has no such word."""

    size: int
    count: int
    type: str | None
    redop: str | None
    root: int | None
    out_of_place: Measure | None
    in_place: Measure | None


@dataclass(frozen=True)
class Run:
    """One operation. None: not in the text, or cut off.

    ``op_from``: ``text``; ``numbers`` when only one operation has these columns, counts and ratio
    of bandwidths; ``likely`` when it is only the usual one of two. ``ok`` is the tool's own
    verdict: True when it ran to its summary and found nothing wrong, False when anything is
    wrong, None when the summary isn't there or the numbers say nothing (one rank).
    ``validated``: whether results were compared at all.
    """

    op: str | None = None
    op_from: str | None = None
    ranks: int | None = None
    ranks_listed: int = 0
    hosts: int = 0
    devices: tuple[str, ...] = ()  # distinct names
    tests_version: str | None = None
    nccl_version: str | None = None
    nccl_library: int | None = None  # as NCCL codes it: 22807
    min_bytes: int | None = None
    max_bytes: int | None = None
    reduced_max_bytes: int | None = None
    validation: bool | None = None
    rows: tuple[Row, ...] = ()
    check_column: str | None = None  # "wrong" counts, "error" deviations
    max_size: int | None = None
    peak_busbw: int | float | None = None
    avg_busbw: int | float | None = None
    out_of_bounds: int | None = None
    validated: bool | None = None
    complete: bool = False  # the summary below the table is there
    ok: bool | None = None
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class NcclTests(Run):
    """All of a text: its one run, or of several what holds for all, with each in ``runs``."""

    format: str = "text"
    exit_code: int | None = None
    runs: tuple[Run, ...] = field(default=())


def measures(rows: Sequence[Row]) -> list[Measure]:
    return [half for row in rows for half in (row.out_of_place, row.in_place) if half]


def peak(rows: Sequence[Row]) -> int | float | None:
    return max((half.busbw for half in measures(rows) if half.busbw is not None), default=None)


def wrong_rows(rows: Sequence[Row]) -> int:
    """The number of rows with wrong elements."""
    halves = [(row.out_of_place, row.in_place) for row in rows]
    return sum(any(half and half.wrong for half in both) for both in halves)


def column(rows: Sequence[Row]) -> str | None:
    """What a table without its header checks: a count of elements is whole, a deviation isn't."""
    found = [half.wrong for half in measures(rows) if half.wrong is not None]
    if not found:
        return None
    return "wrong" if all(isinstance(value, int) for value in found) else "error"


def validated(rows: Sequence[Row]) -> bool | None:
    """Whether any row was checked; None without rows."""
    return any(half.wrong is not None for half in measures(rows)) if rows else None


def verdict(
    rows: Sequence[Row],
    *,
    counts: bool,
    failed: bool,
    out_of_bounds: int | None,
    complete: bool,
    ranks: int | None,
) -> tuple[bool | None, tuple[str, ...]]:
    """``ok`` and why it isn't True; ``failed``: the tool, or its average's check, says so."""
    why = []
    if bad := wrong_rows(rows) if counts else 0:
        why.append(f"{bad} of {len(rows)} rows have wrong elements")
    if out_of_bounds:
        why.append(f"out of bounds values: {out_of_bounds}")
    if failed or why:
        return False, tuple(why)
    if not complete:
        return None, ("the summary below the table is missing: the run is cut, or was",)
    if not rows:
        return None, ("not one row of the table is there",)
    if ranks == 1:
        return None, ("a single rank: nothing was sent, the bandwidths say nothing",)
    speeds = [speed for half in measures(rows) for speed in (half.algbw, half.busbw)]
    if (best := max((s for s in speeds if s is not None), default=0)) > IMPLAUSIBLE_GBPS:
        return None, (f"{best} GB/s can't be: nothing was sent",)
    return True, ()
