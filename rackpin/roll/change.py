"""What a roll would do to one node, from what was seen of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from rackpin import layout
from rackpin.adopt.compare import compare
from rackpin.adopt.document import Document, Stage
from rackpin.adopt.look import Found
from rackpin.checks import procinfo
from rackpin.checks.base import Outputs
from rackpin.checks.procinfo import Proc
from rackpin.desired import Target
from rackpin.fleet import mark as marks
from rackpin.roll.model import Change, Kind
from rackpin.stack.changes import stops_serving
from rackpin.stack.environment import env_path
from rackpin.stages import STAGES
from rackpin.stages.fabric import CONF

# Files that only a start of Ray or an engine reads.
READ_AT_START = (
    f"{layout.ETC}/node.env",
    layout.NCCL_ENV,
    CONF,
    f"{layout.INSTANCE_DIR}/",
    "/etc/systemd/system/ray-",
    "/etc/systemd/system/vllm@",
)
UNIT = re.compile(r"(ray-\w+|vllm@[\w-]+)")
PROCESS = re.compile(r"(.+) (\d+)")


def change(target: Target, found: Found, outputs: Outputs, restart: bool = False) -> Change:
    """What rolling this node means. ``outputs`` has :data:`procinfo.COMMAND`'s answer.

    ``restart``: Ray and engines are stopped and started even where nothing asks for it.
    """
    name = target.node.name
    lock = found.mark.lock if found.mark else ""
    procs, unread = procinfo.read(outputs)
    unseen = dict(found.unseen) | ({} if procs is not None else {"processes": unread})
    if unseen or procs is None:
        said = [f"{area}: {text}" for area, text in unseen.items()]
        return Change(node=name, kind="unseen", why=said, lock=lock,
                      remedy=f"mend that, or leave {name} out by quarantine")  # fmt: skip
    document = compare(target, _quiet(found))
    if barred := [*_refused(document), *_strangers(target, found, procs)]:
        remedies = dict.fromkeys(remedy for _, remedy in barred)
        return Change(node=name, kind="refused", why=[text for text, _ in barred], lock=lock,
                      remedy="; ".join(remedies))  # fmt: skip
    what = [text for stage in document.stages if (text := _of_stage(stage))]
    reboots = [i.why for i in document.interruptions if i.interrupts == "reboot"]
    stops = [*_stops(document), *_old(target, found, procs), *_reread(document)]
    if restart:
        stops.append("a restart was asked for")
    running = bool(units_of(found))
    kind: Kind = "nothing"
    if reboots:
        kind = "reboot"
    elif stops and running:
        kind = "service"
    elif document.stages or _unproved(target, found):
        kind = "apply"
    why = [*reboots, *stops] if kind in ("reboot", "service") else []
    return Change(node=name, kind=kind, what=what, why=list(dict.fromkeys(why)), lock=lock)


def units_of(found: Found) -> list[str]:
    """Ray and engines that run there; engines first, as they are stopped."""
    return sorted((one for one in found.busy if UNIT.fullmatch(one)), reverse=True)


def _quiet(found: Found) -> Found:
    """As it will be once Ray and engines are stopped: nothing is refused for their sake."""
    driver = replace(found.driver, engines=(), holders=()) if found.driver else None
    return replace(found, driver=driver, busy=[])


def _refused(document: Document) -> list[tuple[str, str]]:
    return [
        (f"{one.what}: {one.why}", one.remedy)
        for one in document.interruptions
        if one.interrupts == "refused"
    ]


def _strangers(target: Target, found: Found, procs: Mapping[int, Proc]) -> list[tuple[str, str]]:
    """Users of the cards that are not Ray or an engine of this inventory."""
    own = {unit.removesuffix(".service") for make in STAGES.values() for unit in make(target).units}
    said = []
    for one in found.busy:
        process = PROCESS.fullmatch(one)
        if one in own or (process and int(process[2]) in procs):
            continue
        said.append((f"{one} uses its cards and is none of the inventory's", "stop it first"))
    return said


def _stops(document: Document) -> list[str]:
    return [
        f"{one.what}: {one.why}"
        for one in document.interruptions
        if one.interrupts == "service" and stops_serving(one.what.partition(":")[0])
    ]


def _old(target: Target, found: Found, procs: Mapping[int, Proc]) -> list[str]:
    """The environment changes, or did and what runs still has the old one."""
    want = env_path(target.lock)
    used = {env for proc in procs.values() for env in proc.envs} - {want}
    now = found.paths[layout.CURRENT].target if layout.CURRENT in found.paths else ""
    if used:
        names = ", ".join(sorted(env.rpartition("/")[2] for env in used))
        return [f"{names} runs, {target.lock.env_name} is locked"]
    return [f"{layout.CURRENT} becomes {target.lock.env_name}"] if now and now != want else []


def _reread(document: Document) -> list[str]:
    files = [f.path for stage in document.stages for f in stage.files if f.what != "mode"]
    changed = [path for path in files if path.startswith(READ_AT_START)]
    return [f"{', '.join(changed)}: read only at a start"] if changed else []


def _unproved(target: Target, found: Found) -> bool:
    stale = marks.stale(found.mark, target.lock.digest, found.identity)
    return bool(stale) or found.mark is None or found.mark.state != "ready"


def _of_stage(stage: Stage) -> str:
    parts = [
        _count(len(stage.files), "file"),
        _count(len(stage.packages), "package"),
        _count(len(stage.units), "unit"),
        *stage.other,
    ]
    said = ", ".join(part for part in parts if part)
    return f"{stage.name}: {said}" if said else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}" if number else ""
