"""Whether a report says ready, worked out again from its nodes and findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rackpin.findings import Finding, Measurement, NodeState, Outcome, Report, is_ready
from rackpin.report.text import plural

FLEET = "fleet"  # the node name of findings that concern all nodes together

# ``blocked`` is a required not_run: it keeps a node out of service, an optional one doesn't.
Kind = Literal["fail", "blocked", "not_run", "warn", "pass"]
KINDS: tuple[Kind, ...] = ("fail", "blocked", "not_run", "warn", "pass")  # worst first
SYMBOL: Mapping[str, str] = {"fail": "✕", "blocked": "?", "not_run": "○", "warn": "!", "pass": "✓"}
WORD: Mapping[str, str] = {
    "fail": "fail",
    "blocked": "not run (required)",
    "not_run": "not run",
    "warn": "warn",
    "pass": "pass",
}
STATES: tuple[NodeState, ...] = (
    "unreachable",
    "failed",
    "not_ready",
    "skipped",
    "quarantined",
    "ready",
)
# What every form says of a run that was cut short.
EARLY = "what is here is right, but not all"
MOST_UNTOLD = 5  # collectives that are named one by one
NO_REASON = "no reason was given"
QUARANTINE_SIGN = "⊘"
QUARANTINED = "quarantined"  # kept out on purpose by somebody: told, but not part of the verdict


@dataclass(frozen=True)
class Verdict:
    """``ready``, one line for people, and what the report claims against its own findings."""

    ready: bool
    line: str
    contradictions: list[str] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)


def kind_of(finding: Finding) -> Kind:
    """How a finding is shown and counted."""
    if finding.outcome is Outcome.FAIL:
        return "fail"
    if finding.outcome is Outcome.NOT_RUN:
        return "blocked" if finding.required else "not_run"
    return "warn" if finding.outcome is Outcome.WARN else "pass"


def by_node(report: Report) -> dict[str, list[Finding]]:
    """Findings by node name, in the report's order; every listed node has an entry."""
    grouped: dict[str, list[Finding]] = defaultdict(list)
    for node in report.nodes:
        grouped[node.name] = []
    for finding in report.findings:
        grouped[finding.node].append(finding)
    return dict(grouped)


def state_of(state: NodeState, findings: list[Finding]) -> NodeState:
    """The state a node is shown with: ``ready`` only when its own findings say so too."""
    return "not_ready" if state == "ready" and not is_ready(findings) else state


def judge(report: Report) -> Verdict:
    """Ready only if the report says so and nothing in it speaks against it.

    Quarantined nodes and their findings are left out, and nodes that nobody asked for; both are
    counted and named: they neither make a report ready nor keep it from being ready.
    """
    findings = by_node(report)
    out = quarantined(report)
    nodes = [n for n in report.nodes if n.name not in out and n.state != "skipped"]
    states = Counter(state_of(node.state, findings[node.name]) for node in report.nodes)
    counts = Counter(kind_of(one) for one in report.findings if one.node not in out)
    against: list[str] = []
    if report.partial:
        against.append("the run ended early: not everything was asked")
    if not nodes:
        against.append("every node is quarantined" if out else "no node was asked")
    for node in nodes:
        if node.state == "ready" and not is_ready(findings[node.name]):
            why = "its findings say otherwise" if findings[node.name] else "no check was made"
            against.append(f"{node.name} is reported ready, but {why}")
    against += [
        f"{plural(states[state], 'node')} {state.replace('_', ' ')}"
        for state in STATES
        if state not in ("ready", "skipped", QUARANTINED) and states[state]
    ]
    if counts["fail"]:
        against.append(plural(counts["fail"], "failed check"))
    if counts["blocked"]:
        against.append(f"{plural(counts['blocked'], 'required check')} not run")
    down = [one.name for one in report.instances if one.state == "not_serving"]
    if down:
        against.append(f"{plural(len(down), 'instance')} not serving")
    untold = unexplained(report)
    against += [
        f"{one.kind} of {' and '.join(one.nodes[:2])} ({one.library}'s NCCL): "
        f"{one.outcome.replace('_', ' ')}, and no finding says so"
        for one in untold[:MOST_UNTOLD]
    ]
    if len(untold) > MOST_UNTOLD:
        against.append(f"{plural(len(untold) - MOST_UNTOLD, 'more collective')} like that")
    ready = report.ready and not against
    parts = ["ended early"] if report.partial else []
    parts.append(f"{states['ready']} of {plural(len(nodes), 'node')} ready")
    parts += [f"{states[s]} {s.replace('_', ' ')}" for s in STATES if s != "ready" and states[s]]
    parts += [f"{counts[kind]} {WORD[kind]}" for kind in KINDS if counts[kind]]
    if down:
        parts.append(f"{plural(len(down), 'instance')} not serving")
    if untold:
        parts.append(f"{plural(len(untold), 'collective')} failed or not run without a finding")
    if not report.ready and not against:
        parts.append("the run itself did not end ready")
    return Verdict(ready, ", ".join(parts), against if report.ready else [], counts)


def quarantined(report: Report) -> set[str]:
    """Names of the nodes that are kept out on purpose."""
    return {node.name for node in report.nodes if node.state == QUARANTINED}


def unexplained(report: Report) -> list[Measurement]:
    """The last measurement of some nodes, failed or not run, where no finding is less than pass."""
    out = quarantined(report)
    last = {(one.kind, one.library, frozenset(one.nodes)): one for one in report.measurements}
    told = {one.node for one in report.findings if one.outcome is not Outcome.PASS}
    return [
        one
        for one in last.values()
        if one.outcome in (Outcome.FAIL, Outcome.NOT_RUN)
        and not out & set(one.nodes)
        and not told & {FLEET, *one.nodes}
    ]
