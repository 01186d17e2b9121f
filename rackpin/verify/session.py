"""One verify: what each node is asked, what they are asked together, and what comes of it.

A :class:`Session` has no connection of its own: it is given runners. Nodes are asked at the same
time, in any order, from any thread; :meth:`Session.together` comes when all of them are done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackpin.checks import Check, Command, Context, Output, gpuinfo, judge, of_level, plan
from rackpin.checks.base import NO_ANSWER, Runner
from rackpin.findings import Finding, Level, Measurement, Outcome, Outlier, at_least, is_ready
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import IdentityError, parse
from rackpin.fleet.mark import Mark
from rackpin.inventory import Fleet
from rackpin.stack.lock import Lock
from rackpin.verify.asking import Asker, Watch
from rackpin.verify.campaign import Campaign, run_campaign
from rackpin.verify.idle import HOLDERS, busy
from rackpin.verify.memory import Asked, in_pairs, measured, remembered
from rackpin.verify.outliers import collect, outliers
from rackpin.verify.outliers import finding as odd_ones

# "CHECK METRIC" → earlier values, the newest last; by node.
History = Mapping[str, Mapping[str, Sequence[float]]]


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
    notes: list[str] = field(default_factory=list)

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
        outputs, broken = _outputs(context, checks, runner, own)
        _look(asked, outputs)
        asked.told = collect(context, outputs)
        context = replace(context, extra={"last_verify": asked.mark.at} if asked.mark else {})
        asked.findings = broken + judge(context, outputs, checks)
        if level == "node" and self.loads and asked.answered:
            asked.findings += self._idle(context, asked, runner)
        for step in ("fleet", "burnin"):
            if self.serving and self.loads and at_least(self.level, step) and asked.answered:
                more = [c for c in of_level(step) if c.level == step]
                asked.findings += _asked(context, more, runner)
        return asked.findings

    def _idle(self, context: Context, asked: Asked, runner: Runner) -> list[Finding]:
        """What takes the cards: asked of an idle node, else what its mark remembers of it."""
        checks = [c for c in of_level("node", self.serving, idle=True) if "idle" in c.needs]
        if not asked.busy:
            return _asked(context, checks, runner)
        found = []
        for check in checks:
            if check.commands(context):
                found += remembered(context, check, asked)
            else:
                found += judge(context, {}, [check])
        return found

    # -- together -------------------------------------------------------------------
    def together(self, names: Sequence[str], ask: Asker, watch: Watch) -> None:
        """What nodes are asked together, once each of them was asked alone.

        Collectives only over those that nobody uses; all that was measured is kept, also when
        this is interrupted.
        """
        told = {name: self.nodes[name].told for name in names if self.nodes[name].told}
        sku_of = {name: self.fleet.nodes[name].sku for name in told}
        self.outliers = outliers(told, sku_of)
        if len(told) > 1:
            self.together_findings.append(odd_ones(self.outliers, sku_of))
        cards = [name for name in names if gpuinfo.has_cards(self.context(name))]
        if not self.loads or not at_least(self.level, "node") or not cards:
            return
        idle = [name for name in cards if not self.nodes[name].busy]
        if at_least(self.level, "pair"):
            for name in set(cards) - set(idle):
                found = in_pairs(name, self.nodes[name], self.lock.digest)
                self.nodes[name].findings.append(found)
        campaign = Campaign()
        try:
            if idle:
                watch.phase("collectives", 0)
                run_campaign(
                    self.fleet, self.lock, idle, ask, self.level, watch.tell, into=campaign
                )
        finally:
            self.measurements += campaign.measurements
            self.notes += campaign.notes
            for finding in campaign.findings:
                if finding.node in self.nodes:
                    self.nodes[finding.node].findings.append(finding)
                else:
                    self.together_findings.append(finding)

    # -- what comes of it -------------------------------------------------------------
    def new_mark(self, name: str, run: str, at: str) -> Mark | None:
        """The mark this node should have now; None when what it has says the same, or no answer."""
        asked = self.nodes[name]
        if not asked.answered or asked.identity is None:
            return None
        ready = is_ready(asked.findings)
        old = asked.mark if asked.counts(self.lock.digest) else None
        level = old.level if old and at_least(old.level, self.level) else self.level
        bad = {f.check for f in asked.findings if f.outcome is Outcome.FAIL or _blocks(f)}
        if self.serving and old:  # what wasn't asked again isn't mended by that
            bad |= set(old.why) - {f.check for f in asked.findings}
        # A quick look asks no engine: it makes no node ready that wasn't.
        whole = self.serving and (at_least(self.level, "node") or (old and old.state == "ready"))
        made = Mark(
            node=name,
            lock=self.lock.digest,
            state="not_ready" if bad or not ready else "ready" if whole else "admitted",
            level=level,
            at=at,
            run=run,
            why=sorted(bad),
            measured=(old.measured if old else {}) | measured(asked.findings),
            identity=asked.identity,
        )
        return None if asked.mark is not None and asked.mark.same_as(made) else made


def _outputs(
    context: Context, checks: Sequence[Check], runner: Runner, more: Sequence[Command] = ()
) -> tuple[dict[str, Output], list[Finding]]:
    """All answers in one remote execution, and findings for checks that couldn't ask."""
    commands, broken = plan(context, checks)
    commands += more
    try:
        return (runner(commands) if commands else {}), broken
    except Exception as error:  # whatever the connection raises: every check says so
        why = f"{type(error).__name__}: {error}"
        return {c.name: Output(rc=None, stderr=why) for c in commands}, broken


def _asked(context: Context, checks: Sequence[Check], runner: Runner) -> list[Finding]:
    outputs, broken = _outputs(context, checks, runner)
    return broken + judge(context, outputs, checks)


def _look(asked: Asked, outputs: Mapping[str, Output]) -> None:
    """Mark, hardware and users of the node, as far as it told them."""
    asked.answered = any(output.rc is not None for output in outputs.values())
    told = outputs.get(marks.READ.name, NO_ANSWER)
    asked.mark = marks.read(told.stdout) if told.ok else None
    told = outputs.get(marks.IDENTITY.name, NO_ANSWER)
    try:
        found = parse(told.stdout.splitlines()) if told.ok else None
        asked.identity = found.with_serials(_serials(outputs)) if found else None
    except IdentityError:
        asked.identity = None
    asked.busy = busy(outputs.get(HOLDERS.name, NO_ANSWER))


def _serials(outputs: Mapping[str, Output]) -> dict[str, str]:
    """Serial numbers by slot, as the kernel writes it; boards without one print 0 or N/A."""
    smi = gpuinfo.read_smi(outputs)
    cards = smi.gpus if isinstance(smi, gpuinfo.Smi) else ()
    return {
        card.bus_id.lower()[-12:]: card.serial
        for card in cards
        if card.bus_id and card.serial and card.serial.isdigit() and int(card.serial)
    }


def _loads(check: Check) -> bool:
    """It gives cards or engines something to do."""
    return "idle" in check.needs or check.id in ("smoke", "collective.all_nodes", "ray.cluster")


def _blocks(finding: Finding) -> bool:
    return finding.outcome is Outcome.NOT_RUN and finding.required
