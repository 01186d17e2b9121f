"""The words every stage, check and report shares: outcome, finding, report."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """What a check says. ``not_run`` never counts as ``pass``."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    NOT_RUN = "not_run"


# Worst first: a node or a report is as bad as its worst finding.
SEVERITY = (Outcome.FAIL, Outcome.NOT_RUN, Outcome.WARN, Outcome.PASS)


class Evidence(BaseModel):
    """What was asked of the node and what it answered."""

    model_config = ConfigDict(extra="forbid")

    command: str = ""
    output: str = ""  # the part that decided, cut to a readable length
    seconds: float | None = None


class Finding(BaseModel):
    """One question about a node (or the fleet: ``node`` is ``"fleet"``) and its answer."""

    model_config = ConfigDict(extra="forbid")

    node: str
    check: str  # dotted id, e.g. "limits.raylet"
    outcome: Outcome
    summary: str  # one line, what was found
    expected: str = ""
    evidence: Evidence = Field(default_factory=Evidence)
    remedy: str = ""  # what to do now; empty only for pass
    source: str = ""  # where the expectation comes from (lock, inventory key, sku, page)
    required: bool = True  # a required not_run keeps the node out of service
    metrics: dict[str, float] = Field(default_factory=dict)  # name_with_unit -> value


NodeState = Literal["ready", "not_ready", "unreachable", "failed", "skipped"]


class NodeResult(BaseModel):
    """How one node came out of a run."""

    model_config = ConfigDict(extra="forbid")

    name: str
    state: NodeState
    groups: list[str] = Field(default_factory=list)
    stage: str = ""  # where it stopped, when it did
    reason: str = ""  # why, in one line
    changes: list[str] = Field(default_factory=list)  # operations that changed something
    remote_executions: int = 0
    address: str = ""


class InstanceResult(BaseModel):
    """One serving engine as the smoke generation saw it. Times in seconds."""

    model_config = ConfigDict(extra="forbid")

    name: str
    nodes: list[str]
    state: Literal["serving", "not_serving", "unknown"]
    tp: int
    pp: int
    url: str = ""
    ttft_s: float | None = None
    tokens_per_s: float | None = None


class Report(BaseModel):
    """All findings of one run. ``ready`` is true only if every node is ready."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    run: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")  # also the directory's name
    started: str  # ISO 8601, UTC
    seconds: float
    deploy: str  # "site" | "verify"
    fleet: str
    stack: str
    lock: str  # the lock's digest
    ready: bool
    nodes: list[NodeResult]
    instances: list[InstanceResult] = Field(default_factory=list)
    findings: list[Finding]
    stage_seconds: dict[str, float] = Field(default_factory=dict)
    notes: list[str] = Field(default_factory=list)


def worst(findings: list[Finding]) -> Outcome:
    """The worst outcome of some findings; no finding at all is ``not_run``."""
    seen = {finding.outcome for finding in findings}
    return next((outcome for outcome in SEVERITY if outcome in seen), Outcome.NOT_RUN)


def blocking(findings: list[Finding]) -> list[Finding]:
    """What keeps a node out of service, fails first."""
    fails = [f for f in findings if f.outcome is Outcome.FAIL]
    return fails + [f for f in findings if f.outcome is Outcome.NOT_RUN and f.required]


def is_ready(findings: list[Finding]) -> bool:
    """No ``fail``, no required ``not_run``, and at least one question was asked."""
    return bool(findings) and not blocking(findings)
