"""The rows of a report: one for each node, worst first, with its findings counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from rackpin.findings import Finding, NodeResult, NodeState, Report, is_ready
from rackpin.report.text import natural
from rackpin.report.verdict import (
    FLEET,
    KINDS,
    QUARANTINED,
    STATES,
    SYMBOL,
    WORD,
    Kind,
    by_node,
    kind_of,
    state_of,
)


@dataclass(frozen=True)
class NodeView:
    """One row of the fleet: ``index`` names its place in the page."""

    index: int
    name: str
    state: NodeState
    reason: str
    result: NodeResult | None  # None: the fleet itself, or a node the report doesn't list
    findings: list[Finding]  # worst first
    counts: Counter[Kind]
    groups: dict[str, Counter[Kind]]
    checks: dict[str, Counter[Kind]]

    @property
    def is_fleet(self) -> bool:
        return self.name == FLEET and self.result is None

    @property
    def good(self) -> bool:
        return self.state == "ready"

    @property
    def kept_out(self) -> bool:
        return self.state == QUARANTINED


def group_of(check: str) -> str:
    """``limits`` for ``limits.raylet``."""
    return check.split(".", 1)[0] or "other"


def mark(counts: Counter[Kind]) -> tuple[str, str, str]:
    """(css class, text, title) of a matrix cell: the worst kind and how often it occurs."""
    for kind in KINDS:
        if counts[kind]:
            title = ", ".join(f"{counts[k]} {WORD[k]}" for k in KINDS if counts[k])
            return kind, f"{SYMBOL[kind]} {counts[kind]}", title
    return "none", "–", "not asked"


def rows_of(report: Report) -> list[NodeView]:
    """The fleet's own findings first, then the nodes, worst first."""
    listed = {node.name: node for node in report.nodes}
    rows = [_row(name, listed.get(name), found) for name, found in by_node(report).items()]
    rows.sort(
        key=lambda row: (
            not row.is_fleet,
            STATES.index(row.state),
            [-row.counts[kind] for kind in KINDS[:-1]],
            natural(row.name),
        )
    )
    return [replace(row, index=index) for index, row in enumerate(rows)]


def _row(name: str, result: NodeResult | None, findings: list[Finding]) -> NodeView:
    state: NodeState
    if result is None:
        state = "ready" if is_ready(findings) else "not_ready"
        reason = "" if name == FLEET else "has findings, but is not in the report's list of nodes"
    else:
        state, reason = state_of(result.state, findings), result.reason
        if state != result.state:
            why = "its findings say otherwise" if findings else "no check was made"
            reason = f"reported ready, but {why}"
    groups: dict[str, Counter[Kind]] = {}
    checks: dict[str, Counter[Kind]] = {}
    for finding in findings:
        checks.setdefault(finding.check, Counter())[kind_of(finding)] += 1
        groups.setdefault(group_of(finding.check), Counter())[kind_of(finding)] += 1
    return NodeView(
        index=0,
        name=name,
        state=state,
        reason=reason,
        result=result,
        findings=sorted(findings, key=lambda finding: KINDS.index(kind_of(finding))),
        counts=Counter(kind_of(finding) for finding in findings),
        groups=groups,
        checks=checks,
    )
