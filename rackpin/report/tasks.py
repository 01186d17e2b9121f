"""What to do, most pressing first: one entry for all nodes with the same trouble and remedy."""

from __future__ import annotations

from dataclasses import dataclass, field

from rackpin.report.nodes import NodeView
from rackpin.report.verdict import KINDS, NO_REASON, WORD, Kind, kind_of

_RESUME = "Correct what the stage printed, then run the same command again: it resumes."
# What helps by node state: (title, kind, found when no reason was given, remedy).
_STOPPED: dict[str, tuple[str, Kind, str, str]] = {
    "unreachable": (
        "unreachable",
        "fail",
        "no answer",
        "Look at its console (BMC) and network, try ssh by hand, then run again.",
    ),
    "failed": ("failed", "fail", NO_REASON, _RESUME),
    "not_ready": (
        "not ready",
        "blocked",
        "reported not ready, without a finding that says why",
        "Run verify on this node; until then it counts as not ready.",
    ),
}


@dataclass
class Task:
    """One thing to do: nodes that show the same trouble and need the same remedy."""

    kind: Kind
    label: str  # the outcome, or how a node stopped
    check: str  # empty for a stopped node
    found: str
    remedy: str
    expected: str = ""
    nodes: list[str] = field(default_factory=list)
    others: set[str] = field(default_factory=set)  # readings of the same check that differ


def stopped(nodes: list[NodeView]) -> list[Task]:
    """Nodes that a run did not get through, by state, stage and reason; no quarantined ones."""
    tasks: dict[tuple[str, str, str], Task] = {}
    for node in nodes:
        explained = node.counts["fail"] or node.counts["blocked"]
        if (
            node.result is None
            or node.good
            or node.kept_out
            or node.state == "skipped"
            or (node.state == "not_ready" and explained)
        ):
            continue
        title, kind, found, remedy = _STOPPED[node.state]
        stage = node.result.stage
        task = Task(
            kind, f"{title} at {stage}" if stage else title, "", node.reason or found, remedy
        )
        tasks.setdefault((node.state, stage, node.reason), task).nodes.append(node.name)
    return list(tasks.values())


def tasks_of(nodes: list[NodeView], kinds: tuple[Kind, ...]) -> list[Task]:
    """Findings of these kinds, grouped by check and remedy; the widest trouble first."""
    tasks: dict[tuple[str, str, str], Task] = {}
    for node in nodes:
        for finding in [] if node.kept_out else node.findings:  # its owner sees to it
            kind = kind_of(finding)
            if kind not in kinds:
                continue
            task = tasks.setdefault(
                (kind, finding.check, finding.remedy),
                Task(
                    kind,
                    WORD[kind],
                    finding.check,
                    finding.summary,
                    finding.remedy,
                    finding.expected,
                ),
            )
            if finding.node not in task.nodes:
                task.nodes.append(finding.node)
            if finding.summary != task.found:
                task.others.add(finding.summary)
    return sorted(tasks.values(), key=lambda t: (KINDS.index(t.kind), -len(t.nodes)))
