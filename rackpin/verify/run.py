"""The course of ``rackpin verify``: nodes at the same time, then what they are asked together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from rackpin.checks.base import Output, Runner
from rackpin.findings import is_ready
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.state import FleetStateError
from rackpin.verify.asking import Asker, Watch
from rackpin.verify.document import Course
from rackpin.verify.session import Session


class Ways(Protocol):
    """How nodes are reached: ssh, or a simulated fleet."""

    @property
    def unreachable(self) -> dict[str, str]: ...

    def runner(self, name: str) -> Runner: ...

    @property
    def ask(self) -> Asker: ...

    def each(self, names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]: ...

    def executions(self, name: str) -> int: ...


def new_course(names: Sequence[str]) -> Course:
    started = datetime.now(UTC)
    run = started.strftime("%Y%m%dT%H%M%S.%fZ")[:-4] + "Z"
    return Course(run, started, list(names))


def go(session: Session, course: Course, ways: Ways, watch: Watch, write: bool) -> None:
    """Verify ``course.asked``. Raises KeyboardInterrupt on ^C, with all that is known kept.

    ``write``: nodes keep their marks, the fleet's state what ready nodes are.
    """
    began = time.monotonic()
    guard = threading.Lock()

    def one(name: str) -> None:
        findings = session.node(name, ways.runner(name))
        with guard:
            course.done.add(name)
            watch.node_done(name, findings)

    try:
        watch.phase("nodes", len(course.asked))
        ways.each(course.asked, one)
        course.done -= ways.unreachable.keys()
        there = [name for name in course.asked if name in course.done]
        session.together(there, ways.ask, watch)
        if write:
            keep(session, course, ways, there)
    except KeyboardInterrupt:
        course.partial = True
        raise
    finally:
        course.unreachable = dict(ways.unreachable)
        course.done -= course.unreachable.keys()
        course.executions = {name: ways.executions(name) for name in course.asked}
        course.seconds = time.monotonic() - began


def keep(session: Session, course: Course, ways: Ways, names: Sequence[str]) -> None:
    """Marks on the nodes where they changed, records of those that are ready."""
    at = course.started.isoformat(timespec="seconds")
    made = {name: session.new_mark(name, course.run, at) for name in names}
    changed = {name: [marks.write(mark)] for name, mark in made.items() if mark is not None}
    answers = ways.ask(changed) if changed else {}
    for name in changed:
        if not answers.get(name, {}).get("mark.write", Output(rc=None)).ok:
            course.notes.append(f"{name}: {marks.PATH} could not be written; see its disk")
    state = quarantine.state_of(session.fleet)
    for name in names:
        asked = session.nodes[name]
        if asked.identity is None or not is_ready(asked.findings) or name in session.fleet.kept_out:
            continue
        try:
            found = state.was_ready(name, asked.identity, session.lock.digest, course.run)
        except FleetStateError as error:
            course.notes.append(str(error))
            return
        course.notes += [f"{name}: {one}" for one in found]
