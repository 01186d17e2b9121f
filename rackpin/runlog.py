"""What one pyinfra run did: stages, changes and failures by node, and its last word.

pyinfra loses sight of a host once it failed; this log doesn't. It starts with the first
connection (after the whole inventory was checked), hears of every operation, and ends
with a summary and a report however the run ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gevent.lock import RLock
from pyinfra.api import BaseStateCallback

from rackpin import inventory_models
from rackpin.desired import Target
from rackpin.findings import (
    Finding,
    NodeResult,
    NodeState,
    Report,
    first_blocking,
    is_ready,
)
from rackpin.fleet import quarantine
from rackpin.inventory import Fleet
from rackpin.inventory_check import fleet_from_pyinfra
from rackpin.inventory_problems import FLEET, InventoryError, Problem
from rackpin.report.history import history
from rackpin.runwords import (
    deploys_of,
    kept_out_finding,
    last_error,
    noted,
    operation_name,
    stage_of,
    stopped_finding,
)
from rackpin.stack.lock import Lock, load_stack
from rackpin.stack.pins import StackError
from rackpin.verify.session import Session

CONNECT = "connect"


@dataclass
class NodeLog:
    stage: str = CONNECT  # the stage it is in, or stopped in
    operation: str = ""
    error: str = ""
    failed: bool = False
    failed_op: str = ""  # the hash of the operation that failed; what it printed comes later
    changes: list[str] = field(default_factory=list)


class RunLog(BaseStateCallback):
    """Registered once per run with pyinfra's state."""

    def __init__(self, state: Any, fleet: Fleet, lock: Lock) -> None:
        self.state, self.fleet, self.lock = state, fleet, lock
        self.deploy = deploys_of(sys.argv[1:])
        self.started = datetime.now(UTC)
        self.run = self.started.strftime("%Y%m%dT%H%M%S.%fZ")[:-4] + "Z"
        self.clock = time.monotonic()
        self.nodes = {name: NodeLog() for name in fleet.nodes}
        self.findings: dict[str, list[Finding]] = {}
        level = fleet.config.verify_level
        earlier = history(self.report_dir(), lock.digest)
        self.session = Session(fleet, lock, level, history=earlier)
        self.gate = Session(fleet, lock, level, serving=False)  # before anything serves
        self.turn = RLock()
        self.asked_together: set[int] = set()  # sessions whose nodes were asked together
        self.admitted: set[str] = set()  # nodes that were found good by their mark or in this run
        self.notes: list[str] = []
        self.surveys: dict[str, Any] | None = None  # by node, once the fleet was looked at
        self.refused: Exception | None = None  # why nothing may be changed
        self.targets: dict[str, Target] = {}  # by node, with what its stages worked out
        self.overruled: dict[str, dict[str, str]] = {}  # by node: files of others, as they must be
        self.stage_seconds: dict[str, float] = {}
        self.expects_verify = False  # this run has a verify stage
        self.verified = False  # the verify stage ran to its end
        self.interrupted = False
        self.report: Report | None = None
        self._operation_start = 0.0

    # -- pyinfra's callbacks ------------------------------------------------------
    def host_connect_error(self, state: Any, host: Any, error: Exception) -> None:
        log = self.nodes[host.name]
        log.failed, log.error = True, str(error.args[0] if error.args else error)

    def operation_start(self, state: Any, op_hash: str) -> None:
        self._operation_start = time.monotonic()

    def operation_end(self, state: Any, op_hash: str) -> None:
        stage = stage_of(sorted(state.get_op_meta(op_hash).names)[0])
        took = time.monotonic() - self._operation_start
        self.stage_seconds[stage] = round(self.stage_seconds.get(stage, 0.0) + took, 3)
        for host, operations in state.ops.items():
            meta = operations[op_hash].operation_meta if op_hash in operations else None
            if meta is not None and meta.is_complete() and meta.did_change():
                self.nodes[host.name].changes.append(operation_name(state, host, op_hash))
                self.notes += [f"{host.name}: {text}" for text in noted(meta.stdout_lines)]

    def operation_host_start(self, state: Any, host: Any, op_hash: str) -> None:
        log = self.nodes[host.name]
        if op_hash not in state.ops[host]:
            return  # this operation doesn't concern the host
        log.operation = operation_name(state, host, op_hash)
        log.stage = host.connector.stage = stage_of(log.operation)

    def operation_host_error(
        self, state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        log = self.nodes[host.name]
        log.failed = True
        pulse = getattr(host.connector, "pulse", None)
        lost = f" ({pulse.lost})" if pulse is not None and pulse.lost else ""
        if not log.error:
            log.error, log.failed_op = f"operation failed: {log.operation}{lost}", op_hash

    # -- the end --------------------------------------------------------------------
    def _error(self, name: str) -> str:
        """Why it stopped, with the last thing that the failing command said."""
        log, host = self.nodes[name], self.state.inventory.get_host(name)
        data = self.state.ops.get(host, {}).get(log.failed_op) if log.failed_op else None
        meta = data.operation_meta if data is not None else None
        lines = meta.stderr_lines if meta is not None and meta.is_complete() else []
        said = last_error(lines)
        return f"{log.error}: {said}" if said else log.error

    def node_result(self, name: str) -> NodeResult:
        node, log = self.fleet.nodes[name], self.nodes[name]
        host = self.state.inventory.get_host(name)
        limited = self.state.limit_hosts is not None and host not in self.state.limit_hosts
        state: NodeState
        kept_out = self.fleet.kept_out.get(name, "")
        if limited:
            state = "skipped"
        elif kept_out:
            state = "quarantined"
        elif log.failed and log.stage == CONNECT:
            state = "unreachable"
        elif is_ready(self.findings.get(name, [])):
            state = "ready"
        elif name in self.findings:
            state = "not_ready"
        else:
            state = "failed"
        stopped = state == "quarantined" and log.failed and log.stage != CONNECT
        healthy = state in ("ready", "skipped", "quarantined") and not stopped
        why = "" if healthy else self._error(name) if stopped else self._why(name)
        if state == "quarantined":
            why = f"{kept_out}; stopped at {log.stage}: {why}" if stopped else kept_out
        return NodeResult(
            name=name,
            state=state,
            groups=node.groups,
            stage="" if healthy else log.stage,
            reason=why,
            changes=log.changes,
            remote_executions=getattr(host.connector, "executions", 0),
            address=node.address,
        )

    def _why(self, name: str) -> str:
        otherwise = self._error(name) or "the run ended before it was verified"
        return first_blocking(self.findings.get(name, []), otherwise)

    def all_findings(self) -> list[Finding]:
        found = [f for name in self.fleet.nodes for f in self.findings.get(name, [])]
        for name in self.fleet.nodes:
            result = self.node_result(name)
            if result.state in ("unreachable", "failed") and name not in self.findings:
                found.append(stopped_finding(self.fleet.nodes[name], result))
            elif result.state == "quarantined" and result.stage:
                found.append(kept_out_finding(result, self._error(name)))
        found += self.session.together_findings
        return found + quarantine.findings(self.fleet)

    def finish(self) -> Report:
        """Write the report (once) and return it."""
        if self.report is None:
            self.report = self._build_report()
        return self.report

    def _build_report(self) -> Report:
        from rackpin.checks.summary import instance_results

        nodes = [self.node_result(name) for name in self.fleet.nodes]
        findings = self.all_findings()
        asked = [n for n in nodes if n.state not in ("skipped", "quarantined")]
        ready = self.verified and bool(asked) and all(n.state == "ready" for n in asked)
        return Report(
            run=self.run,
            started=self.started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - self.clock, 1),
            deploy=self.deploy,
            level=self.session.level,
            partial=self.interrupted or not self.verified,
            fleet=self.fleet.config.fleet,
            stack=self.fleet.config.stack,
            lock=self.lock.digest,
            ready=ready and is_ready([f for f in findings if f.node not in self.fleet.kept_out]),
            nodes=nodes,
            instances=instance_results(self.fleet, findings),
            findings=findings,
            measurements=self.gate.measurements + self.session.measurements,
            outliers=self.session.outliers,
            stage_seconds=self.stage_seconds,
            notes=[*self.notes, *self.gate.notes, *self.session.notes],
        )

    def report_dir(self) -> Path:
        return Path(self.state.cwd or ".") / self.fleet.config.report_dir


def locked(fleet: Fleet) -> Lock:
    """The lock of the fleet's stack; what is wrong with it is told as the inventory's problem."""
    try:
        lock = load_stack(fleet.config.stack).lock
    except StackError as error:
        remedy = "nothing was changed; make the lock fit, then run again"
        raise InventoryError(
            [Problem(FLEET, "stack", str(error), remedy)], "the stack of the inventory"
        ) from None
    inventory_models.of_the_stack(fleet, lock)
    return lock


BESIDE = ("verify", "audit", "gateway")  # deploys that a roll doesn't mind


def not_into_a_roll(fleet: Fleet, words: list[str]) -> None:
    """Raises :class:`InventoryError` while somebody else rolls this fleet."""
    rolls = quarantine.rolls_of(fleet)
    roll = rolls.open_roll()
    if roll is None or os.environ.get(rolls.OWN) == roll.plan.roll:
        return
    if deploys_of(words) in BESIDE or "--dry" in words or not (writer := rolls.writer()):
        return
    what = f"roll {roll.plan.roll} is run by {writer}; it has the fleet until it is over"
    remedy = "wait, or ask it to stop: rackpin roll --pause"
    raise InventoryError([Problem(FLEET, "state_dir", what, remedy)], "the fleet's state")


_runs: dict[int, RunLog] = {}


def begin(state: Any) -> RunLog:
    """The log of this run; the first call checks the inventory and the lock."""
    run = _runs.get(id(state))
    if run is None:
        fleet = quarantine.applied(fleet_from_pyinfra(state.inventory))
        not_into_a_roll(fleet, sys.argv[1:])
        run = RunLog(state, fleet, locked(fleet))
        _runs[id(state)] = run
        state.add_callback_handler(run)
        from rackpin.runend import close

        atexit.register(close, run)
        previous = signal.getsignal(signal.SIGINT)

        def interrupt(signum: int, frame: Any) -> None:
            run.interrupted = True
            if callable(previous):
                previous(signum, frame)

        signal.signal(signal.SIGINT, interrupt)
    return run
