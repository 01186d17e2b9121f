"""One verify: what each node is asked, what they are asked together, and what comes of it.

A :class:`Session` has no connection of its own: it is given runners. Nodes are asked at the same
time, in any order, from any thread; :meth:`Session.together` comes when all of them are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackpin.checks import Check, Command, Context, Output, judge, of_level, plan
from rackpin.checks.base import NO_ANSWER, Runner
from rackpin.findings import LEVELS, Finding, Level, Measurement, Outcome, Outlier, is_ready
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import Identity, IdentityError, parse
from rackpin.fleet.mark import Mark
from rackpin.inventory import Fleet
from rackpin.stack.lock import Lock
from rackpin.verify.asking import Asker, Watch
from rackpin.verify.idle import HOLDERS, busy

# "CHECK METRIC" → earlier values, the newest last; by node.
History = Mapping[str, Mapping[str, Sequence[float]]]
MEASURED = "gpu.allreduce"  # what only an idle node can be asked, and its mark remembers


def at_least(level: Level, other: Level) -> bool:
    return LEVELS.index(level) >= LEVELS.index(other)


@dataclass
class Asked:
    """What is known of one node while it is verified."""

    findings: list[Finding] = field(default_factory=list)
    identity: Identity | None = None
    mark: Mark | None = None  # as it was found
    busy: list[str] = field(default_factory=list)  # what uses its cards; empty: idle
    answered: bool = False


@dataclass
class Session:
    """``serving=False``: nothing serves there yet, so only the nodes themselves are judged."""

    fleet: Fleet
    lock: Lock
    level: Level = "node"
    serving: bool = True
    loads: bool = True  # may cards and engines be given work
    history: History = field(default_factory=dict)
    nodes: dict[str, Asked] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    together_findings: list[Finding] = field(default_factory=list)

    def context(self, name: str) -> Context:
        return Context(
            self.fleet, self.fleet.nodes[name], self.lock, history=self.history.get(name, {})
        )

    # -- one node -----------------------------------------------------------------
    def node(self, name: str, runner: Runner) -> list[Finding]:
        """Ask one node everything of this level; its findings. Never raises an Exception."""
        context = self.context(name)
        asked = self.nodes[name] = Asked()
        level: Level = "node" if at_least(self.level, "node") else "quick"
        checks = [c for c in of_level(level, self.serving) if self.loads or not _loads(c)]
        own = (marks.READ, marks.IDENTITY, HOLDERS)
        outputs, asked.findings = self._ask(context, checks, runner, own)
        self._look(asked, outputs)
        if level == "node" and self.loads and asked.answered:
            asked.findings += self._idle(context, asked, runner)
        for step in ("fleet", "burnin"):
            if self.serving and self.loads and at_least(self.level, step) and asked.answered:
                more = [c for c in of_level(step) if c.level == step]
                asked.findings += self._ask(context, more, runner)[1]
        return asked.findings

    def _ask(
        self,
        context: Context,
        checks: Sequence[Check],
        runner: Runner,
        more: Sequence[Command] = (),
    ) -> tuple[dict[str, Output], list[Finding]]:
        commands, broken = plan(context, checks)
        outputs: dict[str, Output] = {}
        if commands or more:
            try:
                outputs = runner([*commands, *more])
            except Exception as error:  # whatever the connection raises: every check says so
                why = f"{type(error).__name__}: {error}"
                outputs = {c.name: Output(rc=None, stderr=why) for c in (*commands, *more)}
        return outputs, broken + judge(context, outputs, checks)

    def _look(self, asked: Asked, outputs: Mapping[str, Output]) -> None:
        asked.answered = any(output.rc is not None for output in outputs.values())
        told = outputs.get(marks.READ.name, NO_ANSWER)
        asked.mark = marks.read(told.stdout) if told.ok else None
        told = outputs.get(marks.IDENTITY.name, NO_ANSWER)
        try:
            asked.identity = parse(told.stdout.splitlines()) if told.ok else None
        except IdentityError:
            asked.identity = None
        asked.busy = busy(outputs.get(HOLDERS.name, NO_ANSWER))

    def _idle(self, context: Context, asked: Asked, runner: Runner) -> list[Finding]:
        """What takes the cards: asked of an idle node, else what its mark remembers of it."""
        checks = [c for c in of_level("node", self.serving, idle=True) if "idle" in c.needs]
        concerned = [c for c in checks if c.commands(context)]
        if not asked.busy:
            return self._ask(context, checks, runner)[1]
        if not concerned:
            return judge(context, {}, checks)
        counts = not marks.stale(asked.mark, self.lock.digest, asked.identity)
        return [remembered(context, c, asked, counts) for c in concerned]

    # -- together -------------------------------------------------------------------
    def together(self, names: Sequence[str], ask: Asker, watch: Watch) -> None:
        """What the nodes of a level are asked together, once each of them was asked alone."""

    # -- what comes of it -------------------------------------------------------------
    def new_mark(self, name: str, run: str, at: str) -> Mark | None:
        """The mark this node should have now; None when what it has says the same, or no answer."""
        asked = self.nodes[name]
        if not asked.answered or asked.identity is None:
            return None
        ready = is_ready(asked.findings)
        old = asked.mark if not marks.stale(asked.mark, self.lock.digest, asked.identity) else None
        level = old.level if old and at_least(old.level, self.level) else self.level
        bad = [f for f in asked.findings if f.outcome is Outcome.FAIL or _blocks(f)]
        made = Mark(
            node=name,
            lock=self.lock.digest,
            state="not_ready" if not ready else "ready" if self.serving else "admitted",
            level=level,
            at=at,
            run=run,
            why=sorted({f.check for f in bad}),
            measured=(old.measured if old else {}) | measured(asked.findings),
            identity=asked.identity,
        )
        return None if asked.mark is not None and asked.mark.same_as(made) else made


def _loads(check: Check) -> bool:
    """It gives cards or engines something to do."""
    return "idle" in check.needs or check.id in ("smoke", "collective.all_nodes", "ray.cluster")


def _blocks(finding: Finding) -> bool:
    return finding.outcome is Outcome.NOT_RUN and finding.required


def measured(findings: Sequence[Finding]) -> dict[str, float]:
    """Numbers that only an idle node gives, by "CHECK METRIC"; those that failed count too."""
    return {
        f"{f.check} {name}": value
        for f in findings
        if f.check.startswith(MEASURED) and f.evidence.seconds is not None
        for name, value in f.metrics.items()
    }


def remembered(context: Context, check: Check, asked: Asked, counts: bool) -> Finding:
    """A node that serves isn't disturbed: what was measured for this lock and hardware counts."""
    mark = asked.mark
    known = {
        key.partition(" ")[2]: value
        for key, value in (mark.measured if mark and counts else {}).items()
        if key.startswith(f"{check.id} ") or key.startswith(f"{check.id}.")
    }
    users = ", ".join(asked.busy[:3])
    common: dict[str, Any] = {
        "node": context.node.name,
        "check": check.id,
        "expected": "measured while the node was idle, for this lock and this hardware",
        "source": marks.PATH,
    }
    if mark and any(one.startswith(check.id) for one in mark.why):
        return Finding(
            outcome=Outcome.FAIL,
            summary=f"it failed when it was measured on {mark.at[:16]}",
            metrics=known,
            remedy="take what runs there off the node, then: rackpin verify NODE --level node",
            **common,
        )
    if mark and known:
        summary = f"measured on {mark.at[:16]}; its cards are in use now ({users})"
        return Finding(outcome=Outcome.PASS, summary=summary, metrics=known, **common)
    return Finding(
        outcome=Outcome.NOT_RUN,
        summary=f"not checked: its cards are in use ({users}) and nothing was measured before",
        remedy="stop its engine and Ray in a quiet hour, then: rackpin verify NODE --level node",
        required=False,
        **common,
    )
