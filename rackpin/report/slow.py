"""Pairs that are less than pass, in few lines: a node that is slow with all is one line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rackpin.findings import Measurement, Outcome
from rackpin.report.text import natural
from rackpin.report.verdict import KINDS, Kind

# A node explains its bad pairs when most of its pairs are bad, and there are enough to say so.
LEAST_PAIRS, LEAST_SHARE = 3, 0.5
# An unanswered pair keeps a node out as a required check that did not run does.
KIND: Mapping[Outcome, Kind] = {
    Outcome.FAIL: "fail",
    Outcome.NOT_RUN: "blocked",
    Outcome.WARN: "warn",
    Outcome.PASS: "pass",
}


@dataclass(frozen=True)
class Slow:
    """One pair, or one node with the partners that it was bad with."""

    nodes: list[str]  # two, or one: then ``bad`` of its ``measured`` pairs are meant
    kind: Kind
    bad: int
    measured: int
    lowest: float | None  # GB/s; None: no figure at all
    highest: float | None
    transport: str
    why: str  # of the slowest one


def slow_of(pairs: Mapping[frozenset[str], Measurement]) -> list[Slow]:
    """The widest trouble first, then the slowest pair."""
    left = {pair: one for pair, one in pairs.items() if one.outcome is not Outcome.PASS}
    measured = Counter(name for pair in pairs for name in pair)
    found = []
    while True:
        bad: dict[str, list[frozenset[str]]] = defaultdict(list)
        for pair in left:
            for name in pair:
                bad[name].append(pair)
        suspects = [
            name
            for name, mine in bad.items()
            if len(mine) >= LEAST_PAIRS and len(mine) >= LEAST_SHARE * measured[name]
        ]
        if not suspects:
            break
        name = max(sorted(suspects, key=natural), key=lambda name: len(bad[name]))
        mine = [left.pop(pair) for pair in bad[name]]
        found.append(_slow([name], mine, measured[name]))
    rest = [_slow(sorted(pair, key=natural), [one], 1) for pair, one in left.items()]
    rest.sort(key=lambda one: (KINDS.index(one.kind), one.lowest or 0.0))
    return found + rest


def _slow(nodes: list[str], bad: list[Measurement], measured: int) -> Slow:
    bad = sorted(bad, key=lambda one: (KINDS.index(KIND[one.outcome]), one.busbw_gb_s or 0.0))
    values = [one.busbw_gb_s for one in bad if one.busbw_gb_s is not None]
    return Slow(
        nodes=nodes,
        kind=KIND[bad[0].outcome],
        bad=len(bad),
        measured=measured,
        lowest=min(values, default=None),
        highest=max(values, default=None),
        transport="; ".join(sorted({one.transport for one in bad if one.transport})[:3]),
        why=bad[0].why,
    )
