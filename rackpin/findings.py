"""The words every stage, check and report shares: outcome, finding, report."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 2

# What a verify asks, each level with all before it: seconds a node, a minute or two a node, pairs
# of nodes, the fleet at once, and what warms the hardware up for a long time.
Level = Literal["quick", "node", "pair", "fleet", "burnin"]
LEVELS: tuple[Level, ...] = ("quick", "node", "pair", "fleet", "burnin")


def at_least(level: Level, other: Level) -> bool:
    """A verify of this level asks all that the other one asks."""
    return LEVELS.index(level) >= LEVELS.index(other)


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


NodeState = Literal["ready", "not_ready", "unreachable", "failed", "skipped", "quarantined"]


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


class Measurement(BaseModel):
    """One collective over some nodes: a pair, a suspect with a sound partner, a half, all."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["node", "loop", "pair", "retest", "bisect", "fleet"]
    nodes: list[str]  # that took part, the one that launched it first
    round: int = 0  # those of one round ran at the same time
    library: Literal["engine", "host"] = "engine"  # whose NCCL
    size_bytes: int | None = None  # the size that is judged
    busbw_gb_s: float | None = None  # at that size, out of place; None: no number that counts
    expected_gb_s: float | None = None
    warn_below_gb_s: float | None = None
    fail_below_gb_s: float | None = None
    transport: str = ""  # as NCCL's log says it: "IB, GDRDMA, 8 HCAs"
    outcome: Outcome
    why: str = ""  # what decided, in one line; empty for a pass
    seconds: float | None = None


class Outlier(BaseModel):
    """One value of one node beside what its siblings of the same SKU have."""

    model_config = ConfigDict(extra="forbid")

    sku: str
    what: str  # "gpu.vbios", "hca.firmware", "temperature_c", …
    node: str
    value: str
    usual: str  # the median with its spread, or the commonest value
    siblings: int  # nodes of the SKU that told this value
    distance: float | None = None  # in median absolute deviations; None for words
    outcome: Outcome = Outcome.WARN


class Report(BaseModel):
    """All findings of one run. ``ready`` is true only if every node is ready."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    run: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")  # also the directory's name
    started: str  # ISO 8601, UTC
    seconds: float
    deploy: str  # "site" | "verify"
    level: Level = "node"  # how much was asked
    partial: bool = False  # ended before its time (^C, a failure): what is here is right, not all
    fleet: str
    stack: str
    lock: str  # the lock's digest
    ready: bool
    nodes: list[NodeResult]
    instances: list[InstanceResult] = Field(default_factory=list)
    findings: list[Finding]
    measurements: list[Measurement] = Field(default_factory=list)
    outliers: list[Outlier] = Field(default_factory=list)
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


def first_blocking(findings: list[Finding], otherwise: str) -> str:
    """The worst that keeps a node out, in one line; ``otherwise`` when nothing does."""
    bad = blocking(findings)
    return f"{bad[0].check}: {bad[0].summary}" if bad else otherwise
