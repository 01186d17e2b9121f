"""Expected against measured: bandwidths of findings and of collectives, in comparable groups."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.findings import Report
from rackpin.report.slow import KIND
from rackpin.report.text import fold
from rackpin.report.verdict import FLEET, KINDS, Kind, kind_of

# A check that measured collective bandwidth says so with these metrics, all in GB/s.
BUSBW, BUSBW_MIN, BUSBW_EXPECTED = "busbw_gb_s", "busbw_min_gb_s", "busbw_expected_gb_s"
# Bars of a group, and of those the ones that passed; the rest is better, and told as a range.
MOST_GAUGES, MOST_PASSES = 12, 4
HEADROOM = 1.05  # of a bar's box above the largest figure, so that its mark is seen
# Kinds of measurements that stand for themselves; pairs have their heat map.
_TITLES = {"fleet": "all nodes at once", "node": "within a node", "loop": "adapter loop"}


@dataclass(frozen=True)
class Gauge:
    """A collective bandwidth beside what it should be, in GB/s; None: nothing is known."""

    node: str
    check: str
    kind: Kind
    value: float
    minimum: float | None
    expected: float | None


@dataclass(frozen=True)
class GaugeGroup:
    """Figures of one check or one kind of measurement, the worst first, on one scale."""

    title: str
    gauges: list[Gauge]
    rest: list[Gauge]  # not drawn, none of them worse
    measured: bool = False  # by a collective over nodes, not by a check's finding

    @property
    def scale(self) -> float:
        most = (max(g.value, g.minimum or 0, g.expected or 0) for g in self.gauges)
        return HEADROOM * max(most, default=0.0)


def groups_of(report: Report) -> list[GaugeGroup]:
    """The fleet's figures first."""
    found: dict[str, list[Gauge]] = {}
    for finding in report.findings:
        if BUSBW in finding.metrics:
            metrics = finding.metrics
            gauge = Gauge(
                finding.node,
                finding.check,
                kind_of(finding),
                metrics[BUSBW],
                metrics.get(BUSBW_MIN),
                metrics.get(BUSBW_EXPECTED),
            )
            found.setdefault(finding.check, []).append(gauge)
    for one in report.measurements:
        if one.kind not in _TITLES or one.busbw_gb_s is None:
            continue
        title = f"{_TITLES[one.kind]}, {one.library}'s NCCL"
        name = FLEET if one.kind == "fleet" else fold(one.nodes)
        gauge = Gauge(
            name, one.kind, KIND[one.outcome], one.busbw_gb_s, one.fail_below_gb_s,
            one.expected_gb_s,
        )  # fmt: skip
        found.setdefault(title, []).append(gauge)
    groups = []
    for title, gauges in found.items():
        gauges.sort(key=lambda g: (g.node != FLEET, KINDS.index(g.kind), g.value))
        worse = sum(gauge.kind != "pass" for gauge in gauges)
        most = min(MOST_GAUGES, max(worse, MOST_PASSES))
        groups.append(GaugeGroup(title, gauges[:most], gauges[most:], gauges[0].check in _TITLES))
    return sorted(groups, key=lambda group: group.gauges[0].node != FLEET)
