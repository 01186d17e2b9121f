"""What is remembered of nodes that are in use: they aren't measured again while they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackpin.checks import Check, Context
from rackpin.findings import Finding, Outcome, at_least
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import Identity
from rackpin.fleet.mark import Mark
from rackpin.verify.nccl_findings import PAIRS

MEASURED = "gpu.allreduce"  # what only an idle node can be asked, and its mark remembers
QUIET = "stop its engine and Ray in a quiet hour, then: rackpin verify NODE"


@dataclass
class Asked:
    """What is known of one node while it is verified."""

    findings: list[Finding] = field(default_factory=list)
    identity: Identity | None = None
    mark: Mark | None = None  # as it was found
    busy: list[str] = field(default_factory=list)  # what uses its cards; empty: idle
    answered: bool = False
    told: Mapping[str, str | float] = field(default_factory=dict)  # to compare with its siblings

    def counts(self, lock: str) -> bool:
        """Its mark is of this lock and of this hardware."""
        return not marks.stale(self.mark, lock, self.identity)

    @property
    def users(self) -> str:
        return ", ".join(self.busy[:3])


def measured(findings: Sequence[Finding]) -> dict[str, float]:
    """Numbers that only an idle node gives, by "CHECK METRIC"; those that failed count too."""
    return {
        f"{f.check} {name}": value
        for f in findings
        if f.check.startswith(MEASURED) and f.evidence.seconds is not None
        for name, value in f.metrics.items()
    }


def remembered(context: Context, check: Check, asked: Asked) -> list[Finding]:
    """What was measured on this node for this lock and hardware; what failed then fails now."""
    mark = asked.mark if asked.counts(context.lock.digest) else None
    common: dict[str, Any] = {
        "node": context.node.name,
        "expected": "measured while the node was idle, for this lock and this hardware",
        "source": marks.PATH,
    }
    known: dict[str, dict[str, float]] = {}
    for key, value in (mark.measured if mark else {}).items():
        name, _, metric = key.partition(" ")
        if name == check.id or name.startswith(f"{check.id}."):
            known.setdefault(name, {})[metric] = value
    if mark is None or not known:
        why = f"its cards are in use ({asked.users}) and nothing was measured before"
        return [_not_checked(check.id, why, common)]
    return [_told(name, name in mark.why, mark, asked, metrics, common)
            for name, metrics in known.items()]  # fmt: skip


def in_pairs(name: str, asked: Asked, lock: str) -> Finding:
    """Pairs of a node that serves: what its mark says of them, or nothing."""
    mark = asked.mark
    common: dict[str, Any] = {
        "node": name,
        "expected": "measured with other nodes, for this lock and this hardware",
        "source": marks.PATH,
    }
    if mark is not None and asked.counts(lock) and at_least(mark.level, "pair"):
        return _told(PAIRS, PAIRS in mark.why, mark, asked, {}, common)
    return _not_checked(PAIRS, f"its cards are in use ({asked.users})", common)


def _told(
    check: str,
    failed: bool,
    mark: Mark,
    asked: Asked,
    metrics: Mapping[str, float],
    common: Mapping[str, Any],
) -> Finding:
    word = "failed" if failed else "measured"
    return Finding(
        check=check,
        outcome=Outcome.FAIL if failed else Outcome.PASS,
        summary=f"{word} on {mark.at[:16]}; its cards are in use now ({asked.users})",
        metrics=dict(metrics),
        remedy=QUIET if failed else "",
        **common,
    )


def _not_checked(check: str, why: str, common: Mapping[str, Any]) -> Finding:
    summary = f"not checked: {why}"
    return Finding(
        check=check,
        outcome=Outcome.NOT_RUN,
        summary=summary,
        remedy=QUIET,
        required=False,
        **common,
    )
