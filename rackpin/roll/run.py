"""A roll from its first wave to its end, or to where it stops; the next call goes on there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rackpin.fleet.state import FleetState, FleetStateError
from rackpin.inventory_problems import InventoryError
from rackpin.report.text import duration, fold
from rackpin.roll.hands import Hands
from rackpin.roll.model import Progress, Role, Wave
from rackpin.roll.store import END, Roll, Store
from rackpin.roll.wave import Halt, WaveRun, tell

DONE, FAILED, PAUSED, INTERRUPTED = 0, 1, 3, 130
AGAIN: Role = "again"


@dataclass
class Runner:
    """``store`` is held by this process."""

    roll: Roll
    hands: Hands
    state: FleetState
    store: Store
    say: Callable[[str], None]
    began: float = field(default_factory=time.monotonic)

    def go(self, only_failed: bool = False) -> int:
        """The exit status; whatever it is, what is left and how to go on was said."""
        try:
            code = self.waves(only_failed)
        except (Halt, FleetStateError, InventoryError) as error:
            self.note("halted", str(error))
            self.say(f"stopped: {error}")
            code = FAILED
        except KeyboardInterrupt:
            self.note("interrupted", "by hand")
            self.say("interrupted")
            code = INTERRUPTED
        self.last_word(code)
        return code

    def note(self, event: str, why: str) -> None:
        """The last event; a disk that is full must not hide what it was."""
        try:
            self.roll.note(event, why=why)
        except FleetStateError as error:
            self.say(f"this could not be noted: {error}")

    def waves(self, only_failed: bool) -> int:
        if any(one.state != "waiting" for one in self.roll.progress().values()):
            self.resume()
        todo = self.again() if only_failed else [*self.again(), *self.left()]
        failed = 0
        for number, wave in enumerate(todo, 1):
            if asked := self.store.asked(take=True):
                return self.asked(asked)
            self.say(f"wave {number} of {len(todo)} ({wave.role}): {', '.join(wave.units)}")
            run = WaveRun(self.roll, wave.role, wave.units, self.hands, self.state, self.say)
            run.go()
            failed += len(run.failed)
            if failed > self.roll.plan.options.max_failures or (run.failed and wave.role in FIRST):
                self.roll.note("stopped", why=f"{failed} failed")
                return FAILED
        if any(one.state == "failed" for one in self.roll.progress().values()):
            return FAILED
        if self.roll.waiting():
            self.roll.note("paused")
            self.say("only what had failed was asked for")
            return PAUSED
        self.roll.note(END, how="done", seconds=round(time.monotonic() - self.began))
        return DONE

    def resume(self) -> None:
        """What an earlier call noted last may not have reached every gateway."""
        self.roll.note("resumed")
        tell(self.hands, "who is drained")

    def again(self) -> list[Wave]:
        """Units that were begun and not done, one by one: each was in trouble before."""
        found = self.roll.progress()
        names = [u.name for u in self.roll.plan.units if found[u.name].state in ("begun", "failed")]
        return [Wave(role=AGAIN, units=[name]) for name in names]

    def left(self) -> list[Wave]:
        """The plan's waves, without what was begun."""
        found = self.roll.progress()
        made = []
        for wave in self.roll.plan.waves:
            names = [name for name in wave.units if found[name].state == "waiting"]
            if names:
                made.append(Wave(role=wave.role, units=names))
        return made

    def asked(self, what: str) -> int:
        if what == "abort":
            abort(self.roll, self.hands, self.state, self.say)
        else:
            self.roll.note("paused")
            self.say("paused, as was asked")
        return PAUSED

    def last_word(self, code: int) -> None:
        took = duration(time.monotonic() - self.began)
        for line in (*standing(self.roll, self.state), f"{took} in all"):
            self.say(line)
        if code != DONE and not self.roll.ended:
            self.say(how_to_go_on(self.roll))


# A failure in one of these stops the roll, however many are allowed.
FIRST: tuple[Role, ...] = ("gateway", "head", "canary", AGAIN)


def standing(roll: Roll, state: FleetState) -> list[str]:
    """Who is done, failed, begun or waits, and who is drained for it."""
    found = roll.progress()
    lines = []
    for word, what in (("done", "done"), ("failed", "failed"), ("begun", "begun, not done"),
                       ("waiting", "as before")):  # fmt: skip
        names = [name for name, one in found.items() if one.state == word]
        if names:
            lines.append(f"{what}: {fold(names)}" if len(names) > 1 else f"{what}: {names[0]}")
    lines += [
        f"  {name}: {one.why.splitlines()[0]}"
        for name, one in found.items()
        if one.state == "failed" and one.why
    ]
    drained = state.drained()
    mine = [name for name, one in drained.items() if one.owner == roll.owner]
    if mine:
        lines.append(f"drained for it, and getting no request: {', '.join(mine)}")
    return lines


def how_to_go_on(roll: Roll) -> str:
    failed = [name for name, one in roll.progress().items() if one.state == "failed"]
    first = f"mend {', '.join(failed)}, then " if failed else ""
    return (
        f"{first}rackpin roll --resume -i {roll.plan.inventory} goes on from here; --abort leaves "
        "the rest as it is; --back takes what was changed to the lock before"
    )


def abort(roll: Roll, hands: Hands, state: FleetState, say: Callable[[str], None]) -> None:
    """Nothing more is begun; an engine that was only drained serves again as before."""
    found = roll.progress()
    mine = [name for name, one in state.drained().items() if one.owner == roll.owner]
    back = [e for e in mine if not _touched(roll, found, e)]
    for name in back:
        state.drain(name, None)
    if mine:
        tell(hands, "who is drained")
    roll.note(END, how="aborted")
    say("aborted: nodes not begun stay as they are")
    if back:
        say(f"serving again, unchanged: {', '.join(back)}")
    for name in mine:
        if name not in back:
            say(f"{name} stays drained, its nodes may be half changed: pyinfra "
                f"{roll.plan.inventory} deploys/site.py -y --limit NODE, then rackpin drain {name} "
                "--undo --force")  # fmt: skip


def _touched(roll: Roll, found: dict[str, Progress], engine: str) -> bool:
    unit = next((u for u in roll.plan.units if engine in u.engines), None)
    return unit is None or found[unit.name].touched
