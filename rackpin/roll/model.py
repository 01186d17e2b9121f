"""What a roll is, as data: what changes on each node, units that go together, waves, progress."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from rackpin.findings import Level

SCHEMA_VERSION = 1

# Worst last: a unit is what its worst node is.
Kind = Literal["nothing", "apply", "service", "reboot", "refused", "unseen"]
KINDS: tuple[Kind, ...] = ("nothing", "apply", "service", "reboot", "refused", "unseen")
STOPS: frozenset[Kind] = frozenset({"service", "reboot"})  # Ray and engines are stopped for it
BARRED: frozenset[Kind] = frozenset({"refused", "unseen"})  # nothing may be done to it

Role = Literal["again", "gateway", "head", "canary", "wave"]
UnitState = Literal["waiting", "begun", "done", "failed"]


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Change(Model):
    """What the roll would do to one node, and what that interrupts."""

    node: str
    kind: Kind
    what: list[str] = Field(default_factory=list)  # by stage, in a few words
    why: list[str] = Field(default_factory=list)  # what interrupts, or bars
    remedy: str = ""
    lock: str = ""  # digest that its mark has now; "" without a mark


class Unit(Model):
    """Nodes that go together: an engine over several nodes is one thing."""

    name: str
    nodes: list[str]
    engines: list[str] = Field(default_factory=list)
    kind: Kind = "nothing"
    head: bool = False  # the Ray head is in it
    gateway: bool = False  # all its nodes are gateways and serve no engine


class Wave(Model):
    role: Role
    units: list[str]


class Capacity(Model):
    """Of one served name, in weights of its engines."""

    total: int
    least: int  # that must go on getting requests at every moment


class Options(Model):
    """How the roll goes on; stated once, at its beginning."""

    canary: int = Field(1, ge=0)  # units in the first wave
    wave: int | None = Field(None, ge=1)  # units in a wave; None: by percent
    wave_percent: float = Field(25.0, gt=0, le=100)
    keep_percent: float = Field(50.0, ge=0, le=100)  # of each served name's weight
    max_failures: int = Field(0, ge=0)  # failed units after which no further wave begins
    level: Level | None = None  # of the verify of each wave; None: the inventory's
    watch_s: int = Field(30, ge=0)
    drain_s: int = Field(600, ge=0)  # until what is in flight must have ended
    cut: bool = False  # stop engines that are still busy then, or have no gateway
    restart: bool = False  # also what nothing changes


class Plan(Model):
    """``plan.json`` of a roll."""

    schema_version: int = SCHEMA_VERSION
    roll: str
    at: str  # ISO 8601, UTC
    owner: str
    inventory: str
    data: list[str] = Field(default_factory=list)
    group_data: list[str] = Field(default_factory=list)
    fleet: str
    stack: str
    lock: str
    stacks_dir: str = ""  # where the lock is taken from; "": the project's own
    back_of: str = ""  # the roll that this one takes back
    options: Options = Options()
    changes: list[Change] = Field(default_factory=list)
    units: list[Unit] = Field(default_factory=list)
    waves: list[Wave] = Field(default_factory=list)
    capacity: dict[str, Capacity] = Field(default_factory=dict)
    left_out: dict[str, str] = Field(default_factory=dict)  # node → why

    def unit(self, name: str) -> Unit:
        return next(unit for unit in self.units if unit.name == name)


class Progress(Model):
    """How far one unit is; the fold of the roll's events."""

    state: UnitState = "waiting"
    step: str = ""
    why: str = ""
    since: str = ""
    report: str = ""
    touched: bool = False  # something on its nodes may have been changed
