"""The node asked all that needs no serving, alone and with a partner; a report of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from rackpin import report as reports
from rackpin.findings import Finding, Level, blocking, is_ready
from rackpin.fleet.identity import Identity
from rackpin.inventory import Fleet
from rackpin.report.history import history
from rackpin.stack.lock import Lock
from rackpin.verify.document import make
from rackpin.verify.run import Ways, go, keep, new_course
from rackpin.verify.session import Session

Reach = Callable[[], AbstractContextManager[Ways]]  # new connections: a node may have rebooted


@dataclass(frozen=True)
class Verdict:
    good: bool
    bad: list[Finding] = field(default_factory=list)
    identity: Identity | None = None
    report: str = ""
    why: str = ""  # when it could not be asked


class Watch:
    """Tells what goes on, a line each."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def phase(self, name: str, total: int) -> None:
        self.say(f"  {name}" + (f" ({total})" if total else ""))

    def node_done(self, name: str, findings: Sequence[Finding]) -> None:
        self.say(f"  {name}: {len(findings)} checks, {len(blocking(list(findings)))} against it")

    def tell(self, text: str) -> None:
        self.say(f"  {text}")


def asked(
    fleet: Fleet,
    lock: Lock,
    name: str,
    reach: Reach,
    say: Callable[[str], None],
    level: Level = "node",
    partner: str = "",
) -> Verdict:
    """Verify a node that serves nothing; its mark is kept, its partner's stays as it is."""
    directory = Path(fleet.config.report_dir)
    session = Session(fleet, lock, level, serving=False, history=history(directory, lock.digest))
    course = new_course([name, partner] if partner else [name])
    with reach() as ways:
        go(session, course, ways, Watch(say), write=False)
        if name in course.done:
            keep(session, course, ways, [name])
    written = reports.publish(make(session, course), directory, fleet.config)
    there = session.nodes.get(name)
    if name not in course.done or there is None:
        why = course.unreachable.get(name, "it was not asked to the end")
        return Verdict(False, report=str(written.json), why=why)
    findings = list(there.findings)
    if partner:
        findings += session.together_findings
    good = is_ready(findings)
    return Verdict(good, blocking(findings), there.identity, str(written.json))
