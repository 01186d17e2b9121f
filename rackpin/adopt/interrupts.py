"""What of that which runs on a host would not go on as it is, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from rackpin.adopt.document import Interruption, Stage
from rackpin.adopt.look import Found
from rackpin.apt import wanted
from rackpin.desired import Target
from rackpin.driver import decide, preflight
from rackpin.driver import want as driver
from rackpin.facts import ABSENT
from rackpin.inventory_problems import Problem
from rackpin.preflight import check_node
from rackpin.stack.changes import interrupts_of
from rackpin.stages import STAGES, apt
from rackpin.stages.python import complete_mark

# The role of a package in a lock → the item of a lock that it is part of (interrupts.yaml).
ITEMS = {
    "kernel": "kernel",
    "driver": "driver",
    "fabric_manager": "fabric manager",
    "cuda": "cuda toolkit",
    "nccl": "nccl of the host",
    "dcgm": "dcgm",
    "container_toolkit": "container toolkit",
    "rdma": "rdma",
    "mpi": "nccl-tests",
}
OTHERS = "debs"


def refusals(target: Target, found: Found) -> Iterable[Interruption]:
    """Why site.py would not begin here, in its own words."""
    assert found.survey is not None
    mark = found.paths.get(complete_mark(target.lock), ABSENT)
    problems: list[Problem] = check_node(
        target.fleet,
        target.node,
        target.lock,
        found.survey,
        environment_exists=mark.kind == "file",
        clock=found.clock,
    )
    if found.apt is not None:
        problems += apt.superseded(target, found.apt)[1]
    want = driver.want(target)
    if want is not None and found.driver is not None:
        pins = driver.versions(target)
        names = STAGES["driver"](target).packages
        problems += preflight.problems(
            target.node.name,
            want,
            found.driver,
            installed={n: v for n, v in found.packages.items() if n in names},
            wished={name: pins.get(name) for name in names},
            fabric={name: pins.get(name) for name in driver.fabric_packages(target)},
        )
    for one in problems:
        why = f"{one.message}; nothing is changed before that is settled"
        yield Interruption(what=one.key, interrupts="refused", why=why, remedy=one.remedy)


def reboots(target: Target, found: Found) -> Iterable[Interruption]:
    want = driver.want(target)
    if want is None or found.driver is None or decide.absent(found.driver):
        return
    reasons = decide.reboot_reasons(want, found.driver)
    if reasons:
        yield Interruption(
            what="the host",
            interrupts="reboot",
            why="; ".join(reasons),
            remedy=f'site.py reboots it when nothing of ours serves there ("reboot": '
            f'"{want.reboot}" in the inventory); "never" leaves that to you',
        )


def services(stages: list[Stage], target: Target) -> Iterable[Interruption]:
    """Packages at another version, by what they belong to; the driver's reboot is told apart."""
    roles = {p.name: p.role for p in wanted.packages(target)}
    moved: dict[str, list[str]] = {}
    for one in stages:
        for package in one.packages:
            if package.what == "change":
                item = "driver" if one.name == "driver" else ""
                item = ITEMS.get(roles.get(package.name, ""), item or OTHERS)
                moved.setdefault(item, []).append(f"{package.name} {package.was} → {package.now}")
    for item, names in moved.items():
        kind, why = interrupts_of(item)
        if kind == "nothing":
            continue
        level: Literal["service", "reboot"] = "reboot" if kind == "reboot" else "service"
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield Interruption(
            what=f"{item}: {', '.join(names[:3])}{more}",
            interrupts=level,
            why=why,
            remedy="drain the host first",
        )


def holders(target: Target, found: Found) -> Iterable[Interruption]:
    """Who uses the cards beside the units that the inventory wants there."""
    own = {unit.removesuffix(".service") for make in STAGES.values() for unit in make(target).units}
    for one in found.busy:
        if one in own:
            continue
        yield Interruption(
            what=one,
            interrupts="service",
            why="it runs and may use the cards; no run ends it, and Ray and the engines of the "
            "inventory need them",
            remedy="stop it before the first run, and see that it doesn't come back at boot",
        )
