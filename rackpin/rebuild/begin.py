"""The first half of a rebuild: who may, quarantine, host key, what differs, nobody on the cards.

Everything that reaches a node is given, so tests go every way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console
from rich.text import Text

from rackpin.checks.base import NO_ANSWER, Command
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.differences import differences
from rackpin.fleet.identity import Identity
from rackpin.fleet.state import FleetState, Quarantine, now
from rackpin.gateway.drain import Told
from rackpin.inventory import Fleet
from rackpin.rebuild import hostkey, show
from rackpin.rebuild.asking import Reach, Verdict
from rackpin.rebuild.hostkey import HostKey
from rackpin.rebuild.journal import DONE, FAILED, UNDONE, Journal
from rackpin.rebuild.look import STOP_S, LookError, Seen, look
from rackpin.stack.lock import Lock

REASON = "rebuild"
NOT_BACK = 1
PROVED = ("site", "verify", "pair", "lift")  # what counts only for one identity and one lock
CARD_CHECKS = 6  # findings that are listed; the report has all


class Refused(Exception):
    """The rebuild may not go on; the text says why and what to do."""


class Asks(Protocol):
    """:func:`rackpin.rebuild.asking.asked`, for one fleet."""

    def __call__(self, fleet: Fleet, partner: str) -> Verdict: ...


@dataclass
class Beginning:
    name: str
    fleet: Fleet  # as the inventory has it; quarantine is applied as the state stands
    lock: Lock
    inventory: str  # its file, for the commands that are told
    state: FleetState
    reach: Reach
    host_key: Callable[[], HostKey]
    deploy: Callable[..., int]  # pyinfra with --limit NODE: name of the deploy, further options
    ask: Asks
    tell: Callable[[], Told]  # every gateway: which engines get requests
    owner: str
    accept: str = ""  # the fingerprint that somebody compared
    force: bool = False
    stop: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True))

    def __post_init__(self) -> None:
        self.journal = Journal(self.state.directory / "nodes" / f"{self.name}.rebuild.jsonl")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def step(self, title: str) -> None:
        self.say(f"{self.name}: {title}", "bold")

    # -- before anything is changed -------------------------------------------------
    def entry(self) -> Quarantine | None:
        return self.state.quarantined().get(self.name)

    def refuse_others(self) -> None:
        if self.fleet.nodes[self.name].is_head:
            raise Refused(f"{self.name} is the Ray head, which can't be kept out; make another "
                          "node the head first")  # fmt: skip
        entry = self.entry()
        if entry is not None and entry.owner != self.owner and not self.force:
            raise Refused(f"{self.name} is kept out by {entry}; ask {entry.owner}, or --force "
                          "puts yours in its place")  # fmt: skip

    def nothing_to_do(self, key: HostKey) -> bool:
        """It is ready for this lock, and in everything what its record says."""
        record = self.state.record(self.name)
        if key.state != "known" or self.entry() or self.journal.open or record is None:
            return False
        try:
            seen = self.seen()
        except LookError:
            return False  # it is kept out first, then asked again
        good = seen.mark is not None and seen.mark.state == "ready"
        return (
            good
            and not marks.stale(seen.mark, self.lock.digest, seen.identity)
            and not differences(record.identity, seen.identity)
        )

    def seen(self) -> Seen:
        with self.reach() as ways:
            return look(ways, self.name)

    # -- the way, until the node may be changed ----------------------------------------
    def keep_out(self) -> None:
        self.step("quarantine")
        entry = self.entry()
        if entry is not None and entry.owner == self.owner:
            self.say(f"  kept out already by {entry}")
        else:
            record = self.state.record(self.name)
            cards = quarantine.serials_of(record.identity) if record else []
            entry = Quarantine(owner=self.owner, reason=REASON, since=now(),
                               evidence=str(self.journal.path), serials=cards)  # fmt: skip
            self.state.keep_out(self.name, entry)
            self.say(f"  kept out by {entry}")
        self.journal.write("quarantine", DONE, entry=entry.model_dump())
        for line in quarantine.repeated(self.state, {self.name: entry}):
            self.say(f"  {line}", "yellow")
        self.gateways("get no request")

    def gateways(self, what: str) -> bool:
        """Whether every gateway knows of it; one that doesn't is no reason to leave a node."""
        engines = [i.name for i in self.fleet.config.instances if self.name in i.nodes]
        if not engines or not self.fleet.gateways:
            return True
        told = self.tell()
        if told.good:
            self.say(f"  gateways told: {', '.join(engines)} {what}")
            return True
        last = (told.text.splitlines() or ["no word"])[-1]
        way = f"pyinfra {self.inventory} deploys/gateway.py -y --limit gateway"
        names = ", ".join(engines)
        self.say(f"  not every gateway was told that {names} {what} ({last}): {way}", "yellow")
        return False

    def accept_key(self, key: HostKey) -> None:
        self.step("host key")
        for line in show.host_key(key):
            self.say(f"  {line}")
        if key.state == "known":
            return
        if key.offered.fingerprint != self.accept:
            given = f"{self.accept} was given, which it is not. " if self.accept else ""
            self.journal.write("host key", FAILED, f"{key.offered} is not accepted")
            raise Refused(
                f"{self.name}: its host key is {key.state}. {given}Compare it at the console "
                "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then run this again with "
                f"--accept-host-key {key.offered.fingerprint}"
            )
        backup = hostkey.accept(key)
        known = [str(one) for one in key.known]
        places = {"file": str(key.file), "backup": str(backup or "")}
        self.journal.write("host key", DONE, known=known, now=str(key.offered), **places)
        where = f"; {backup} is the file as it was" if backup else ""
        self.say(f"  accepted into {key.file}{where}")

    def was(self) -> Identity | None:
        """What was recorded when this rebuild began: its record changes on the way."""
        for line in self.journal.open:
            if line["step"] == "identity":
                return Identity.model_validate(line["was"]) if line["was"] else None
        record = self.state.record(self.name)
        return record.identity if record else None

    def compare(self) -> Seen:
        self.step("identity, against its record")
        seen, was = self.seen(), self.was()
        found = differences(was, seen.identity) if was else []
        show.differences(was, seen.identity, found, self.console)
        self.repeated(seen.identity)
        return seen

    def repeated(self, identity: Identity) -> None:
        """Cards of this node that were in quarantine before, in whatever node."""
        cards = [*quarantine.serials_of(identity), *(c.uuid for c in identity.gpus.values())]
        entry = self.entry()
        since = entry.since if entry else ""
        asked = Quarantine(owner=self.owner, reason=REASON, since=since, serials=cards)
        for line in quarantine.repeated(self.state, {self.name: asked}):
            self.say(f"  {line}", "yellow")

    def forget_what_changed(self, identity: Identity) -> None:
        """Steps of an earlier call count only for the same lock and the same node."""
        last = next((line for line in reversed(self.journal.open) if line.get("now_is")), None)
        before = Identity.model_validate(last["now_is"]) if last else None
        other = [str(d) for d in differences(before, identity) if d.binding] if before else []
        if last and last.get("lock", self.lock.digest) != self.lock.digest:
            other.append("the lock is another one")
        lifted = self.journal.has("lift")
        for name in PROVED if other else ():
            if self.journal.has(name):
                self.journal.write(name, UNDONE, "; ".join(other))
        was = self.was()
        self.journal.write("identity", DONE, was=was.model_dump() if was else None,
                           now_is=identity.model_dump(), lock=self.lock.digest)  # fmt: skip
        if other and lifted:
            self.keep_out()

    def mark_it(self) -> None:
        """The node itself knows that it is kept out, before anything starts there again."""
        entry = self.entry()
        with self.reach() as ways:
            command = quarantine.mark_command(str(entry))
            told = ways.ask({self.name: [command]}).get(self.name, {})
        if not told.get(command.name, NO_ANSWER).ok:
            raise Refused(f"{self.name}: {quarantine.MARK} could not be written; see its disk")

    def free(self, seen: Seen) -> None:
        """Nobody uses the node's cards, or the rebuild does not go on."""
        if seen.busy and seen.units and self.stop:
            shell = f"systemctl stop {' '.join(seen.units)}"
            with self.reach() as ways:
                told = ways.ask({self.name: [Command("stop", shell, STOP_S, slow=True)]})
            if not told.get(self.name, {}).get("stop", NO_ANSWER).ok:
                raise Refused(f"{self.name}: `{shell}` did not end well; see journalctl there")
            self.say(f"  stopped {', '.join(seen.units)}")
            seen = self.seen()  # what belongs to no unit of ours is still there
        if seen.busy:
            units = f"`systemctl stop {' '.join(seen.units)}` there, or --stop"
            why = f"not free: {', '.join(seen.busy)}"
            self.journal.write("stop", FAILED, why)
            raise Refused(
                f"{self.name} is {why}; drain it and {units if seen.units else 'end that'}"
            )
