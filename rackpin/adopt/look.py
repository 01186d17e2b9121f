"""Everything that the stages would ask of a node, asked once, without a deploy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackpin import deadlines
from rackpin.apt.state import AptState
from rackpin.checks.base import NO_ANSWER, Command, Output
from rackpin.connector import raw
from rackpin.desired import Target
from rackpin.driver.state import DriverState
from rackpin.facts import NodeSurvey, Packages, Paths, PathState, Survey, Text, Units, Users
from rackpin.facts_apt import Apt
from rackpin.facts_driver import Gpu
from rackpin.facts_fabric import FabricFact
from rackpin.facts_fleet import IdentityFact
from rackpin.facts_models import ModelFact
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import Identity
from rackpin.requests import requests
from rackpin.stack.placed import ModelState
from rackpin.verify.idle import HOLDERS, busy
from rackpin.verify.run import Ways

HOSTS_FILE = "/etc/hosts"


@dataclass
class Found:
    """A node as it is. What could not be looked at is in ``unseen``, by area, with the reason."""

    survey: NodeSurvey | None = None
    apt: AptState | None = None
    driver: DriverState | None = None
    paths: dict[str, PathState] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    models: dict[str, ModelState] = field(default_factory=dict)  # by path
    hosts: str = ""
    marked: bool = False  # rackpin was there before: it left a mark
    mark: marks.Mark | None = None  # where this rackpin can read it
    identity: Identity | None = None
    busy: list[str] = field(default_factory=list)
    clock: tuple[float, float] = (0.0, 0.0)  # this machine's, when asked and when answered
    unseen: dict[str, str] = field(default_factory=dict)


def look(
    target: Target, ways: Ways, more: Sequence[Command] = ()
) -> tuple[Found, Target, Mapping[str, Output]]:
    """One remote execution; the target with interface and fabric as found, answers to ``more``."""
    name = target.node.name
    facts = requests(target)
    commands = [
        Command(f"fact.{n}", raw(cls().command(**given)), deadlines.FACT_S, writes=True)
        for n, (cls, given) in enumerate(facts)
    ]
    asked = time.time()
    answers = ways.ask({name: [*commands, HOLDERS, *more]}).get(name, {})
    found = Found(clock=(asked, time.time()))
    if name in ways.unreachable:
        found.unseen["connect"] = ways.unreachable[name]
        return found, target, answers
    found.busy = busy(answers.get(HOLDERS.name, NO_ANSWER))
    fabric = None
    for command, (cls, given) in zip(commands, facts, strict=True):
        value = _value(cls, answers.get(command.name, NO_ANSWER), found)
        if value is None:
            continue
        if cls is FabricFact:
            fabric = value
        else:
            _keep(found, cls, given, value)
    if found.driver is None and any(cls is Gpu for cls, _ in facts):
        found.unseen.setdefault("Gpu", "no answer that can be read")
    interface = found.survey.addresses.get(target.node.address, "") if found.survey else ""
    return found, replace(target, interface=interface, fabric=fabric), answers


def _value(cls: Any, output: Output, found: Found) -> Any:
    """A fact's value; None when it could not be had, which is then told."""
    if not output.ok:
        said = output.stderr.strip() or ("past its deadline" if output.timed_out else "no answer")
        found.unseen[cls.__name__] = said.splitlines()[-1]
        return None
    try:
        value = cls().process(output.stdout.splitlines())
    except Exception as error:  # a fact's own parser: what it can't read was not seen
        found.unseen[cls.__name__] = str(error)
        return None
    if cls is Gpu and not isinstance(value, DriverState):
        found.unseen["Gpu"] = str(value)
        return None
    return value


def _keep(found: Found, cls: Any, given: Mapping[str, Any], value: Any) -> None:
    single: Sequence[tuple[Any, str]] = (
        (Survey, "survey"), (Apt, "apt"), (Gpu, "driver"), (IdentityFact, "identity"),
    )  # fmt: skip
    joined: Sequence[tuple[Any, str]] = (
        (Paths, "paths"), (Packages, "packages"), (Units, "units"), (Users, "users"),
    )  # fmt: skip
    for kind, name in single:
        if cls is kind:
            setattr(found, name, value)
    for kind, name in joined:
        if cls is kind:
            getattr(found, name).update(value)
    if cls is ModelFact:
        found.models[given["path"]] = value
    if cls is Text and given.get("path") == HOSTS_FILE:
        found.hosts = value
    if cls is Text and given.get("path") == marks.PATH:
        found.marked, found.mark = bool(value), marks.read(value)
