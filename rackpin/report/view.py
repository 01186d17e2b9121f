"""What the page and the terminal show, computed once from a report."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.findings import (
    SEVERITY,
    InstanceResult,
    Measurement,
    NodeState,
    Outlier,
    Report,
)
from rackpin.report.gauges import GaugeGroup, groups_of
from rackpin.report.heat import HeatMap, maps_of
from rackpin.report.nodes import NodeView, group_of, rows_of
from rackpin.report.tasks import Task, stopped, tasks_of
from rackpin.report.text import natural
from rackpin.report.verdict import Verdict, judge

MOST_OUTLIERS, MOST_STEPS = 200, 120  # rows of the tables; report.json has all


@dataclass(frozen=True)
class Seat:
    """The ranks of an engine that live on one node."""

    node: str
    index: int | None
    state: NodeState | None  # None: the report doesn't list this node
    ranks: list[tuple[int, int]]  # (pipeline stage, tensor rank); empty when not divisible


@dataclass(frozen=True)
class View:
    report: Report
    verdict: Verdict
    nodes: list[NodeView]  # the fleet's own findings first, then worst first
    columns: list[tuple[str, list[str]]]  # check groups with their checks, as they were asked
    tasks: list[Task]
    looks: list[Task]  # warnings and optional checks that did not run
    gauges: list[GaugeGroup]
    instances: list[tuple[InstanceResult, list[Seat]]]
    heat: list[HeatMap]
    steps: list[Measurement]  # retests and bisections, in the order they were made
    steps_left_out: int
    outliers: list[Outlier]  # by SKU and value, the farthest first
    outliers_left_out: int

    @property
    def kept_out(self) -> list[NodeView]:
        return [node for node in self.nodes if node.kept_out]

    @property
    def unasked(self) -> list[str]:
        """Nodes without a finding, which a run that ended early may not have come to."""
        return [node.name for node in self.nodes if not node.findings and not node.kept_out]


def build(report: Report) -> View:
    """Everything that is shown. Expects cleaned text (:func:`shape.presentable`)."""
    nodes = rows_of(report)
    steps = sorted(
        (one for one in report.measurements if one.kind in ("retest", "bisect")),
        key=lambda one: one.round,
    )
    outliers = sorted(
        report.outliers,
        key=lambda one: (
            one.sku,
            SEVERITY.index(one.outcome),
            one.what,
            -(one.distance or 0.0),
            natural(one.node),
        ),
    )
    return View(
        report=report,
        verdict=judge(report),
        nodes=nodes,
        columns=_columns(report),
        tasks=stopped(nodes) + tasks_of(nodes, ("fail", "blocked")),
        looks=tasks_of(nodes, ("not_run", "warn")),
        gauges=groups_of(report),
        instances=[(one, _seats(one, nodes)) for one in report.instances],
        heat=maps_of(report),
        steps=steps[:MOST_STEPS],
        steps_left_out=max(0, len(steps) - MOST_STEPS),
        outliers=outliers[:MOST_OUTLIERS],
        outliers_left_out=max(0, len(outliers) - MOST_OUTLIERS),
    )


def _columns(report: Report) -> list[tuple[str, list[str]]]:
    groups: dict[str, dict[str, None]] = {}
    for finding in report.findings:
        groups.setdefault(group_of(finding.check), {})[finding.check] = None
    return [(group, list(checks)) for group, checks in groups.items()]


def _seats(one: InstanceResult, nodes: list[NodeView]) -> list[Seat]:
    """Ranks by node, tensor ranks innermost, as the engine numbers them."""
    known = {node.name: node for node in nodes}
    total = one.tp * one.pp
    per_node, rest = divmod(total, len(one.nodes)) if one.nodes else (0, 0)
    seats = []
    for place, name in enumerate(one.nodes):
        ranks = [] if rest else range(place * per_node, (place + 1) * per_node)
        node = known.get(name)
        seats.append(
            Seat(
                name,
                node.index if node else None,
                node.state if node else None,
                [divmod(rank, one.tp) for rank in ranks],
            )
        )
    return seats
