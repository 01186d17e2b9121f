"""What ``rackpin roll`` can be asked for, each on an inventory opened for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from rackpin.fleet import quarantine
from rackpin.fleet.state import Drain, FleetState
from rackpin.inventory_open import Opened, opened
from rackpin.inventory_problems import Problem, render
from rackpin.roll import run, show
from rackpin.roll.hands import SshHands
from rackpin.roll.make import new_plan
from rackpin.roll.model import Options, Plan
from rackpin.roll.run import Runner
from rackpin.roll.store import END, FileStore, Roll
from rackpin.stack.lock import STACKS, load_stack
from rackpin.stack.pins import StackError

SITE = Path("deploys/site.py")


class Refused(Exception):
    """It may not be done; the text says why and what to do. Nothing was changed."""


class Acts:
    def __init__(
        self,
        inventory: str | None,
        data: Sequence[str],
        group_data: Sequence[str],
        owner: str,
        say: Callable[[str], None],
        confirm: Callable[[str], bool],
    ) -> None:
        if not SITE.is_file():
            raise Refused(f"{SITE} is not below this directory; call it where pyinfra is called")
        self.found = opened(inventory, data, group_data, raw=True)
        self.data, self.group_data = data, group_data
        self.owner, self.say, self.confirm = owner, say, confirm
        self.console = Console(stderr=True)
        self.store: FileStore = quarantine.rolls_of(self.found.fleet)
        self.state: FleetState = quarantine.state_of(self.found.fleet)

    def do(self, action: str, hosts: Sequence[str], options: Options) -> int:
        if action in ("begin", "plan"):
            return self.begin(hosts, options, only_look=action == "plan")
        acts: dict[str, Callable[[], int]] = {
            "resume": lambda: self.go_on(False),
            "retry_failed": lambda: self.go_on(True),
            "pause": self.pause,
            "abort": self.abort,
            "back": lambda: self.back(options),
            "status": self.status,
        }
        return acts[action]()

    # -- a new one -----------------------------------------------------------------
    def begin(self, hosts: Sequence[str], options: Options, only_look: bool) -> int:
        self.nothing_open()
        names = self.found.nodes(hosts)
        hands = SshHands(self.found, self.data, self.group_data, "")
        fleet = hands.fleet()
        self.say(f"looking at {len(names)} nodes")
        plan, problems = new_plan(
            fleet, self.found.lock, hands.look(names, options.restart), options,
            inventory=self.found.file, owner=self.owner, data=self.data, group_data=self.group_data,
        )  # fmt: skip
        return self.start(plan, problems, hands, only_look)

    def start(
        self,
        plan: Plan,
        problems: list[Problem],
        hands: SshHands,
        only_look: bool = False,
        takes_back: Roll | None = None,
    ) -> int:
        show.plan(plan, self.console)
        if problems:
            text = render(problems, "the roll as it was planned", list(self.found.fleet.nodes))
            raise Refused(f"{text}\nnothing was begun")
        if takes_back is not None and not plan.waves:
            raise Refused("these nodes have that lock already: --abort ends the roll")
        if only_look or not plan.waves:
            return 0
        if not self.confirm(f"begin with {len(plan.waves)} waves"):
            raise Refused("not begun")
        with self.store.hold():
            if takes_back is not None:
                self.take_over(takes_back, plan.roll)
            else:
                self.nothing_open()  # another one may have begun meanwhile
                quarantine.keep_lock(self.found.fleet, self.found.lock)
            self.store.asked(take=True)  # an older word was for an older roll
            roll = self.store.begin(plan)
            hands.roll = plan.roll
            self.say(f"roll {plan.roll}: its plan, events and logs are in {roll.directory}")
            return Runner(roll, hands, self.state, self.store, self.say).go()

    def nothing_open(self) -> None:
        roll = self.store.open_roll()
        if roll is not None:
            writer = self.store.writer()
            how = f"is run by {writer}" if writer else "is not over"
            whose = f"roll {roll.plan.roll} of {roll.plan.owner}"
            raise Refused(f"{whose} {how}: see it with --status, go on with --resume, or end it "
                          "with --abort or --back")  # fmt: skip

    # -- the open one -----------------------------------------------------------------
    def open_roll(self) -> Roll:
        roll = self.store.open_roll()
        if roll is None:
            raise Refused("no roll of this fleet is open; --status shows the last one")
        return roll

    def hands_of(self, roll: Roll) -> SshHands:
        """With the inventory and lock that it was begun with, or not at all."""
        plan = roll.plan
        stacks = Path(plan.stacks_dir) if plan.stacks_dir else None
        found = opened(self.found.file, plan.data, plan.group_data, raw=True, stacks=stacks)
        if found.lock.digest != plan.lock:
            raise Refused(
                f"roll {plan.roll} brings lock {plan.lock[:12]} of {plan.stack}, the inventory has "
                f"{found.lock.digest[:12]} of {found.lock.stack} now: check out what it was begun "
                "with, or end it with --abort and roll anew"
            )
        gone = [n for unit in plan.units for n in unit.nodes if n not in found.fleet.nodes]
        if gone:
            raise Refused(f"roll {plan.roll} has {', '.join(gone)}, the inventory has not any "
                          "more; end it with --abort and roll anew")  # fmt: skip
        return SshHands(found, plan.data, plan.group_data, plan.roll, plan.stacks_dir)

    def go_on(self, only_failed: bool) -> int:
        with self.store.hold():
            roll = self.open_roll()
            runner = Runner(roll, self.hands_of(roll), self.state, self.store, self.say)
            if only_failed and not runner.again():
                raise Refused(f"nothing of roll {roll.plan.roll} failed or was cut short")
            self.store.asked(take=True)
            return runner.go(only_failed)

    def pause(self) -> int:
        self.open_roll()
        writer = self.store.writer()
        if not writer:
            raise Refused("nobody runs it just now: it is paused")
        self.store.ask("pause")
        self.say(f"asked: it stops after the wave under way (run by {writer})")
        return 0

    def abort(self) -> int:
        roll = self.open_roll()
        if writer := self.store.writer():
            self.store.ask("abort")
            self.say(f"asked: it ends after the wave under way (run by {writer})")
            return 0
        with self.store.hold():
            hands = SshHands(self.found, roll.plan.data, roll.plan.group_data, roll.plan.roll)
            try:
                run.abort(roll, hands, self.state, self.say)
            except run.Halt as error:
                raise Refused(str(error)) from error
        return 0

    def status(self) -> int:
        roll = self.store.last()
        if roll is None:
            self.say("this fleet was never rolled")
            return 0
        show.status(roll, self.state, self.store.writer(), Console())
        return 0

    # -- the way back ------------------------------------------------------------------
    def back(self, options: Options) -> int:
        last = self.store.last()
        if last is None:
            raise Refused("this fleet was never rolled")
        if writer := self.store.writer():
            raise Refused(f"roll {last.plan.roll} is run by {writer}: --pause it first")
        found = last.progress()
        units = [u for u in last.plan.units if found[u.name].state != "waiting"]
        names = [name for unit in units for name in unit.nodes]
        stacks = self.earlier(last, names)
        stack = next(path.name for path in stacks.iterdir() if path.is_dir())
        data = [d for d in last.plan.data if not d.startswith("stack=")] + [f"stack={stack}"]
        target: Opened = opened(self.found.file, data, self.group_data, raw=True, stacks=stacks)
        hands = SshHands(target, data, self.group_data, "", str(stacks))
        self.say(f"looking at {len(names)} nodes")
        plan, problems = new_plan(
            hands.fleet(), target.lock, hands.look(names, options.restart), options,
            inventory=self.found.file, owner=self.owner, data=data, group_data=self.group_data,
            back_of=last.plan.roll, stacks_dir=str(stacks),
        )  # fmt: skip
        code = self.start(plan, problems, hands, takes_back=last)
        self.say(
            f"{self.found.file} still names the newer lock: name {stack} with lock "
            f"{plan.lock[:12]} there, or the next run of site.py goes forward again"
        )
        return code

    def earlier(self, last: Roll, names: Sequence[str]) -> Path:
        """Where the lock lies that these nodes had before."""
        had = {c.node: c.lock for c in last.plan.changes if c.node in names}
        locks = {lock for lock in had.values() if lock != last.plan.lock}
        if not locks:
            raise Refused(f"nothing of roll {last.plan.roll} was begun: there is no way to go back")
        if len(locks) > 1 or "" in locks:
            said = ", ".join(f"{node} {lock[:12] or 'none'}" for node, lock in had.items())
            raise Refused(f"the nodes had not one lock before, so there is no one to go back to: "
                          f"{said}")  # fmt: skip
        (digest,) = locks
        path = quarantine.locks_of(self.found.fleet) / digest
        if not path.is_dir() and not self.still_here(digest):
            raise Refused(f"{path}: the lock before is not kept here (it was put on by another "
                          "controller); check its stack out and roll to it")  # fmt: skip
        return path

    def still_here(self, digest: str) -> bool:
        """Keep the stack that has this lock now, if one has."""
        for pins in sorted(STACKS.glob("*/pins.yaml")):
            try:
                lock = load_stack(pins.parent.name).lock
            except StackError:
                continue  # whatever is wrong with it, it isn't the one that was served with
            if lock.digest == digest:
                quarantine.keep_lock(self.found.fleet, lock)
                return True
        return False

    def take_over(self, old: Roll, new: str) -> None:
        """What the roll that is taken back had drained is the new one's now."""
        if not old.ended:
            old.note(END, how=f"taken back by {new}")
        for name, entry in self.state.drained().items():
            if entry.owner == old.owner:
                wish = Drain(owner=f"roll {new}", reason=entry.reason, since=entry.since)
                self.state.drain(name, wish)
