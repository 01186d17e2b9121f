"""A serving fleet without any connection, and hands that change it, fail and are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackpin.fleet import quarantine
from rackpin.gateway.drain import Told
from rackpin.inventory import Fleet, FleetConfig, Instance, Node
from rackpin.inventory_problems import Problem
from rackpin.roll.hands import Applied, Say, Up
from rackpin.roll.make import new_plan
from rackpin.roll.model import Change, Kind, Options, Plan
from rackpin.roll.run import Runner
from rackpin.roll.store import FileStore, Roll
from rackpin.stack.lock import Lock

OLD, NEW = "old", "new"


class Killed(BaseException):
    """As kill -9: nothing catches it, nothing is tidied up."""


def serving_fleet(tmp: Path, key: Path, engines: int = 4, over: int = 1) -> Fleet:
    """A head that is the gateway too, and ``engines`` engines of one name over ``over`` nodes."""
    nodes = [Node(name="head1", groups=["head"], address="10.9.0.1", sku="lab-cpu", gpus=0)]
    nodes.append(Node(name="gw1", groups=["gateway"], address="10.9.0.2", sku="lab-cpu", gpus=0))
    instances = []
    for number in range(engines):
        names = [f"w{number * over + part + 1}" for part in range(over)]
        nodes += [
            Node(name=name, groups=["workers"], address=f"10.9.{1 + int(name[1:]) // 250}."
                 f"{1 + int(name[1:]) % 250}", sku="lab-cpu", gpus=1)
            for name in names
        ]  # fmt: skip
        instances.append(
            Instance(
                name=f"e{number + 1}",
                nodes=names,
                model="/m",
                served_name="m",
                tp=over,
                api_key_file=str(key),
            )
        )
    config = FleetConfig(
        fleet="test", stack="cpu-lab", wheelhouse_url="http://10.9.0.9:8900", instances=instances,
        state_dir=str(tmp / "state"), report_dir=str(tmp / "reports"),
    )  # fmt: skip
    return Fleet(config=config, nodes={node.name: node for node in nodes})


@dataclass
class World:
    """All that a roll can reach. ``moment`` is called before each thing that it does."""

    raw: Fleet
    lock: Lock
    kinds: dict[str, Kind] = field(default_factory=dict)  # what a change means, by node
    locks: dict[str, str] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)  # engines
    busy: set[str] = field(default_factory=set)  # engines that never get quiet
    dead: set[str] = field(default_factory=set)  # engines that died; the gateway passes them over
    bad: dict[str, str] = field(default_factory=dict)  # node → what its verify says
    stuck: dict[str, str] = field(default_factory=dict)  # node → who holds its cards
    told_bad: bool = False
    routed: set[str] = field(default_factory=set)  # engines that the gateway sends requests to
    moment: Callable[[str], None] = lambda _: None
    done: list[str] = field(default_factory=list)
    least: int = 0  # the fewest engines that answered requests at any moment
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = quarantine.state_of(self.raw)
        self.store: FileStore = quarantine.rolls_of(self.raw)
        self.engines = {one.name: one for one in self.raw.config.instances}
        self.routed = set(self.engines)
        self.locks = dict.fromkeys(self.raw.nodes, OLD)
        self.least = len(self.engines)

    def at(self, what: str) -> None:
        self.moment(what)
        self.done.append(what)
        lost = self.routed & self.down
        assert not lost, f"requests to {lost} failed at {what}"
        self.least = min(self.least, len(self.routed))

    # -- hands -------------------------------------------------------------------------
    def fleet(self) -> Fleet:
        return quarantine.applied(self.raw)

    def look(self, names: Sequence[str], restart: bool) -> dict[str, Change]:
        self.at("look")
        return {name: self.change(name, restart) for name in names}

    def change(self, name: str, restart: bool = False) -> Change:
        kind: Kind = "nothing"
        up = any(name in e.nodes and e.name not in self.down for e in self.engines.values())
        if self.locks[name] != NEW or restart:
            wish = self.kinds.get(name, "service")
            kind = wish if up or wish not in ("service", "reboot") or name == "head1" else "apply"
        why = [f"{name} has {self.locks[name]}"] if kind not in ("nothing", "apply") else []
        return Change(node=name, kind=kind, why=why, lock=self.locks[name])

    def tell(self) -> Told:
        self.at("tell")
        if self.told_bad:
            return Told(False, "gw1 can't be reached")
        self.routed = set(self.engines) - self.state.drained().keys()
        self.at("told")
        return Told(True, "")

    def wait_quiet(self, engine: Instance, limit_s: float, say: Say) -> tuple[bool, str]:
        self.at(f"wait {engine.name}")
        return (False, "3 running") if engine.name in self.busy else (True, "")

    def up(self, engines: Sequence[Instance]) -> dict[str, Up]:
        self.at("up")
        return {
            e.name: Up("its unit is failed" if e.name in self.down | self.dead else "", "1")
            for e in engines
        }

    def stop(self, nodes: Sequence[str]) -> dict[str, str]:
        for name in nodes:
            self.at(f"stop {name}")
            for engine in self.engines.values():
                if name in engine.nodes:
                    assert engine.name not in self.routed, f"{engine.name} stopped under requests"
                    self.down.add(engine.name)
        return {name: self.stuck[name] for name in nodes if name in self.stuck}

    def apply(self, nodes: Sequence[str], log: Path, level: str) -> Applied:
        assert level != "quick"
        for name in nodes:
            self.at(f"apply {name}")
            self.locks[name] = NEW
        self.at("start")
        for engine in self.engines.values():
            if set(engine.nodes) <= set(nodes) and not set(engine.nodes) & self.bad.keys():
                self.down.discard(engine.name)
        self.at("started")
        return Applied({name: self.bad.get(name, "") for name in nodes}, "report.json")

    def pause(self, seconds: float) -> None:
        self.at("pause")

    # -- a roll -----------------------------------------------------------------------------
    def plan(self, **options: object) -> tuple[Plan, list[Problem]]:
        wish = Options.model_validate({"watch_s": 5, **options})
        found = {name: self.change(name, wish.restart) for name in self.raw.nodes}
        return new_plan(self.fleet(), self.lock, found, wish, inventory="inv.py", owner="ada")

    def begin(self, **options: object) -> Roll:
        plan, problems = self.plan(**options)
        assert problems == []
        return self.store.begin(plan)

    def run(self, roll: Roll, only_failed: bool = False) -> int:
        """One call of the command."""
        again = Roll(roll.directory)
        runner = Runner(again, self, self.state, self.store, self.said.append)
        with self.store.hold():
            return runner.go(only_failed)

    @property
    def last(self) -> Roll:
        roll = self.store.last()
        assert roll is not None
        return roll
