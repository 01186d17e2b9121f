"""The report of a verify that no deploy ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rackpin.checks.summary import instance_results
from rackpin.findings import (
    Evidence,
    Finding,
    NodeResult,
    NodeState,
    Outcome,
    Report,
    first_blocking,
    is_ready,
)
from rackpin.fleet import quarantine
from rackpin.verify.session import Session

INTERRUPTED = "the run was ended before it was asked"


@dataclass
class Course:
    """How one verify went, beside what its session knows."""

    run: str
    started: datetime
    asked: Sequence[str]  # nodes that were meant
    seconds: float = 0.0
    partial: bool = False
    unreachable: Mapping[str, str] = field(default_factory=dict)
    executions: Mapping[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)  # nodes whose every check was asked
    notes: list[str] = field(default_factory=list)


def make(session: Session, course: Course) -> Report:
    """All findings, nodes that didn't answer included; a partial run is never ready."""
    fleet = session.fleet
    nodes = [_node(session, course, name) for name in fleet.nodes]
    findings = [f for name in fleet.nodes if name in course.done for f in _of(session, name)]
    findings += [_stopped(n) for n in nodes if n.state in ("unreachable", "failed")]
    findings += session.together_findings + quarantine.findings(fleet)
    asked = [n for n in nodes if n.state not in ("skipped", "quarantined")]
    good = bool(asked) and all(n.state == "ready" for n in asked)
    counted = [f for f in findings if f.node not in fleet.kept_out]
    return Report(
        run=course.run,
        started=course.started.isoformat(timespec="seconds"),
        seconds=round(course.seconds, 1),
        deploy="verify",
        level=session.level,
        partial=course.partial,
        fleet=fleet.config.fleet,
        stack=fleet.config.stack,
        lock=session.lock.digest,
        ready=good and not course.partial and is_ready(counted),
        nodes=nodes,
        instances=instance_results(fleet, findings),
        findings=findings,
        measurements=session.measurements,
        outliers=session.outliers,
        notes=course.notes + session.notes,
    )


def _of(session: Session, name: str) -> list[Finding]:
    return session.nodes[name].findings if name in session.nodes else []


def _node(session: Session, course: Course, name: str) -> NodeResult:
    node, findings = session.fleet.nodes[name], _of(session, name)
    kept_out = session.fleet.kept_out.get(name, "")
    state: NodeState
    reason = ""
    if kept_out:
        state, reason = "quarantined", kept_out
    elif name not in course.asked:
        state = "skipped"
    elif name in course.unreachable:
        state, reason = "unreachable", course.unreachable[name]
    elif name not in course.done:
        state, reason = "failed", INTERRUPTED
    elif is_ready(findings):
        state = "ready"
    else:
        state, reason = "not_ready", first_blocking(findings, "nothing was asked of it")
    return NodeResult(
        name=name,
        state=state,
        groups=node.groups,
        stage="" if state in ("ready", "skipped", "quarantined") else "verify",
        reason=reason,
        remote_executions=course.executions.get(name, 0),
        address=node.address,
    )


def _stopped(node: NodeResult) -> Finding:
    gone = node.state == "unreachable"
    return Finding(
        node=node.name,
        check="reachable" if gone else "verify.asked",
        outcome=Outcome.FAIL if gone else Outcome.NOT_RUN,
        summary=f"{'unreachable' if gone else 'not asked'}: {node.reason}",
        expected="the node answers over ssh" if gone else "every check was asked",
        evidence=Evidence(output=node.reason),
        remedy="try `ssh` to it as the inventory says; power and BMC next"
        if gone
        else f"run it again: rackpin verify {node.name}",
        source="verify",
    )
