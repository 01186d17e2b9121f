"""``rackpin verify`` from the words on its command line to its exit status."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackpin import report as reports
from rackpin.checks.base import Command, Output
from rackpin.findings import Report
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.state import FleetState, Quarantine
from rackpin.inventory import Fleet
from rackpin.inventory_open import Opened, OpenError
from rackpin.stack.lock import Lock
from rackpin.verify import cli
from rackpin.verify.idle import HOLDERS
from tests.unit import checks_samples
from tests.unit.test_verify_session import IDENTITY_TEXT

HEAD = "head1"  # the node that the samples describe


class Left(Exception):
    """In place of the end of the process."""


class Ways:
    """head1 answers as it should; the others as told."""

    def __init__(self, ctx: Any) -> None:
        self.ctx = ctx
        self.unreachable: dict[str, str] = {}
        self.written: list[str] = []
        self.before: Callable[[str], None] = lambda name: None

    def __enter__(self) -> Ways:
        return self

    def __exit__(self, *_: object) -> None: ...

    def runner(self, name: str) -> Callable[[Sequence[Command]], dict[str, Output]]:
        def run(commands: Sequence[Command]) -> dict[str, Output]:
            self.before(name)
            if name in self.unreachable:
                raise OSError(self.unreachable[name])
            return checks_samples.good(self.ctx) | {
                marks.READ.name: checks_samples.ok(""),
                marks.IDENTITY.name: checks_samples.ok(IDENTITY_TEXT),
                HOLDERS.name: checks_samples.ok("end\n"),
            }

        return run

    def ask(self, asked: dict[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        self.written += [name for name, some in asked.items() if some[0].name == "mark.write"]
        return {name: {c.name: Output(rc=0) for c in some} for name, some in asked.items()}

    def each(self, names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]:
        return {name: work(name) for name in names}

    def executions(self, name: str) -> int:
        return 1


@pytest.fixture
def ways(fleet: Fleet, lock: Lock, tmp_path: Path, monkeypatch: Any) -> Iterator[Ways]:
    where = {"report_dir": str(tmp_path / "reports"), "state_dir": str(tmp_path / "state")}
    config = fleet.config.model_copy(update=where)
    mine = fleet.model_copy(update={"config": config})

    def opened(file: Any, *_: Any, **__: Any) -> Opened:
        if not file:
            raise OpenError("which hosts? give -i INVENTORY.py")
        return Opened(None, quarantine.applied(mine), lock, str(file))

    from rackpin.checks.base import Context

    found = Ways(Context(mine, mine.nodes[HEAD], lock))
    monkeypatch.setattr("rackpin.inventory_open.opened", opened)
    monkeypatch.setattr("rackpin.verify.connect.Connections", lambda made: found)

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "leave", leave)
    yield found


def run(tmp_path: Path, *words: str) -> tuple[int, str, Report | None]:
    file = tmp_path / "inventory.py"
    file.touch()
    done = CliRunner().invoke(cli.verify_command, ["-i", str(file), *words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    latest = tmp_path / "reports" / "latest.json"
    return done.exit_code, done.output, reports.load(latest) if latest.exists() else None


def states(report: Report | None) -> dict[str, str]:
    assert report is not None
    return {node.name: node.state for node in report.nodes}


def test_one_sound_node(ways: Ways, tmp_path: Path) -> None:
    code, text, report = run(tmp_path, HEAD)
    assert code == 0 and report is not None and report.ready, text
    assert states(report) == {HEAD: "ready"} | dict.fromkeys(
        ("worker1", "worker2", "gate1"), "skipped"
    )
    assert ways.written == [HEAD]
    record = FleetState(tmp_path / "state" / "test").record(HEAD)
    assert record is not None and record.lock == report.lock


def test_read_only_leaves_no_trace(ways: Ways, tmp_path: Path) -> None:
    code, _, report = run(tmp_path, HEAD, "--read-only")
    assert code == 0 and report is not None
    assert ways.written == [] and not (tmp_path / "state").exists()
    assert not [f for f in report.findings if f.check.startswith("smoke")]


def test_a_node_that_cannot_be_reached_fails(ways: Ways, tmp_path: Path) -> None:
    ways.unreachable["worker1"] = "no route to host"
    code, text, report = run(tmp_path, HEAD, "worker1")
    assert code == 1 and states(report)["worker1"] == "unreachable"
    assert states(report)[HEAD] == "ready" and "no route to host" in text


def test_wrong_words_ask_nothing(ways: Ways, tmp_path: Path) -> None:
    code, text, report = run(tmp_path, "gpu99")
    assert code == 2 and report is None and "gpu99" in text and "worker1" in text
    done = CliRunner().invoke(cli.verify_command, [HEAD])
    assert done.exit_code == 2 and "INVENTORY" in done.output
    assert run(tmp_path, "--level", "best")[0] == 2


def test_interrupted_it_leaves_what_was_found(ways: Ways, tmp_path: Path) -> None:
    def interrupt(name: str) -> None:
        if name == "worker2":
            raise KeyboardInterrupt

    ways.before = interrupt
    code, _, report = run(tmp_path)
    assert code == 130 and report is not None and report.partial and not report.ready
    assert states(report)["worker2"] == "failed" and states(report)[HEAD] == "ready"
    told = [f for f in report.findings if f.node == "worker2"]
    assert [(f.check, f.outcome) for f in told] == [("verify.asked", "not_run")]


def test_a_quarantined_node_is_told_of_when_it_is_named(ways: Ways, tmp_path: Path) -> None:
    state = FleetState(tmp_path / "state" / "test")
    state.keep_out("gate1", Quarantine(owner="ada", reason="fan", since="2026-08-01"))
    code, text, report = run(tmp_path, "gate1")
    assert code == 1 and "for good reason" in text  # the samples are another node's
    assert states(report)["gate1"] == "quarantined"
    code, text, report = run(tmp_path, HEAD)
    assert code == 0 and report is not None and report.ready
    assert [f.check for f in report.findings if f.outcome == "warn"] == ["quarantine"]


def test_what_changed_since_the_run_before(ways: Ways, tmp_path: Path) -> None:
    assert run(tmp_path, HEAD)[0] == 0
    ways.unreachable[HEAD] = "connection refused"
    code, text, _ = run(tmp_path, HEAD, "--compare")
    assert code == 1 and f"{HEAD}  state: ready → unreachable" in text
