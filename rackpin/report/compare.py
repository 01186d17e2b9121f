"""What changed from one report to another: nodes, outcomes, measured values, outliers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rackpin.findings import SEVERITY, Finding, Report, at_least
from rackpin.report import compare_measured
from rackpin.report.compare_measured import MOVED, NONE, Moved, share
from rackpin.report.files import ReportError
from rackpin.report.store import load, locate
from rackpin.report.verdict import QUARANTINED, WORD, kind_of, quarantined

FORMAT = 2  # of the JSON, grows with every change that a reader could notice
NOT_ASKED = "not asked, "  # on purpose, so it is no worse; what follows says why


@dataclass(frozen=True)
class Difference:
    """Everything that a reader of two reports would have to look for."""

    older: str
    newer: str
    about: list[Moved] = field(default_factory=list)  # stack, lock, level, partial
    nodes: list[Moved] = field(default_factory=list)
    outcomes: list[Moved] = field(default_factory=list)
    values: list[Moved] = field(default_factory=list)
    measurements: list[Moved] = field(default_factory=list)
    outliers: list[Moved] = field(default_factory=list)

    @property
    def worse(self) -> bool:
        parts = (self.about, self.nodes, self.outcomes, self.measurements, self.outliers)
        return any(moved.worse for part in parts for moved in part)

    def as_dict(self) -> dict[str, Any]:
        return {"schema_version": FORMAT, "worse": self.worse, **asdict(self)}


def compare(older: Report, newer: Report) -> Difference:
    """From ``older`` to ``newer``; nodes that only one of them has are told too."""
    return Difference(
        older=older.run,
        newer=newer.run,
        about=_about(older, newer),
        nodes=_nodes(older, newer),
        outcomes=_outcomes(older, newer),
        values=_values(_by_check(older), _by_check(newer)),
        measurements=compare_measured.measurements(older, newer),
        outliers=compare_measured.outliers(older, newer),
    )


def _about(older: Report, newer: Report) -> list[Moved]:
    pairs = [
        ("stack", older.stack, newer.stack),
        ("lock", older.lock[:12], newer.lock[:12]),
        ("level", older.level, newer.level),
    ]
    moved = [Moved("fleet", what, was, now) for what, was, now in pairs if was != now]
    if older.partial != newer.partial:
        was, now = (("ended early" if one.partial else "whole") for one in (older, newer))
        moved.append(Moved("fleet", "run", was, now, newer.partial))
    return moved


def _by_check(report: Report) -> dict[tuple[str, str], Finding]:
    """The worst finding of each check on each node."""
    found: dict[tuple[str, str], Finding] = {}
    for finding in sorted(report.findings, key=lambda f: -SEVERITY.index(f.outcome)):
        found[finding.node, finding.check] = finding
    return found


def _nodes(older: Report, newer: Report) -> list[Moved]:
    was = {node.name: node.state for node in older.nodes}
    now = {node.name: node for node in newer.nodes}
    moved = []
    for name in sorted({*was, *now}):
        before = was.get(name, NONE)
        after = now[name].state if name in now else NONE
        if before != after:
            worse = after not in ("ready", "skipped", QUARANTINED)  # out on purpose: told only
            moved.append(
                Moved(name, "state", before, after, worse, now[name].reason if name in now else "")
            )
    return moved


def _outcomes(before: Report, after: Report) -> list[Moved]:
    older, newer = _by_check(before), _by_check(after)
    less = not at_least(after.level, before.level)
    out = quarantined(after)
    moved = []
    for node, check in sorted({*older, *newer}):
        was, now = older.get((node, check)), newer.get((node, check))
        earlier = WORD[kind_of(was)] if was else NONE
        later = WORD[kind_of(now)] if now else NONE
        if earlier == later:
            continue
        rank = SEVERITY.index(now.outcome) if now else -1  # not asked any more: worth a look
        worse = rank < (SEVERITY.index(was.outcome) if was else len(SEVERITY) - 1)
        why = now.summary if now else "not asked"
        if now is None and (node in out or less):
            told = f"{node} is quarantined" if node in out else f"level {after.level}"
            worse, why = False, NOT_ASKED + told
        moved.append(Moved(node, check, earlier, later, worse, why))
    return sorted(moved, key=lambda one: not one.worse)


def _values(
    older: dict[tuple[str, str], Finding], newer: dict[tuple[str, str], Finding]
) -> list[Moved]:
    moved = []
    for key in sorted({*older} & {*newer}):
        for name, was in older[key].metrics.items():
            now = newer[key].metrics.get(name)
            if now is not None and abs(now - was) > MOVED * abs(was):
                why = share(was, now)
                moved.append(Moved(key[0], f"{key[1]} {name}", f"{was:g}", f"{now:g}", why=why))
    return moved


def before(path: Path) -> Path:
    """The report of the run before that of ``path``, of the same directory.

    Raises :class:`ReportError` when there is none.
    """
    newer = load(path)
    place = locate(path).parent
    home = place.parent if (place.parent / newer.run).is_dir() else place
    # a run's name begins with its time
    runs = sorted(file.parent.name for file in home.glob("*/report.json"))
    earlier = [run for run in runs if run < newer.run]
    if not earlier:
        raise ReportError(f"{home}: holds no run before {newer.run}; name the other report")
    return home / earlier[-1] / "report.json"
