"""``rackpin check``: pins and lock of a stack held against the rules, as data and as text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from rackpin.compat.engine import LEVELS, Note, judge
from rackpin.compat.facts import facts_of
from rackpin.compat.rules import HERE, load_topics
from rackpin.stack.content import Lock
from rackpin.stack.lock import STACKS, read_lock, stack_pins
from rackpin.stack.model import StackError
from rackpin.stack.pins import Pins

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Verdict:
    """All that was found for one stack on one day. ``ok``: no error among it."""

    stack: str
    on: date
    lock: str | None  # digest of the lock that was looked at
    notes: list[Note]

    @property
    def ok(self) -> bool:
        return not any(note.level == "error" for note in self.notes)

    @property
    def counts(self) -> dict[str, int]:
        found = Counter(note.level for note in self.notes)
        return {level: found[level] for level in LEVELS}

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "stack": self.stack,
            "on": self.on.isoformat(),
            "lock": self.lock,
            "ok": self.ok,
            "counts": self.counts,
            "notes": [note.as_dict() for note in self.notes],
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"


def _fitting_lock(pins: Pins, root: Path) -> tuple[Lock | None, Note | None]:
    """The lock if it belongs to these pins, else why there is none."""
    remedy = f"rackpin lock {pins.name}"
    try:
        lock = read_lock(pins.name, root)
    except StackError as error:
        return None, Note(
            "error", "lock.unreadable", str(error).splitlines()[0], remedy, "lock.json"
        )
    if lock.pins_sha256 != pins.sha256:
        said = "the lock was made from other pins than pins.yaml has now; only the pins are judged"
        return None, Note("error", "lock.stale", said, remedy, "lock.json: pins_sha256")
    return lock, None


def _of_lock(pins: Pins, lock: Lock | None) -> Iterator[Note]:
    for key, item in lock.unresolved.items() if lock else ():
        yield Note(
            "warning",
            "lock.unresolved",
            f"{key} ({item.wanted}) is unresolved: {item.unresolved.reason}",
            f"run `rackpin lock {pins.name}` where it can be had; until then nothing can use it",
            "lock.json",
            {"item": key},
        )
    for unproven in pins.unproven:
        yield Note(
            "hint",
            "stack.unproven",
            unproven.claim,
            "prove it on one node before others follow",
            unproven.source,
        )


def check(
    name: str,
    root: Path = STACKS,
    on: date | None = None,
    gpus: tuple[str, ...] = (),
    rules: Path = HERE,
) -> Verdict:
    """Judge a stack as on a day (default: today), for other GPUs than its own if named.

    Works with an unresolved, stale or missing lock too, which is then an error among the notes.
    Raises :class:`StackError` for an unknown stack or wrong pins.
    """
    pins = stack_pins(name, root)
    lock, trouble = _fitting_lock(pins, root)
    day = on or date.today()
    facts = facts_of(pins, lock)
    if gpus:
        facts["gpu"] = list(gpus)
    notes = [trouble] if trouble else []
    notes += judge(load_topics(rules), facts, day, pins.eol)
    notes += _of_lock(pins, lock)
    notes.sort(key=lambda note: LEVELS.index(note.level))
    return Verdict(name, day, lock.digest if lock else None, [replace(n) for n in notes])


def lines(verdict: Verdict) -> Iterator[str]:
    """The verdict as a person reads it, worst first."""
    for note in verdict.notes:
        yield f"{note.level:<8}{note.rule}: {note.summary}"
        yield f"        → {note.remedy}"
        yield f"        source: {note.source}"
    counts = ", ".join(f"{number} {level}(s)" for level, number in verdict.counts.items())
    end = "no error" if verdict.ok else "not usable as it is"
    yield f"{verdict.stack} on {verdict.on}: {counts}; {end}"
