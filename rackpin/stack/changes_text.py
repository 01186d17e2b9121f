"""A comparison of two locks as a person reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rackpin.stack.changes import NONE, Comparison, WheelChanges
from rackpin.stack.pins import Pins


def lines(comparison: Comparison, wheels: bool = False) -> Iterator[str]:
    """The comparison as a person reads it; ``wheels`` lists every distribution."""
    yield f"{comparison.was} → {comparison.now}"
    for change in comparison.changes:
        text = change.now if change.what == "wheels" else f"{change.was} → {change.now}"
        restarts = f" ({', '.join(change.restarts)})" if change.restarts else ""
        yield f"{change.what:<20}{text}"
        yield f"{'':<20}  {change.interrupts}{restarts}: {change.why}"
    if wheels:
        moved = comparison.wheels
        yield from (f"  + {name} {version}" for name, version in moved.added.items())
        yield from (f"  - {name} {version}" for name, version in moved.removed.items())
        yield from (f"  ~ {name} {was} → {now}" for name, (was, now) in moved.changed.items())
    yield from _summary(comparison)


def reasons(
    wheels: WheelChanges, pins: Pins, update: Collection[str], wanted_by: dict[str, list[str]]
) -> Iterator[str]:
    """One line for each distribution that a new lock moves, with why it does."""
    excluded = {exclusion.name: exclusion.why for exclusion in pins.exclude}
    pinned = {pins.engine.distribution, *pins.dists, *(w.name for w in pins.local_wheels)}
    if pins.nccl.engine:
        pinned.add(pins.nccl.engine.distribution)

    def why(name: str) -> str:
        if name in pinned:
            return "pinned"
        if name in update:
            return "--update"
        return f"for {', '.join(wanted_by[name])}" if wanted_by.get(name) else "newly resolved"

    moves = {n: (NONE, version) for n, version in wheels.added.items()}
    moves |= {n: (was, now) for n, (was, now) in wheels.changed.items()}
    for name, (was, now) in sorted(moves.items()):
        yield f"  {name} {was} → {now}  ({why(name) if was != now else 'another file'})"
    for name, was in wheels.removed.items():
        yield f"  {name} {was} → {NONE}  ({excluded.get(name, 'nothing asks for it any more')})"


def _summary(comparison: Comparison) -> Iterator[str]:
    if not comparison.changes:
        yield "nothing changes"
        return
    ways = {
        "nothing": "no running service is touched",
        "service": "no reboot; in each wave these restart: "
        + ", ".join(sorted({u for c in comparison.changes for u in c.restarts})),
        "reboot": "each node is drained and rebooted, in waves",
    }
    yield f"interrupts: {comparison.interrupts}; {ways[comparison.interrupts]}"
