"""One wave, step by step: look, drain, stop, apply, judge, rejoin, watch.

Every step is in the roll's events before it is taken. A unit that fails leaves the wave where it
is; the others go on to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rackpin.findings import Level, at_least
from rackpin.fleet.state import Drain, FleetState, now
from rackpin.inventory import Instance
from rackpin.roll import plan as planning
from rackpin.roll.hands import Hands
from rackpin.roll.model import BARRED, STOPS, Role, Unit
from rackpin.roll.store import Roll
from rackpin.verify.connect import Connections

WATCH_EVERY_S = 5
LAST = 8  # lines of a failed run of the gateway stage


class Halt(Exception):
    """The wave can't go on, and it is no unit's fault; the text says why and what to do."""


def tell(hands: Hands, what: str) -> None:
    """Every gateway learns who is drained; raises :class:`Halt` when one doesn't."""
    told = hands.tell()
    if not told.good:
        last = "\n".join(told.text.splitlines()[-LAST:])
        raise Halt(f"not every gateway could be told: {what}; see deploys/gateway.py:\n{last}")


@dataclass
class WaveRun:
    """``units`` as the plan has them; their kinds are found anew."""

    roll: Roll
    role: Role
    names: Sequence[str]
    hands: Hands
    state: FleetState
    say: Callable[[str], None]
    units: list[Unit] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # unit → why
    reports: dict[str, str] = field(default_factory=dict)

    def go(self) -> None:
        """Raises :class:`Halt`; and KeyboardInterrupt, with everything that was done noted."""
        self.look()
        self.room()
        self.note("begun", self.good)
        self.drain()
        self.stop()
        self.apply()
        self.rejoin()
        self.watch()
        for unit in self.good:
            self.roll.note("done", units=[unit.name], report=self.reports.get(unit.name, ""))

    # -- what a step works on ----------------------------------------------------------
    @property
    def good(self) -> list[Unit]:
        return [unit for unit in self.units if unit.name not in self.failed]

    @property
    def touched(self) -> bool:
        before = self.roll.progress()
        return any(before[name].touched for name in self.names)

    @property
    def stopping(self) -> list[Unit]:
        return [unit for unit in self.good if unit.kind in STOPS]

    def engines(self, some: Iterable[Unit]) -> list[Instance]:
        names = {engine for unit in some for engine in unit.engines}
        return [one for one in self.hands.fleet().config.instances if one.name in names]

    @property
    def level(self) -> Level:
        """Of the verify; a quick one would ask no engine for an answer."""
        level = self.roll.plan.options.level or self.hands.fleet().config.verify_level
        return level if at_least(level, "node") else "node"

    def mine(self, engines: Iterable[Instance]) -> list[str]:
        """Those that are drained by this roll; what a person drained stays as it is."""
        drained = self.state.drained()
        return [
            e.name
            for e in engines
            if e.name in drained and drained[e.name].owner == self.roll.owner
        ]

    # -- events -------------------------------------------------------------------------
    def note(self, event: str, some: Sequence[Unit], step: str = "") -> None:
        if some:
            self.roll.note(event, units=[unit.name for unit in some], step=step, role=self.role)

    def fail(self, unit: Unit, why: str, report: str = "") -> None:
        self.failed[unit.name] = why
        self.roll.note("failed", units=[unit.name], why=why, report=report)
        self.say(f"{unit.name}: {why}")

    # -- steps ----------------------------------------------------------------------------
    def look(self) -> None:
        """Each node as it is now: the plan may be hours old."""
        units = [self.roll.plan.unit(name) for name in self.names]
        nodes = [node for unit in units for node in unit.nodes]
        # What failed before is started anew: it may run with what has been mended since.
        found = self.hands.look(nodes, self.roll.plan.options.restart or self.touched)
        for unit in units:
            mine = [found[node] for node in unit.nodes]
            now_is = unit.model_copy(update={"kind": planning.worst(c.kind for c in mine)})
            self.units.append(now_is)
            if now_is.kind in BARRED:
                bad = [c for c in mine if c.kind in BARRED]
                why = "; ".join(f"{c.node}: {', '.join(c.why)} → {c.remedy}" for c in bad)
                self.fail(now_is, f"{now_is.kind}: {why}")
            elif now_is.kind in STOPS and unit.kind not in STOPS:
                why = "; ".join(text for c in mine for text in c.why)
                self.fail(now_is, f"would be interrupted, which the plan did not say: {why}; "
                          "--abort, then plan it anew")  # fmt: skip

    def room(self) -> None:
        """What answers now, beside this wave, must be enough; asked, not assumed."""
        fleet, least = self.hands.fleet(), self.roll.plan.capacity
        weights = planning.serving(fleet)
        away = set(planning.stopped(self.stopping)) & weights.keys()
        if not away:  # what is drained already takes nothing away
            return
        rest = [e for e in fleet.config.instances if e.name in weights and e.name not in away]
        up = self.hands.up(rest)
        down = {name: one.why for name, one in up.items() if one.why}
        left = planning.totals(weights, [e.name for e in rest if e.name not in down])
        names = planning.totals(weights, away)
        short = planning.short_of(left, {n: least[n] for n in names if n in least})
        if short:
            said = "".join(f"; {name} is down: {why}" for name, why in down.items())
            raise Halt(f"{'; '.join(short)}{said}. Bring them up, then go on")

    def drain(self) -> None:
        """No new request for these engines, and none in flight."""
        self.note("step", self.stopping, "drain")
        drained = self.state.drained()
        for engine in self.engines(self.stopping):
            if engine.name not in drained:
                wish = Drain(owner=self.roll.owner, reason="it is being changed", since=now())
                self.state.drain(engine.name, wish)
        names = [engine.name for engine in self.engines(self.stopping)]
        if not names:
            return
        self.tell(f"{', '.join(names)} drained")
        self.wait()

    def tell(self, text: str) -> None:
        tell(self.hands, text)
        self.say(text)

    def wait(self) -> None:
        options = self.roll.plan.options
        engines = self.engines(self.stopping)

        def quiet(engine: Instance) -> tuple[bool, str]:
            return self.hands.wait_quiet(engine, options.drain_s, self.say)

        by_name = {engine.name: engine for engine in engines}
        found = Connections.each(list(by_name), lambda name: quiet(by_name[name]))
        for unit in self.stopping:
            busy = [f"{e}: {found[e][1]}" for e in unit.engines if not found[e][0]]
            if not busy:
                continue
            if options.cut:
                self.say(f"{'; '.join(busy)}: cut, as was asked")
                continue
            self.fail(unit, f"still busy after {options.drain_s} s: {'; '.join(busy)}; nothing of "
                      "it was changed")  # fmt: skip
            self.let_in([unit])  # it serves as before

    def stop(self) -> None:
        units = self.stopping
        if not units:
            return
        self.note("step", units, "stop")
        wrong = self.hands.stop([node for unit in units for node in unit.nodes])
        self.say(f"Ray and engines stopped on {', '.join(n for u in units for n in u.nodes)}")
        for unit in units:
            if bad := [f"{node}: {wrong[node]}" for node in unit.nodes if node in wrong]:
                self.fail(unit, f"{'; '.join(bad)}; end that, then go on")

    def apply(self) -> None:
        units = self.good
        if not units:
            return
        self.note("step", units, "apply")
        nodes = [node for unit in units for node in unit.nodes]
        log = self.roll.directory / f"site-{nodes[0]}.log"
        self.say(f"site.py on {', '.join(nodes)} (its output: {log})")
        applied = self.hands.apply(nodes, log, self.level)
        for unit in units:
            self.reports[unit.name] = applied.report
            if bad := [f"{n}: {applied.why[n]}" for n in unit.nodes if applied.why[n]]:
                self.fail(unit, f"not ready: {'; '.join(bad)}", applied.report)

    def rejoin(self) -> None:
        self.let_in(self.good)

    def let_in(self, units: Sequence[Unit]) -> None:
        """Requests again for what this roll took away."""
        names = self.mine(self.engines(units))
        self.note("step", [u for u in units if set(u.engines) & set(names)], "rejoin")
        for name in names:
            self.state.drain(name, None)
        if names:
            self.tell(f"{', '.join(names)} back")

    def watch(self) -> None:
        """They must still answer a while later, from the same start."""
        seconds = self.roll.plan.options.watch_s
        watched = [unit for unit in self.good if unit.engines]
        engines = self.engines(watched)
        if not seconds or not engines:
            return
        self.note("step", watched, "watch")
        first = self.hands.up(engines)
        last = first
        for _ in range(max(1, seconds // WATCH_EVERY_S)):
            if any(one.why for one in last.values()):
                break
            self.hands.pause(WATCH_EVERY_S)
            last = self.hands.up(engines)
        for unit in watched:
            bad = [f"{e}: {last[e].why}" for e in unit.engines if last[e].why]
            bad += [
                f"{e}: its unit started again"
                for e in unit.engines
                if not last[e].why and last[e].start != first[e].start
            ]
            if bad:
                self.fail(unit, f"not well after it was back: {'; '.join(bad)}")
