"""Nodes that somebody keeps out: they get every stage, serve nothing, and are never forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rackpin import layout
from rackpin.findings import Evidence, Finding, Outcome
from rackpin.fleet.identity import Identity
from rackpin.fleet.state import FleetState, FleetStateError, Quarantine
from rackpin.inventory import Fleet
from rackpin.inventory_problems import FLEET, InventoryError, Problem
from rackpin.report.text import fold
from rackpin.roll import store
from rackpin.roll.store import FileStore
from rackpin.stack.lock import STACKS, Lock

if TYPE_CHECKING:
    from rackpin.checks.base import Command

# While it is there, systemd starts neither Ray nor an engine, after a reboot neither.
MARK = f"{layout.ETC}/quarantine"
CHECK = "quarantine"
DRAINED = "drained"
ROLL = "roll"
SOURCE = "the fleet's state (state_dir of the inventory)"
MARK_S = 20.0


def state_of(fleet: Fleet) -> FleetState:
    """What the controller keeps of this fleet."""
    return FleetState(Path(fleet.config.state_dir) / fleet.config.fleet)


def rolls_of(fleet: Fleet) -> FileStore:
    """The rolls of this fleet."""
    return FileStore(state_of(fleet).directory / "rolls")


def locks_of(fleet: Fleet) -> Path:
    """Copies of the locks that nodes of this fleet were ready with, to go back to."""
    return state_of(fleet).directory / "locks"


def keep_lock(fleet: Fleet, lock: Lock) -> None:
    """Raises :class:`FleetStateError`."""
    store.keep_lock(locks_of(fleet), STACKS / lock.stack, lock.digest)


def applied(fleet: Fleet) -> Fleet:
    """The fleet with its quarantined nodes, drained engines and open roll as they stand.

    Raises :class:`InventoryError`.
    """
    try:
        entries = state_of(fleet).quarantined()
        drains = state_of(fleet).drained()
        roll = rolls_of(fleet).open_roll()
    except FleetStateError as error:
        problem = Problem(FLEET, "state_dir", str(error), "nothing was changed")
        raise InventoryError([problem], "the fleet's state") from error
    known = {name: str(entry) for name, entry in entries.items() if name in fleet.nodes}
    head = next((node.name for node in fleet.nodes.values() if node.is_head), "")
    if head in known:
        remedy = f"make another node the head, or: rackpin quarantine {head} --lift"
        what = f"the Ray head is quarantined by {known[head]}; without it no engine over nodes runs"
        raise InventoryError([Problem(head, "groups", what, remedy)], "the fleet's state")
    engines = {i.name for i in fleet.config.instances}
    drained = {name: str(entry) for name, entry in drains.items() if name in engines}
    said = f"roll {roll.plan.roll} of {roll.plan.owner}" if roll else ""
    behind = {name: said for name in roll.behind() if name in fleet.nodes} if roll else {}
    return fleet.model_copy(update={"kept_out": known, "drained": drained, "behind": behind})


def mark_text(entry: str) -> str:
    """What stands in the mark on the node: for whoever finds that its units don't start."""
    return (
        f"Owned by rackpin: quarantined by {entry}\nLift it with: rackpin quarantine NODE --lift\n"
    )


def mark_command(entry: str) -> Command:
    """Puts the mark on the node; takes it away where ``entry`` is empty."""
    from rackpin.checks.base import Command

    if not entry:
        return Command("mark", f"rm -f {MARK}", MARK_S)
    shell = f"set -e; mkdir -p -m 755 $(dirname {MARK}); umask 022; cat >{MARK}"
    return Command("mark", shell, MARK_S, stdin=mark_text(entry))


def findings(fleet: Fleet) -> list[Finding]:
    """A warning for each quarantined node, for each drained engine, and for an open roll."""
    found = []
    for name, entry in fleet.kept_out.items():
        engines = [engine for engine, nodes in fleet.waiting().items() if name in nodes]
        text = f"{name} is quarantined by {entry}"
        if engines:
            text += f"; {', '.join(engines)} can't run without it"
        way = f"repair it, `rackpin verify {name} --level pair`, then `rackpin quarantine {name} "
        found.append(_warning(CHECK, text, "no node is kept out", entry, f"{way}--lift`"))
    if fleet.behind:
        said, waiting = next(iter(fleet.behind.values())), fold(list(fleet.behind))
        text = f"{said} is not over: {waiting} still wait for it"
        way = "see it with rackpin roll --status; go on with --resume, or --abort"
        nodes = "\n".join(fleet.behind)
        found.append(_warning(ROLL, text, "all nodes have one lock", nodes, way))
    for engine, entry in fleet.drained.items():
        text = f"{engine} is drained by {entry}: the gateway sends it nothing"
        way = f"when that is over: rackpin drain {engine} --undo"
        found.append(_warning(DRAINED, text, "every engine gets requests", entry, way))
    return found


def _warning(check: str, summary: str, expected: str, output: str, remedy: str) -> Finding:
    return Finding(
        node=FLEET,
        check=check,
        outcome=Outcome.WARN,
        summary=summary,
        expected=expected,
        evidence=Evidence(output=output),
        remedy=remedy,
        source=SOURCE,
    )


def serials_of(identity: Identity) -> list[str]:
    """What names each card for good: serial number, or UUID where that isn't known."""
    return sorted(card.serial or card.uuid for card in identity.gpus.values())


def repeated(state: FleetState, entries: Mapping[str, Quarantine]) -> list[str]:
    """Cards that were in quarantine before, wherever they were: a line each."""
    lines = []
    for name, entry in entries.items():
        for other, since, serials in state.past():
            again = sorted(set(entry.serials) & set(serials) - {""})
            if again and since != entry.since:
                cards = ", ".join(again[:8])
                lines.append(f"{name}: {cards} was quarantined before, in {other} on {since[:10]}")
    return lines
