"""The verify stage: checks run while pyinfra executes, without counting as changes.

An operation of pyinfra "changes" when it yields a command. These look from inside their
generator and yield one only to fail their node, so a ready fleet reports no changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import operation

from rackpin import deadlines
from rackpin.checks import run_node
from rackpin.checks.base import Context
from rackpin.checks.batch import remote
from rackpin.desired import Target
from rackpin.findings import blocking, is_ready
from rackpin.operations import feed, refuse
from rackpin.runlog import RunLog


@operation()
def verify_node(run: RunLog, target: Target) -> Iterator[Any]:
    """
    Ask this node all its checks in one remote execution and keep the findings.

    + run: the log of this run
    + target: the node, its fleet and lock
    """
    if host.state.is_executing:
        context = Context(target.fleet, target.node, target.lock)
        run.findings[target.node.name] = run_node(context, remote(ask))
    host.noop("verified")
    yield from ()


def ask(text: str) -> str:
    return feed(text, deadlines.VERIFY_S, "verify")


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
    run.verified = True
    findings = run.findings.get(target.node.name, [])
    if is_ready(findings):
        host.noop(f"{target.node.name} is ready")
        return
    bad = blocking(findings)
    first = f"{bad[0].check}: {bad[0].summary}" if bad else "no finding at all"
    yield refuse(f"{target.node.name} is not ready: {len(bad)} finding(s), first: {first}")
