"""What changed between two reports, and what of it is worse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.findings import NodeResult, Report
from rackpin.report import write
from rackpin.report.cli import lines, report
from rackpin.report.compare import compare
from tests.unit.report_fleet import fleet, measurement
from tests.unit.report_samples import LOCK, busbw, finding

OLD, NEW = "20261101T000000.000Z", "20261102T000000.000Z"


def made(run: str, *findings: object, lock: str = LOCK, **states: str) -> Report:
    nodes = [NodeResult(name=n, state=s) for n, s in (states or {"gpu1": "ready"}).items()]
    return Report(
        run=run, started="2026-11-01T00:00:00+00:00", seconds=1, deploy="verify", fleet="f",
        stack="s", lock=lock, ready=all(n.state == "ready" for n in nodes), nodes=nodes,
        findings=list(findings),
    )  # fmt: skip


def test_nothing_changed() -> None:
    one = made(OLD, finding("gpu1", "a"), busbw("gpu1", 470))
    found = compare(one, made(NEW, finding("gpu1", "a"), busbw("gpu1", 480)))
    assert not found.worse
    assert (found.about, found.nodes, found.outcomes, found.values) == ([], [], [], [])


def test_a_check_that_fails_now_or_is_not_asked_any_more_is_worse() -> None:
    older = made(OLD, finding("gpu1", "a"), finding("gpu1", "b"), finding("gpu1", "c", "fail"))
    newer = made(NEW, finding("gpu1", "a", "fail", "hot"), finding("gpu1", "c"))
    found = compare(older, newer)
    told = {one.what: (one.was, one.now, one.worse) for one in found.outcomes}
    assert told == {
        "a": ("pass", "fail", True), "b": ("pass", "–", True), "c": ("fail", "pass", False),
    }  # fmt: skip
    assert found.outcomes[-1].what == "c", "what is better comes last"


def test_a_new_check_is_worse_only_when_it_finds_something() -> None:
    found = compare(made(OLD), made(NEW, finding("gpu1", "a"), finding("gpu1", "b", "warn")))
    assert {one.what: one.worse for one in found.outcomes} == {"a": False, "b": True}


def test_the_worst_of_several_findings_of_a_check_counts() -> None:
    both = (finding("gpu1", "a"), finding("gpu1", "a", "fail"))
    assert compare(made(OLD, finding("gpu1", "a")), made(NEW, *both)).worse
    assert compare(made(OLD, finding("gpu1", "a")), made(NEW, *reversed(both))).worse


def test_values_that_moved_by_more_than_a_tenth() -> None:
    found = compare(made(OLD, busbw("gpu1", 470)), made(NEW, busbw("gpu1", 400)))
    (moved,) = found.values
    assert (moved.was, moved.now, moved.why) == ("470", "400", "-15%")


def test_nodes_and_the_lock() -> None:
    newer = made(NEW, lock="b" * 64, gpu1="not_ready", gpu3="ready")
    found = compare(made(OLD, gpu1="ready", gpu2="ready"), newer)
    assert {(m.node, m.was, m.now, m.worse) for m in found.nodes} == {
        ("gpu1", "ready", "not_ready", True),
        ("gpu2", "ready", "–", True),
        ("gpu3", "–", "ready", False),
    }
    assert [one.what for one in found.about] == ["lock"]


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner()
    write(made(OLD, finding("gpu1", "a")), tmp_path)
    alone = run.invoke(report, [str(tmp_path), "--compare"])
    assert alone.exit_code == 2 and "holds no run before" in alone.output
    write(made(NEW, finding("gpu1", "a", "fail", "hot"), gpu1="not_ready"), tmp_path)
    said = run.invoke(report, [str(tmp_path), "--compare"])
    assert said.exit_code == 1 and "✕ gpu1  a: pass → fail  (hot)" in said.output
    back = run.invoke(report, [str(tmp_path / OLD), "--compare", str(tmp_path / NEW), "--json"])
    assert back.exit_code == 0 and json.loads(back.output)["worse"] is False


@pytest.mark.parametrize("path", ["missing", "report.json"])
def test_a_report_that_is_not_there(tmp_path: Path, path: str) -> None:
    write(made(OLD, finding("gpu1", "a")), tmp_path)
    said = CliRunner().invoke(report, [str(tmp_path), "--compare", str(tmp_path / path)])
    assert said.exit_code == 2 and "no such report" in said.output


def pair(value: float | None, one: str = "gpu1", other: str = "gpu2", **more: object):
    return measurement("pair", [one, other], value, **more)


def test_pairs_that_moved_or_came_out_otherwise() -> None:
    older = made(OLD).model_copy(
        update={"measurements": [pair(48.4), pair(48.2, "gpu1", "gpu3"), pair(44.0, other="gpu4")]}
    )
    newer = made(NEW).model_copy(
        update={"measurements": [pair(33.1, "gpu2", "gpu1"), pair(48.0, "gpu1", "gpu3"),
                                 pair(48.1, other="gpu4"), pair(48.1, other="gpu5")]}
    )  # fmt: skip
    found = compare(older, newer)
    told = [(m.node, m.was, m.now, m.worse) for m in found.measurements]
    assert told == [
        ("gpu[1-2]", "pass, 48.4 GB/s", "fail, 33.1 GB/s", True),
        ("gpu[1,4]", "warn, 44 GB/s", "pass, 48.1 GB/s", False),
    ]
    assert found.worse and found.measurements[0].why == "-32%, 33.1 GB/s is below 43"
    assert not compare(newer, newer).measurements
    silent = made(NEW).model_copy(update={"measurements": [pair(None)]})
    assert compare(older, silent).worse
    assert compare(older, silent).measurements[0].now == "not run, no figure"


def test_retests_are_of_their_run_only() -> None:
    older = made(OLD).model_copy(update={"measurements": [measurement("retest", ["a", "b"], 48.0)]})
    newer = made(NEW).model_copy(update={"measurements": [measurement("retest", ["a", "b"], 9.0)]})
    assert compare(older, newer).measurements == []


def test_outliers_that_came_and_went() -> None:
    first, second, *_ = fleet().outliers
    older = made(OLD).model_copy(update={"outliers": [first]})
    newer = made(NEW).model_copy(update={"outliers": [second]})
    moves = {(m.node, m.what, m.was, m.now, m.worse) for m in compare(older, newer).outliers}
    assert moves == {
        ("gpu-022", "gpu.vbios", "–", "96.00.5E.00.01", True),
        ("gpu-018", "hca.firmware", "28.39.1002", "–", False),
    }
    assert compare(older, newer).worse and not compare(newer, newer).worse


def test_a_run_that_ended_early_is_worse_and_a_lower_level_is_not() -> None:
    older = made(OLD, finding("gpu1", "a"), finding("gpu1", "b"))
    early = older.model_copy(update={"run": NEW, "partial": True})
    assert compare(older, early).worse
    assert [(m.was, m.now) for m in compare(older, early).about] == [("whole", "ended early")]
    assert not compare(early, older).worse
    quick = made(NEW, finding("gpu1", "a")).model_copy(update={"level": "quick"})
    found = compare(older, quick)
    assert not found.worse and [m.what for m in found.about] == ["level"]
    assert lines(found)[-1] == "1 check not asked, level quick; --json lists them"
    assert compare(older, made(NEW, finding("gpu1", "a"))).worse, "at the same level it is"


def test_a_node_that_went_into_quarantine_is_told_and_no_worse() -> None:
    older = made(OLD, finding("gpu1", "a"), finding("gpu2", "a"), gpu1="ready", gpu2="ready")
    newer = made(NEW, finding("gpu1", "a"), gpu1="ready", gpu2="quarantined")
    found = compare(older, newer)
    assert not found.worse and [m.now for m in found.nodes] == ["quarantined"]
    assert lines(found)[-1].startswith("1 check not asked, gpu2 is quarantined")
    back = made(NEW, finding("gpu1", "a"), finding("gpu2", "a", "fail"), gpu2="not_ready")
    assert compare(newer, back).worse
