"""What moved between two reports' collectives and outliers."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.findings import SEVERITY, Measurement, Outlier, Report
from rackpin.report.text import fold

# Smaller moves of a measured value are noise: two smoke generations of one idle engine differ
# by up to a tenth (seen over the lab's runs).
MOVED = 0.1
NONE = "–"


@dataclass(frozen=True)
class Moved:
    """One thing that is otherwise now. ``worse`` is true when it needs a look."""

    node: str
    what: str  # a check's id, "state", or "check metric"
    was: str
    now: str
    worse: bool = False
    why: str = ""


def share(was: float, now: float) -> str:
    """``-15%``; empty when there was nothing."""
    return f"{(now - was) / was:+.0%}" if was else ""


def measurements(older: Report, newer: Report) -> list[Moved]:
    """Collectives of the same nodes that moved by more than a tenth or came out otherwise.

    A retest or a bisection of one run has no counterpart in another: they are not compared. A
    change of the outcome to a worse one needs a look, a mere move of the value doesn't.
    """
    was, now = _last(older), _last(newer)
    moved = []
    for key in was.keys() & now.keys():
        before, after = was[key], now[key]
        value, earlier = after.busbw_gb_s, before.busbw_gb_s
        both = value is not None and earlier is not None
        jumped = both and abs((value or 0) - (earlier or 0)) > MOVED * abs(earlier or 0)
        if not jumped and before.outcome == after.outcome:
            continue
        worse = SEVERITY.index(after.outcome) < SEVERITY.index(before.outcome)
        why = share(earlier or 0, value or 0) if both else ""
        why = ", ".join(part for part in (why, after.why) if part)
        what = f"{after.kind} ({after.library}'s NCCL)"
        name = "fleet" if after.kind == "fleet" else fold(after.nodes)
        moved.append(Moved(name, what, _figure(before), _figure(after), worse, why))
    return sorted(moved, key=lambda one: (not one.worse, one.what, one.node))


def outliers(older: Report, newer: Report) -> list[Moved]:
    """Values that stand out now and did not, that don't any more, and that are others."""
    was = {(one.sku, one.node, one.what): one for one in older.outliers}
    now = {(one.sku, one.node, one.what): one for one in newer.outliers}
    moved = []
    for key in sorted({*was, *now}):
        before, after = was.get(key), now.get(key)
        if before and after and before.value == after.value and before.outcome == after.outcome:
            continue
        worse = _rank(after) < _rank(before)
        usual = f"usual: {after.usual}" if after else "as its siblings, or not asked"
        shown = [one.value if one else NONE for one in (before, after)]
        moved.append(Moved(key[1], key[2], shown[0], shown[1], worse, usual))
    return sorted(moved, key=lambda one: not one.worse)


def _last(report: Report) -> dict[tuple[str, str, frozenset[str]], Measurement]:
    return {
        (one.kind, one.library, frozenset(one.nodes)): one
        for one in report.measurements
        if one.kind not in ("retest", "bisect")
    }


def _figure(one: Measurement) -> str:
    value = "no figure" if one.busbw_gb_s is None else f"{one.busbw_gb_s:g} GB/s"
    return f"{one.outcome.replace('_', ' ')}, {value}"


def _rank(one: Outlier | None) -> int:
    return SEVERITY.index(one.outcome) if one else len(SEVERITY)
