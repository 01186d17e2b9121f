"""What the page and the terminal show, computed once from a report."""

from __future__ import annotations

from dataclasses import dataclass

from rackpin.findings import InstanceResult, NodeState, Report
from rackpin.report.nodes import NodeView, group_of, rows_of
from rackpin.report.tasks import Task, stopped, tasks_of
from rackpin.report.verdict import FLEET, KINDS, Kind, Verdict, judge, kind_of

# A check that measured collective bandwidth says so with these metrics, all in GB/s.
BUSBW, BUSBW_MIN, BUSBW_EXPECTED = "busbw_gb_s", "busbw_min_gb_s", "busbw_expected_gb_s"
MOST_GAUGES = 24


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
    columns: list[str]  # check groups, in the order they were asked
    tasks: list[Task]
    looks: list[Task]  # warnings and optional checks that did not run
    gauges: list[Gauge]
    gauges_left_out: int
    instances: list[tuple[InstanceResult, list[Seat]]]


def build(report: Report) -> View:
    """Everything that is shown. Expects cleaned text (:func:`shape.presentable`)."""
    nodes = rows_of(report)
    gauges = _gauges(nodes)
    return View(
        report=report,
        verdict=judge(report),
        nodes=nodes,
        columns=list(dict.fromkeys(group_of(f.check) for f in report.findings)),
        tasks=stopped(nodes) + tasks_of(nodes, ("fail", "blocked")),
        looks=tasks_of(nodes, ("not_run", "warn")),
        gauges=gauges[:MOST_GAUGES],
        gauges_left_out=max(0, len(gauges) - MOST_GAUGES),
        instances=[(one, _seats(one, nodes)) for one in report.instances],
    )


def _gauges(nodes: list[NodeView]) -> list[Gauge]:
    """The fleet's figure first, then the worst ones."""
    gauges = [
        Gauge(
            node.name,
            finding.check,
            kind_of(finding),
            finding.metrics[BUSBW],
            finding.metrics.get(BUSBW_MIN),
            finding.metrics.get(BUSBW_EXPECTED),
        )
        for node in nodes
        for finding in node.findings
        if BUSBW in finding.metrics
    ]
    return sorted(gauges, key=lambda g: (g.node != FLEET, KINDS.index(g.kind), g.value))


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
