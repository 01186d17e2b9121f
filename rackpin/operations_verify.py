"""The verify stage: checks run while pyinfra executes, without counting as changes.

An operation of pyinfra "changes" when it yields a command. These look from inside their
generator and yield one only to fail their node, so a ready fleet reports no changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyinfra import host

from rackpin.checks.base import NO_ANSWER
from rackpin.checks.batch import remote
from rackpin.desired import Target
from rackpin.facts import Text
from rackpin.facts_fleet import IdentityFact
from rackpin.findings import Finding, blocking, first_blocking, is_ready
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.isolated import operation, refuse
from rackpin.operations import feed
from rackpin.runlog import RunLog
from rackpin.verify.deployed import LogWatch, asker
from rackpin.verify.session import Session


def ask(text: str, limit_s: float) -> str:
    return feed(text, limit_s, "verify")


def against(findings: list[Finding]) -> str:
    first = first_blocking(findings, "no finding at all")
    return f"{len(blocking(findings))} finding(s), first: {first}"


def keep_mark(run: RunLog, session: Session, name: str) -> None:
    """Leave on the node what it was found to be; what didn't change isn't written again."""
    made = session.new_mark(name, run.run, datetime.now(UTC).isoformat(timespec="seconds"))
    if made is None:
        return
    command = marks.write(made)
    if not remote(ask)([command]).get(command.name, NO_ANSWER).ok:
        run.notes.append(f"{name}: {marks.PATH} could not be written; it is asked again next time")


@operation()
def admit(run: RunLog, target: Target) -> Iterator[Any]:
    """
    Look at a node that may serve, unless its mark says that it is good.

    + run: the log of this run
    + target: the node, its fleet and lock

    A mark counts for its lock and its hardware. Of another node everything is asked that needs
    neither Ray nor an engine, cards under load included; :func:`judge_admission` then stops it
    when it isn't good.
    """
    name = target.node.name
    if name in run.admitted:
        host.noop(f"{name} is admitted")
        return
    mark = marks.read(host.get_fact(Text, path=marks.PATH))
    why = marks.stale(mark, target.lock.digest, host.get_fact(IdentityFact))
    if mark is not None and not why and mark.state != "not_ready":
        run.admitted.add(name)
        host.noop(f"{name} was found good on {mark.at[:16]}")
        return
    if not host.state.is_executing:
        host.noop(f"{name} is to be looked at: {'; '.join(why) or 'it was not ready'}")
        return
    run.gate.node(name, remote(ask))
    host.noop(f"{name} was looked at")
    yield from ()


@operation()
def judge_admission(run: RunLog, target: Target) -> Iterator[Any]:
    """
    Ask what the nodes that :func:`admit` looked at are asked together; stop those that aren't good.

    + run: the log of this run
    + target: the node, its fleet and lock
    """
    name = target.node.name
    if not host.state.is_executing or name in run.admitted or name not in run.gate.nodes:
        host.noop("admitted")
        return
    once(run, run.gate)
    findings = run.gate.nodes[name].findings
    keep_mark(run, run.gate, name)
    if is_ready(findings):
        run.admitted.add(name)
        host.noop(f"{name} is good")
        return
    run.findings[name] = findings
    yield refuse(f"{name} may not serve: {against(findings)}")


def once(run: RunLog, session: Session) -> None:
    """What nodes are asked together, by whichever host comes first; the others wait for it."""
    with run.turn:
        if id(session) in run.asked_together:
            return
        run.asked_together.add(id(session))
        names = [name for name in session.nodes if not run.nodes[name].failed]
        session.together(names, asker(host.state), LogWatch())


@operation()
def verify_node(run: RunLog, target: Target) -> Iterator[Any]:
    """
    Ask this node all its checks in one remote execution and keep the findings.

    + run: the log of this run
    + target: the node, its fleet and lock
    """
    if host.state.is_executing:
        name = target.node.name
        run.findings[name] = run.session.node(name, remote(ask))
    host.noop("verified")
    yield from ()


@operation()
def report_node(run: RunLog, target: Target) -> Iterator[Any]:
    """
    Fail this node when it isn't ready, so that pyinfra's exit code tells the truth.

    + run: the log of this run
    + target: the node, its fleet and lock
    """
    if not host.state.is_executing:
        host.noop("reported")
        return
    once(run, run.session)
    run.verified = True
    name = target.node.name
    findings = run.findings.get(name, [])
    keep_mark(run, run.session, name)
    if name in run.fleet.kept_out:
        host.noop(f"{name} is quarantined by {run.fleet.kept_out[name]}")
        return
    if is_ready(findings):
        identity = run.session.nodes[name].identity
        if identity is not None:
            state = quarantine.state_of(run.fleet)
            changed = state.was_ready(name, identity, target.lock.digest, run.run)
            run.notes += [f"{name}: {one}" for one in changed]
            quarantine.keep_lock(run.fleet, target.lock)
        host.noop(f"{name} is ready")
        return
    yield refuse(f"{name} is not ready: {against(findings)}")


@operation()
def quarantine_mark(target: Target, present: bool) -> Iterator[Any]:
    """
    The file that keeps a quarantined node's units from starting, or none.

    + target: the node and its fleet
    + present: whether the survey found the file
    """
    entry = target.fleet.kept_out.get(target.node.name)
    if entry and not present:
        from rackpin.desired import OwnedFile
        from rackpin.operations import put

        yield put(OwnedFile(quarantine.MARK, quarantine.mark_text(entry)), keep_old=False)
    elif not entry and present:
        yield f"rm -f {quarantine.MARK}"
    else:
        host.noop("as wished")
