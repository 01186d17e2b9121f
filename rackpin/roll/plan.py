"""Units that go together, waves of them, and what must go on serving meanwhile. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rackpin.inventory import Fleet
from rackpin.inventory_problems import FLEET, Problem
from rackpin.roll.model import (
    BARRED,
    KINDS,
    STOPS,
    Capacity,
    Change,
    Kind,
    Options,
    Role,
    Unit,
    Wave,
)


def units(fleet: Fleet, changes: Mapping[str, Change]) -> list[Unit]:
    """Nodes joined by the engines over them, and by Ray where its head is interrupted."""
    names = [name for name in fleet.nodes if name in changes]
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    def join(some: Sequence[str]) -> None:
        there = [name for name in some if name in parent]
        for name in there[1:]:
            parent[root(name)] = root(there[0])

    for instance in fleet.config.instances:
        join(instance.nodes)
    head = fleet.head.name
    if head in changes and changes[head].kind in STOPS:
        # Without its head every engine over Ray ends: they are one thing with it.
        over = {n for i in fleet.config.instances if i.executor == "ray" for n in i.nodes}
        join([head, *sorted(over)])
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(root(name), []).append(name)
    return [_unit(fleet, changes, members) for members in groups.values()]


def _unit(fleet: Fleet, changes: Mapping[str, Change], members: list[str]) -> Unit:
    engines = [i.name for i in fleet.config.instances if set(i.nodes) & set(members)]
    return Unit(
        name=_name(engines, members),
        nodes=members,
        engines=engines,
        kind=worst(changes[name].kind for name in members),
        head=fleet.head.name in members,
        gateway=not engines and all(fleet.nodes[name].is_gateway for name in members),
    )


def _name(engines: list[str], members: list[str]) -> str:
    """Of a node alone its own; else of its first engines, which are in no other unit."""
    if not engines or len(members) == 1:
        return members[0]
    more = f"+{len(engines) - 2}" if len(engines) > 2 else ""
    return "+".join(engines[:2]) + more


def worst(kinds: Iterable[Kind]) -> Kind:
    return max(kinds, key=KINDS.index, default="nothing")


Weights = Mapping[str, tuple[str, int]]  # engine that may get requests → served name, weight


def serving(fleet: Fleet) -> dict[str, tuple[str, int]]:
    """Engines that may get requests; none that is drained, or that a quarantined node keeps out."""
    return {
        one.name: (one.served_name, one.weight)
        for one in fleet.config.instances
        if one.weight and one.name not in fleet.drained and not fleet.kept_out.keys() & {*one.nodes}
    }


def totals(weights: Weights, engines: Iterable[str] | None = None) -> dict[str, int]:
    """Weight by served name, of these engines or of all."""
    found: dict[str, int] = {}
    for engine in weights if engines is None else engines:
        if engine in weights:
            name, weight = weights[engine]
            found[name] = found.get(name, 0) + weight
    return found


def capacity(weights: Weights, options: Options) -> dict[str, Capacity]:
    """What each name has, and what it must keep."""
    share = options.keep_percent / 100
    return {
        name: Capacity(total=total, least=math.ceil(total * share))
        for name, total in totals(weights).items()
    }


def stopped(some: Iterable[Unit]) -> list[str]:
    """Engines that are away while these units are changed."""
    return [engine for unit in some if unit.kind in STOPS for engine in unit.engines]


def short_of(left: Mapping[str, int], least: Mapping[str, Capacity]) -> list[str]:
    """Served names that would fall below what they must keep, a sentence each."""
    return [
        f"{name}: {left.get(name, 0)} of {one.total} would serve, {one.least} must"
        for name, one in least.items()
        if left.get(name, 0) < one.least
    ]


def waves(weights: Weights, some: Sequence[Unit], options: Options) -> list[Wave]:
    """Gateways one by one, the Ray head, the canary, then as many at once as may be."""
    todo = [unit for unit in some if unit.kind != "nothing"]
    made: list[Wave] = [Wave(role="gateway", units=[u.name]) for u in todo if u.gateway]
    rest = [unit for unit in todo if not unit.gateway]
    if heads := [unit for unit in rest if unit.head]:
        made.append(Wave(role="head", units=[u.name for u in heads]))
        rest = [unit for unit in rest if not unit.head]
    size = options.wave or max(1, math.floor(len(rest) * options.wave_percent / 100))
    least = capacity(weights, options)
    role: Role = "canary" if options.canary else "wave"
    while rest:
        wave = _next(weights, rest, least, options.canary if role == "canary" else size)
        made.append(Wave(role=role, units=[u.name for u in wave]))
        names = {unit.name for unit in wave}
        rest = [unit for unit in rest if unit.name not in names]
        role = "wave"
    return made


def _next(
    weights: Weights, rest: Sequence[Unit], least: Mapping[str, Capacity], size: int
) -> list[Unit]:
    """The units of the next wave, in order, as capacity allows; at least one."""
    free = {name: one.total - one.least for name, one in least.items()}
    wave: list[Unit] = []
    for unit in rest:
        away = totals(weights, stopped([unit]))
        if wave and any(weight > free[name] for name, weight in away.items()):
            continue
        for name, weight in away.items():
            free[name] -= weight
        wave.append(unit)
        if len(wave) == size:
            break
    return wave


def problems(
    fleet: Fleet, some: Sequence[Unit], changes: Mapping[str, Change], options: Options
) -> list[Problem]:
    """Why the roll may not begin; empty when it may."""
    found = [
        Problem(one.node, one.kind, "; ".join(one.why), one.remedy)
        for one in changes.values()
        if one.kind in BARRED
    ]
    weights = serving(fleet)
    least = capacity(weights, options)
    all_of = totals(weights)
    for unit in some:
        away = totals(weights, stopped([unit]))
        left = {name: all_of[name] - weight for name, weight in away.items()}
        for text in short_of(left, {name: least[name] for name in away}):
            remedy = "add an engine of that name, or say that it may be away: --keep 0"
            found.append(Problem(unit.name, "keep", text, remedy))
    found += _torn(fleet, some, changes)
    if (engines := stopped(some)) and not fleet.gateways and not options.cut:
        found.append(
            Problem(
                FLEET,
                "gateway",
                f"{', '.join(engines)} would be stopped, and no node of the group `gateway` takes "
                "requests away from them before",
                "take them out of your own balancer wave by wave and say so with --cut, or give "
                "the fleet a gateway",
            )
        )
    return found


def _torn(fleet: Fleet, some: Sequence[Unit], changes: Mapping[str, Change]) -> Iterator[Problem]:
    """Engines that would be stopped while some of their nodes are not of this roll."""
    for unit in some:
        if unit.kind not in STOPS:
            continue
        for one in fleet.config.instances:
            over_ray = unit.head and one.executor == "ray"
            if one.name not in unit.engines and not over_ray:
                continue
            missing = [n for n in one.nodes if n not in changes and n not in fleet.kept_out]
            if missing:
                what = f"{one.name} runs over {', '.join(missing)} too, and they are not named"
                yield Problem(unit.name, "hosts", what, "name all of its nodes, or none at all")
