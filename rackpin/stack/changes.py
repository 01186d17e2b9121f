"""What lies between two locks, in the operator's terms: what moves and what it interrupts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from rackpin.stack.content import Lock
from rackpin.stack.items import DebClosure, Image
from rackpin.stack.lock import STACKS, read_any_lock, read_lock, stack_names
from rackpin.stack.model import StackError, read_yaml

Interrupt = Literal["nothing", "service", "reboot"]
ORDER: tuple[Interrupt, ...] = ("nothing", "service", "reboot")
TABLE = Path(__file__).resolve().parent.parent / "data" / "interrupts.yaml"
NONE = "–"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Change:
    """One item that moves. ``was`` or ``now`` is ``–`` where a side doesn't have it."""

    what: str
    was: str
    now: str
    interrupts: Interrupt
    restarts: list[str]
    why: str


@dataclass(frozen=True)
class WheelChanges:
    """The Python environment: counts, and which distributions, ``name: [was, now]``."""

    before: int
    after: int
    added: dict[str, str] = field(default_factory=dict)
    removed: dict[str, str] = field(default_factory=dict)
    changed: dict[str, list[str]] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def __str__(self) -> str:
        moves = f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"
        return f"{self.before} → {self.after}: {moves}"


@dataclass(frozen=True)
class Comparison:
    """Everything between two locks; ``interrupts`` is the worst that any change needs."""

    was: str
    now: str
    changes: list[Change]
    wheels: WheelChanges

    @property
    def interrupts(self) -> Interrupt:
        return max((c.interrupts for c in self.changes), key=ORDER.index, default="nothing")

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "was": self.was,
            "now": self.now,
            "interrupts": self.interrupts,
            "changes": [asdict(change) for change in self.changes],
            "wheels": asdict(self.wheels),
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"


# Words of `restarts` that concern Ray and engines; others are daemons beside them.
SERVING = frozenset({"everything", "ray", "vllm", "what uses them"})


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = read_yaml(TABLE, "it belongs to the program")
    return table


def interrupts_of(item: str) -> tuple[Interrupt, str]:
    """What a change of one item of a lock interrupts on a node, and why."""
    row = _table()[item]
    return row["interrupts"], str(row["why"])


def stops_serving(item: str) -> bool:
    """Whether Ray and engines have to be started again for a change of this item to count."""
    return bool(SERVING & set(_table()[item].get("restarts", ())))


def _items(lock: Lock) -> Iterator[tuple[str, str]]:
    """What an operator knows a stack by, in the order in which a node is built."""
    host = lock.host
    yield "os", ", ".join(f"{os.id} {os.version}" for os in lock.os)
    if host.kernel:
        yield "kernel", host.kernel.release
        yield "kernel compiler", host.kernel.compiler
    if host.driver:
        yield "driver", f"{host.driver.version} {host.driver.flavour} ({host.driver.source})"
    if host.fabric_manager:
        yield "fabric manager", host.fabric_manager
    if host.cuda:
        yield "cuda toolkit", host.cuda.version
    if nccl := host.nccl.host:
        yield "nccl of the host", f"{nccl.version} (CUDA {nccl.cuda})"
    if host.rdma:
        yield "rdma", f"{host.rdma.stack} {host.rdma.version or ''}".strip()
    if host.dcgm:
        yield "dcgm", host.dcgm.version
    if host.container_toolkit:
        yield "container toolkit", host.container_toolkit.version
    for key, name in (("gdrcopy", "gdrcopy"), ("nccl-tests", "nccl-tests")):
        if source := lock.sources.get(key):
            yield name, getattr(source, "version", "unresolved")
    yield from _environment(lock)


def _environment(lock: Lock) -> Iterator[tuple[str, str]]:
    yield "python", ", ".join(lock.pythons)
    yield "engine", f"{lock.engine.distribution} {lock.engine.version}"
    for name in ("torch", "ray"):
        if version := lock.dists.get(name):
            yield name, version
    for name, version in lock.dists.items():
        if name.startswith("nvidia-nccl-cu"):
            yield "nccl of the engine", f"{version} ({name})"
    if lock.engine_env:
        yield "engine environment", " ".join(f"{k}={v}" for k, v in lock.engine_env.items())
    for name, image in lock.images.items():
        yield "image", f"{name} {image.pull if isinstance(image, Image) else image.wanted}"
    for name, files in lock.models.items():
        yield "model", f"{name}: {len(files)} files, {_short(f.sha256 for f in files)}"
    if debs := _debs(lock):
        yield "debs", debs
    yield "uv", lock.uv.version


def _debs(lock: Lock) -> str:
    """Where the closures are resolved: how many, and a digest, since their list is long."""
    found = []
    for key, closure in lock.debs_closure.items():
        if isinstance(closure, DebClosure):
            short = _short(deb.sha256 for deb in closure.debs)
            found.append(f"{len(closure.debs)} for {key} ({short})")
    return ", ".join(found)


def _short(hashes: Iterable[str]) -> str:
    """Six digits that say whether anything of a long list is another."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:6]


def _wheels(old: Lock | None, new: Lock) -> WheelChanges:
    before = {w.name: w for w in old.wheels} if old else {}
    after = {w.name: w for w in new.wheels}
    both = sorted({*before} & {*after})
    return WheelChanges(
        before=len(before),
        after=len(after),
        added={n: after[n].version for n in sorted({*after} - {*before})},
        removed={n: before[n].version for n in sorted({*before} - {*after})},
        changed={
            n: [before[n].version, after[n].version]
            for n in both
            if before[n].sha256 != after[n].sha256
        },
    )


def _change(what: str, was: str, now: str) -> Change:
    row = _table()[what]
    return Change(
        what=what,
        was=was,
        now=now,
        interrupts=row["interrupts"],
        restarts=list(row.get("restarts", [])),
        why=row["why"].format(was=was, now=now),
    )


def compare(old: Lock | None, new: Lock, was: str, now: str) -> Comparison:
    """What changes from one lock to another (from none: everything is new)."""
    before = dict(_items(old)) if old else {}
    after = dict(_items(new))
    names = [*after, *(name for name in before if name not in after)]
    order = list(_table())
    changes = [
        _change(name, before.get(name, NONE), after.get(name, NONE))
        for name in sorted(names, key=order.index)
        if before.get(name) != after.get(name)
    ]
    wheels = _wheels(old, new)
    if wheels.any:
        changes.append(_change("wheels", str(wheels.before), str(wheels)))
    return Comparison(was, now, changes, wheels)


def find_lock(place: str, root: Path = STACKS) -> Lock:
    """A lock by the name of its stack, or by the path of a ``lock.json``."""
    if place in stack_names(root):
        return read_lock(place, root)
    file = Path(place)
    if file.suffix == ".json" or file.is_file():
        return read_any_lock(file, "Give a lock.json, or the name of a stack")
    known = ", ".join(stack_names(root)) or "none"
    raise StackError(f"no stack {place!r} in {root}, and no file of that name; known: {known}")
