"""A host as it is against what every stage wants of it: changes, and what they interrupt. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from rackpin import layout
from rackpin.adopt.document import (
    EXITS,
    Document,
    File,
    Interruption,
    Outcome,
    Package,
    Stage,
    Unseen,
)
from rackpin.adopt.interrupts import holders, reboots, refusals, services
from rackpin.adopt.look import HOSTS_FILE, Found
from rackpin.apt import wanted
from rackpin.apt.pins import conflicts
from rackpin.desired import OWNED_MARK, Desired, OwnedFile, Target
from rackpin.driver import want as driver
from rackpin.facts import ABSENT, PathState
from rackpin.fleet.state import now
from rackpin.stack.environment import env_path
from rackpin.stages import STAGES, apt
from rackpin.stages.base import SWAP_MASK, hosts_file
from rackpin.stages.python import complete_mark
from rackpin.stages.serve import placed


def compare(target: Target, found: Found) -> Document:
    """Everything that a first run of site.py would change on this host."""
    unseen = [Unseen(area=area, why=why) for area, why in found.unseen.items()]
    stages: list[Stage] = []
    stopped: list[Interruption] = []
    if found.survey is not None:
        stages = [s for s in (stage(name, target, found) for name in STAGES) if s.changes]
        stopped = [*refusals(target, found), *reboots(target, found), *services(stages, target)]
    stopped += holders(target, found)
    outcome: Outcome = "could_not_look" if unseen else "interrupts" if stopped else "nothing"
    return Document(
        node=target.node.name,
        at=now(),
        fleet=target.fleet.config.fleet,
        stack=target.lock.stack,
        lock=target.lock.digest,
        outcome=outcome,
        exit_code=EXITS[outcome],
        known=found.marked,
        stages=stages,
        interruptions=stopped,
        foreign=foreign(target, found),
        unseen=unseen,
    )


def stage(name: str, target: Target, found: Found) -> Stage:
    wish = STAGES[name](target)
    made = Stage(name=name)
    for folder in wish.directories:
        state = found.paths.get(folder.path, ABSENT)
        if state.kind not in ("absent", "directory"):
            made.files.append(File(path=folder.path, what=f"in the way: a {state.kind}"))
    changed = [change for file in wish.files if (change := of_file(file, found.paths))]
    made.files += changed
    pins = {pin.name: pin.version for pin in wanted.pins(target)}
    names = [*wish.packages, *(driver_names(target) if name == "driver" else ())]
    made.packages = list(packages(dict.fromkeys(names), pins, found))
    if name == "apt" and found.apt is not None:
        made.packages = [
            Package(name=one, what="hold", was=found.apt.status[one].version)
            for one in apt.plan(target, found.apt).hold
        ]
    made.units = [f"{unit}: {what}" for unit in wish.units if (what := of_unit(unit, found))]
    made.other = list(others(name, target, found, wish))
    return made


def driver_names(target: Target) -> tuple[str, ...]:
    return (*driver.kernel_packages(target), *driver.driver_packages(target))


def of_file(file: OwnedFile, paths: dict[str, PathState]) -> File | None:
    state = paths.get(file.path, ABSENT)
    if state.kind == "absent":
        return File(path=file.path, what="new")
    if state.kind not in ("file", "link"):
        return File(path=file.path, what=f"in the way: a {state.kind}")
    if state.sha256 == file.sha256:
        same = (state.mode, state.owner, state.group) == (file.mode, file.owner, file.group)
        return None if same else File(path=file.path, what="mode")
    if OWNED_MARK in state.first_lines:
        return File(path=file.path, what="ours, with other content")
    return File(path=file.path, what="replaced", backup=f"{layout.BACKUPS}{file.path}")


def packages(names: Iterable[str], pins: dict[str, str], found: Found) -> Iterable[Package]:
    for name in names:
        was, version = found.packages.get(name, ""), pins.get(name, "")
        if not was:
            yield Package(name=name, what="install", now=version)
        elif version and was != version:
            yield Package(name=name, what="change", was=was, now=version)


def of_unit(unit: str, found: Found) -> str:
    state = found.units.get(unit, {})
    active = state.get("ActiveState") == "active"
    enabled = state.get("UnitFileState") == "enabled"
    if active and enabled:
        return ""
    return "enabled" if active else "started" if enabled else "enabled and started"


def others(name: str, target: Target, found: Found, wish: Desired) -> Iterable[str]:
    """What a stage does beside its files, packages and units."""
    survey = found.survey
    if name == "base" and survey is not None:
        if layout.USER not in found.users:
            yield f"system user {layout.USER} is made"
        if found.hosts != hosts_file(found.hosts, target.fleet, target.node):
            yield (
                f"{HOSTS_FILE}: a block with the fleet's nodes; all other lines stay but loopback "
                "ones with this host's name"
            )
        if survey.hostname != target.node.name:
            yield f"host name {survey.hostname} becomes {target.node.name}"
        if survey.swaps:
            yield f"swap is switched off: {', '.join(survey.swaps)}"
        elif found.paths.get(SWAP_MASK, ABSENT).target != "/dev/null":
            yield "no swap at boot any more"
    if name == "python" and found.paths.get(complete_mark(target.lock), ABSENT).kind != "file":
        yield f"{env_path(target.lock)} is built; nothing uses it before Ray and engines start"
    if name == "serve":
        for model in placed(target):
            state = found.models.get(model.path)
            if state is not None and not model.settled(state):
                gb = model.missing(state) / 1e9
                yield f"{model.path}: model {model.name} is fetched, {gb:.1f} GB, and proved"
    if name == "apt" and found.apt is not None:
        todo = apt.plan(target, found.apt)
        yield from (f"{one.place}: switched off, kept below {layout.BACKUPS}"
                    for one in todo.disable)  # fmt: skip
        yield from (f"{path}: removed, of an earlier wish" for path in todo.remove)
        yield from (f"{package}: released, held for an earlier pin" for package in todo.release)


def foreign(target: Target, found: Found) -> list[str]:
    """Repositories, pins and driver files of others, and what becomes of them."""
    if found.apt is None:
        return []
    off = {one.place for one in apt.plan(target, found.apt).disable}
    said = [
        f"repository {' '.join(one.uris)} {' '.join(one.suites)} ({one.place}): "
        f"{'switched off, the stack has its own entry for it' if one.place in off else 'stays'}"
        for one in found.apt.site_sources
    ]
    said += [f"pin: {one}" for one in conflicts(wanted.pins(target), found.apt.site_pins)]
    said += [f"apt: {error}" for error in found.apt.errors]
    if found.driver is not None and found.driver.foreign:
        said.append(f"driver of a .run file: {', '.join(found.driver.foreign[:4])}")
    return said
