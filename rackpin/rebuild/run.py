"""The second half of a rebuild: every stage, verify alone and in pairs, service, proof."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rackpin.fleet import quarantine
from rackpin.fleet.differences import differences
from rackpin.fleet.identity import Identity
from rackpin.fleet.state import now
from rackpin.rebuild import journal as log
from rackpin.rebuild import show
from rackpin.rebuild.begin import REASON, Beginning
from rackpin.rebuild.journal import DONE, FAILED, SKIPPED, UNDONE
from rackpin.rebuild.look import has_cards, partner, who_knows

NOT_BACK = 1
SHOWN = 6  # findings that are listed; the report has all


@dataclass
class Rebuild(Beginning):
    """All steps of one node's rebuild, in order; each is in the journal before the next."""

    def go(self) -> int:
        """The exit status. Raises Refused, and what looking and the fleet's state raise."""
        self.refuse_others()
        key = self.host_key()
        if self.nothing_to_do(key):
            self.say(f"{self.name}: nothing to do: it is ready and what its record says; to ask "
                     f"it again: rackpin verify {self.name} --level pair")  # fmt: skip
            return 0
        if stopped := self.journal.stopped():
            self.say(f"{self.name}: goes on with the rebuild that {stopped}")
        else:
            self.journal.write(log.START, DONE, owner=self.owner, lock=self.lock.digest)
        if not self.journal.has("lift"):
            self.keep_out()
        self.accept_key(key)
        seen = self.compare()
        self.forget_what_changed(seen.identity)
        if not self.journal.has("lift"):
            self.mark_it()
            self.free(seen)
            if not (self.build() and self.verify() and self.pair()):
                return self.stays_out()
            if not self.lift():
                return NOT_BACK
        return self.serve()

    def build(self) -> bool:
        if self.over("site"):
            return True
        self.step("every stage, kept out")
        self.journal.write("site", log.BEGUN)
        code = self.deploy("rebuild", "-y")
        if code:
            self.journal.write("site", FAILED, f"pyinfra ended with {code}; see its output")
            return False
        self.journal.write("site", DONE)
        return True

    def over(self, name: str) -> bool:
        if done := self.journal.has(name):
            self.say(f"{self.name}: {name}: done before, for this lock and this hardware")
        return done

    def verify(self) -> bool:
        if self.over("verify"):
            return True
        self.step("verify, by itself")
        return self.judged("verify", "")

    def pair(self) -> bool:
        if self.over("pair"):
            return True
        self.step("verify, in pairs with a node that is known to be good")
        why: list[str] = []
        other = ""
        if has_cards(self.fleet, self.lock, self.name):
            with self.reach() as ways:
                other, why = partner(quarantine.applied(self.fleet), self.lock, self.name, ways)
        else:
            why = ["it has no cards"]
        if not other:
            self.say(f"  skipped: {'; '.join(why)}", "yellow")
            self.journal.write("pair", SKIPPED, "; ".join(why))
            return True
        self.say(f"  with {other}")
        return self.judged("pair", other)

    def judged(self, name: str, other: str) -> bool:
        self.journal.write(name, log.BEGUN)
        found = self.ask(quarantine.applied(self.fleet), other)
        self.say(f"  report: {found.report}")
        if found.good:
            identity = found.identity.model_dump() if found.identity else None
            self.journal.write(name, DONE, report=found.report, partner=other,
                               now_is=identity, lock=self.lock.digest)  # fmt: skip
            return True
        for one in found.bad[:SHOWN]:
            self.say(f"  {one.check}: {one.summary}\n    → {one.remedy}", "red")
        bad = [one.check for one in found.bad]
        self.journal.write(name, FAILED, found.why or ", ".join(bad), report=found.report)
        return False

    def lift(self) -> bool:
        """Let in only what this rebuild kept out."""
        self.step("quarantine lifted")
        entry = self.entry()
        if entry is not None and entry.reason != REASON:
            self.say(f"  not: {self.name} was kept out before, by {entry}. Nothing that was asked "
                     f"speaks against it: rackpin quarantine {self.name} --lift, then run this "
                     "again: it starts Ray and the engines")  # fmt: skip
            self.journal.write("lift", FAILED, f"kept out by {entry}")
            return False
        self.state.let_in(self.name)
        self.journal.write("lift", DONE)
        return True

    def serve(self) -> int:
        self.step("every stage, Ray and the engines started, and verify")
        self.journal.write("serve", log.BEGUN)
        code = self.deploy("site", "-y")
        record = self.state.record(self.name)
        if code or record is None or record.lock != self.lock.digest:
            why = f"pyinfra ended with {code}" if code else "no record of it as ready was kept"
            self.journal.write("serve", FAILED, why)
            for name in ("verify", "pair", "lift"):  # it is asked again before it may serve
                self.journal.write(name, UNDONE, why)
            self.keep_out()
            self.mark_it()
            self.say("  what was started there isn't stopped by that", "yellow")
            return self.stays_out()
        told = self.gateways("get requests again")
        proof = self.prove(record.run)
        self.journal.write(log.END, DONE, proof=str(proof))
        self.step("is back")
        with self.reach() as ways:
            known = who_knows(self.fleet, self.name, ways)
        for line in show.must_know(self.fleet, self.name, known, self.inventory):
            self.say(f"  {line}")
        self.say(f"  old and new identity, for the vendor: {proof}")
        return 0 if told else NOT_BACK

    def prove(self, run: str) -> Path:
        was = self.was()
        last = [line for line in self.journal.open if line.get("now_is")][-1]
        new = Identity.model_validate(last["now_is"])
        first = next(line for line in self.journal.open if line["step"] == "identity")
        found = differences(was, Identity.model_validate(first["now_is"])) if was else []
        after = differences(was, new) if was else []
        reports = [line["report"] for line in self.journal.open if line.get("report")]
        reports.append(str(Path(self.fleet.config.report_dir) / run / "report.json"))
        return self.state.keep_proof(
            self.name,
            {
                "schema_version": 1,
                "node": self.name,
                "at": now(),
                "lock": self.lock.digest,
                "old": was.model_dump() if was else None,
                "new": new.model_dump(),
                "differences": [d.model_dump() for d in after],
                "differences_as_found": [d.model_dump() for d in found],
                "reports": reports,
                "journal": str(self.journal.path),
            },
        )

    def stays_out(self) -> int:
        self.say(f"{self.name} stays quarantined: rebuild {self.journal.stopped()}", "red")
        self.say(f"Mend what is named above, then: rackpin rebuild {self.name} -i "
                 f"{self.inventory}; it goes on from there")  # fmt: skip
        return NOT_BACK

    # -- only looking -----------------------------------------------------------------
    def dry(self) -> int:
        """All of it shown, nothing changed: not on the node, not here."""
        entry = self.entry()
        by = f"kept out already by {entry}" if entry else f"would be kept out by {self.owner}"
        self.step(f"quarantine: {by}")
        if stopped := self.journal.stopped():
            self.say(f"  would go on with the rebuild that {stopped}")
        key = self.host_key()
        for line in show.host_key(key):
            self.say(f"  {line}")
        if key.state != "known":
            would = key.offered.fingerprint == self.accept
            self.say(f"{'It would be accepted' if would else 'It has to be accepted'} before the "
                     "node can be looked at, and --dry accepts nothing", "yellow")  # fmt: skip
            return NOT_BACK
        seen = self.compare()
        if seen.busy:
            self.say(f"  in use by {', '.join(seen.busy)}: has to be stopped first", "yellow")
        with self.reach() as ways:
            known = who_knows(self.fleet, self.name, ways)
        self.step("what others must know")
        for line in show.must_know(self.fleet, self.name, known, self.inventory):
            self.say(f"  {line}")
        self.step("what site.py would change")
        return NOT_BACK if self.deploy("site", "--dry") else 0
