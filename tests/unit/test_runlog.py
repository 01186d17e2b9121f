"""What the run log says of nodes that failed, vanished, were left out or are ready."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rackpin.findings import Finding, Outcome
from rackpin.inventory import Fleet
from rackpin.report.verdict import judge
from rackpin.runlog import RunLog, stage_of
from rackpin.stack.lock import Lock


class Inventory(dict[str, Any]):
    def get_host(self, name: str) -> Any:
        return self[name]


@pytest.fixture
def run(fleet: Fleet, lock: Lock, tmp_path: Path) -> RunLog:
    connector = SimpleNamespace(executions=2, misses=0)
    hosts = {n: SimpleNamespace(name=n, connector=connector) for n in fleet.nodes}
    state = SimpleNamespace(inventory=Inventory(hosts), limit_hosts=None, cwd=str(tmp_path))
    return RunLog(state, fleet, lock)


def finding(node: str, outcome: Outcome, required: bool = True) -> Finding:
    return Finding(node=node, check="x.y", outcome=outcome, summary="said", required=required)


def everyone_passes(run: RunLog) -> None:
    run.findings = {n: [finding(n, Outcome.PASS)] for n in run.fleet.nodes}
    run.verified = True


def states(run: RunLog) -> dict[str, str]:
    return {n: run.node_result(n).state for n in run.fleet.nodes}


def test_ready_only_when_all_were_verified(run: RunLog) -> None:
    everyone_passes(run)
    assert run.finish().ready
    assert set(states(run).values()) == {"ready"}


def test_a_run_that_was_not_verified_is_never_ready(run: RunLog) -> None:
    everyone_passes(run)
    run.verified = False
    assert not run.finish().ready


def test_unreachable_is_named_with_its_stage(run: RunLog) -> None:
    everyone_passes(run)
    del run.findings["worker1"]
    run.host_connect_error(run.state, SimpleNamespace(name="worker1"), OSError("no route"))
    report = run.finish()
    assert not report.ready
    node = next(n for n in report.nodes if n.name == "worker1")
    assert (node.state, node.stage, node.reason) == ("unreachable", "connect", "no route")
    found = next(f for f in report.findings if f.node == "worker1")
    assert found.outcome is Outcome.FAIL and "--limit worker1" in found.remedy


def test_one_that_died_midway_is_named_with_its_stage(run: RunLog) -> None:
    everyone_passes(run)
    del run.findings["worker2"]
    log = run.nodes["worker2"]
    log.stage, log.failed, log.error = "python", True, "operation failed: python: environment"
    report = run.finish()
    assert not report.ready
    found = next(f for f in report.findings if f.node == "worker2")
    assert found.check == "stage.python" and "python: environment" in found.summary


@pytest.mark.parametrize(
    "outcome, required, state",
    [
        (Outcome.FAIL, False, "not_ready"),
        (Outcome.NOT_RUN, True, "not_ready"),
        (Outcome.NOT_RUN, False, "ready"),
        (Outcome.WARN, True, "ready"),
    ],
)
def test_findings_decide(run: RunLog, outcome: Outcome, required: bool, state: str) -> None:
    everyone_passes(run)
    run.findings["head1"].append(finding("head1", outcome, required))
    assert run.node_result("head1").state == state
    assert run.finish().ready is (state == "ready")


def test_nodes_left_out_by_limit_are_said_but_not_judged(run: RunLog) -> None:
    everyone_passes(run)
    del run.findings["gate1"]
    run.state.limit_hosts = [h for n, h in run.state.inventory.items() if n != "gate1"]
    assert run.node_result("gate1").state == "skipped"
    assert run.finish().ready


def test_a_node_without_any_finding_is_not_ready(run: RunLog) -> None:
    everyone_passes(run)
    run.findings["head1"] = []
    assert run.node_result("head1").state == "not_ready"


@pytest.fixture
def out(run: RunLog) -> RunLog:
    """All pass but worker2, which somebody keeps out."""
    everyone_passes(run)
    run.fleet = run.fleet.model_copy(update={"kept_out": {"worker2": "ada: XID 79"}})
    return run


def test_what_a_quarantined_node_is_found_with_is_its_owners(out: RunLog) -> None:
    out.findings["worker2"] = [finding("worker2", Outcome.FAIL)]
    report = out.finish()
    assert report.ready and judge(report).ready
    node = next(n for n in report.nodes if n.name == "worker2")
    assert (node.state, node.stage, node.reason) == ("quarantined", "", "ada: XID 79")


def test_a_stage_that_failed_on_a_quarantined_node_fails_the_run(out: RunLog) -> None:
    del out.findings["worker2"]
    log = out.nodes["worker2"]
    log.stage, log.failed, log.error = "driver", True, "operation failed: driver: packages"
    report = out.finish()
    assert not report.ready
    node = next(n for n in report.nodes if n.name == "worker2")
    assert (node.state, node.stage) == ("quarantined", "driver")
    assert node.reason == "ada: XID 79; stopped at driver: operation failed: driver: packages"
    (found,) = [f for f in report.findings if f.outcome is Outcome.FAIL]
    assert found.check == "stage.driver" and "worker2, which is quarantined" in found.summary
    verdict = judge(report)
    assert not verdict.ready and "1 fail" in verdict.line and verdict.contradictions == []


def test_a_quarantined_node_that_is_away_fails_nothing(out: RunLog) -> None:
    del out.findings["worker2"]
    out.host_connect_error(out.state, SimpleNamespace(name="worker2"), OSError("no route"))
    report = out.finish()
    assert report.ready and judge(report).ready
    assert out.node_result("worker2").reason == "ada: XID 79"


def test_stage_of() -> None:
    assert stage_of("ray: unit") == "ray"
    assert stage_of("deploys/ray.py | ray: file /etc/x") == "ray"
    assert stage_of("something else") == "other"


def test_a_failed_operation_is_told_with_its_commands_last_error(run: RunLog) -> None:
    said = [
        "error: Failed to download `openai==3.57.0`",
        "  cause: failed to write, api_key=sk-abcdefghijklmnopqrstuvw: No space left on device",
        "",
        "  a hint that helps nobody",
    ]
    meta = SimpleNamespace(stderr_lines=said, is_complete=lambda: True)
    run.state.inventory = Inventory({n: Hashable(h) for n, h in run.state.inventory.items()})
    run.state.ops = {}
    log = run.nodes["worker1"]
    log.stage, log.operation = "python", "python: environment"
    run.operation_host_error(run.state, SimpleNamespace(name="worker1", connector=None), "h1")
    assert run.node_result("worker1").reason == "operation failed: python: environment"
    host = run.state.inventory["worker1"]
    run.state.ops = {host: {"h1": SimpleNamespace(operation_meta=meta)}}
    reason = run.node_result("worker1").reason
    assert "No space left on device" in reason and "sk-abc" not in reason
    meta.stderr_lines = []
    assert run.node_result("worker1").reason == "operation failed: python: environment"


def test_what_a_command_wants_to_be_told_is_a_note_of_the_run(run: RunLog) -> None:
    said = ["built: /x", "note: neighbour 10.0.0.2 gave a wrong a.whl, token=abcdefgh", "x note: y"]
    meta = SimpleNamespace(stdout_lines=said, is_complete=lambda: True, did_change=lambda: True)
    host = Hashable(run.state.inventory["worker1"])
    data = SimpleNamespace(operation_meta=meta, global_arguments={"name": "python: environment"})
    run.state.ops = {host: {"h1": data}}
    run.state.get_op_meta = lambda op: SimpleNamespace(names={"python: environment"})
    run.state.get_op_data_for_host = lambda host, op: data
    run.operation_end(run.state, "h1")
    assert run.nodes["worker1"].changes == ["python: environment"]
    (note,) = run.notes
    assert note.startswith("worker1: neighbour 10.0.0.2 gave a wrong a.whl")
    assert "abcdefgh" not in note


class Hashable:
    """A host as pyinfra's state has it: a key of its dictionaries."""

    def __init__(self, host: Any) -> None:
        self.name, self.connector = host.name, host.connector
