"""What earlier runs measured, and which of them are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rackpin.findings import Report
from rackpin.report import ReportError, history, load, write
from rackpin.report.history import KEEP, RUNS, prune

from .report_fleet import fleet
from .report_samples import LOCK, busbw, finding, ready_node, report

KEY = "collective.all_reduce busbw_gb_s"


def run_id(number: int) -> str:
    return f"2026{number // 28 + 1:02d}{number % 28 + 1:02d}T031502.118Z"


def run(number: int, *findings, **more) -> Report:
    return report([ready_node("a", 0)], list(findings), run=run_id(number), **more)


def of(directory: Path, **more) -> list[float]:
    return history.history(directory, LOCK, **more).get("a", {}).get(KEY, [])


def test_values_of_the_same_lock_the_newest_last(tmp_path: Path) -> None:
    assert history.history(tmp_path / "none", LOCK) == {}
    for number, value in enumerate((470.0, 480.0, 475.0)):
        write(run(number, busbw("a", value)), tmp_path)
    write(run(3, busbw("a", 9.0), lock="sha256:other"), tmp_path)
    write(run(4, busbw("a", 100.0, "fail")), tmp_path)
    write(run(5, busbw("a", 440.0, "warn")), tmp_path)
    assert of(tmp_path) == [470.0, 480.0, 475.0, 440.0]
    assert of(tmp_path, runs=2) == [440.0], "a run that failed there is a run still"
    found = history.history(tmp_path, "sha256:other")
    assert found["a"][KEY] == [9.0] and set(found["a"]) == {
        KEY, "collective.all_reduce busbw_min_gb_s", "collective.all_reduce busbw_expected_gb_s",
    }  # fmt: skip


def test_it_is_bounded(tmp_path: Path) -> None:
    for number in range(RUNS + 3):
        write(run(number, busbw("a", float(number))), tmp_path)
    assert of(tmp_path) == [float(number) for number in range(3, RUNS + 3)]


def test_a_check_that_answered_twice_has_no_single_value(tmp_path: Path) -> None:
    write(run(0, busbw("a", 1.0), busbw("a", 2.0), busbw("b", 3.0)), tmp_path)
    assert list(history.history(tmp_path, LOCK)) == ["b"]


def test_reports_without_the_small_file_are_read_and_get_it(tmp_path: Path) -> None:
    written = write(run(0, busbw("a", 470.0)), tmp_path)
    small = written.json.with_name("metrics.json")
    good = small.read_bytes()
    for broken in (None, b"{", b"[]", good.replace(b'"format": 1', b'"format": 0'), b'{"run": 1}'):
        small.unlink() if broken is None else small.write_bytes(broken)
        assert of(tmp_path) == [470.0] and small.read_bytes() == good
    os.utime(small, (1, 1))  # older than the report: it may tell of another one
    small.write_bytes(good.replace(b"470", b"999"))
    os.utime(small, (1, 1))
    assert of(tmp_path) == [470.0]


def test_what_cannot_be_read_is_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    write(run(0, busbw("a", 470.0)), tmp_path)
    written = write(run(1, busbw("a", 480.0)), tmp_path)
    written.json.with_name("metrics.json").unlink()
    written.json.write_text("{")
    odd = tmp_path / run_id(2)
    odd.mkdir()
    (odd / "report.json").write_bytes((tmp_path / run_id(0) / "report.json").read_bytes())
    (tmp_path / "notes").mkdir()
    notes: list[str] = []
    assert of(tmp_path, notes=notes) == [470.0]
    assert len(notes) == 2 and "left out of the history" in notes[0]
    assert run_id(2) in notes[0] and run_id(1) in notes[1]


def test_two_hundred_runs_are_read_quickly(tmp_path: Path) -> None:
    one = fleet(64)
    home = write(one, tmp_path).json.parent
    for number in range(KEEP):
        place = tmp_path / run_id(number)
        place.mkdir()
        for name in ("report.json", "metrics.json"):
            text = (home / name).read_text().replace(one.run, place.name)
            (place / name).write_text(text)
    begun = time.process_time()
    found = history.history(tmp_path, one.lock, runs=KEEP)
    assert time.process_time() - begun < 3
    assert len(found["gpu-001"]["gpu.allreduce busbw_gb_s"]) == KEEP


def test_pruning_keeps_the_newest_and_everything_that_is_not_ours(tmp_path: Path) -> None:
    for number in range(6):
        write(run(number, finding("a", "x.y")), tmp_path)
    (tmp_path / run_id(1) / "my-notes.txt").write_text("why it was slow")
    (tmp_path / run_id(2) / "report.json").write_text("{")
    outside = tmp_path / "outside"
    write(run(0, finding("a", "x.y")).model_copy(update={"run": "keep-this"}), outside)
    (tmp_path / "20260101T000000.000Z").symlink_to(outside / "keep-this")
    (tmp_path / "20250101T000000.000Z").mkdir()
    copied = tmp_path / "20250102T000000.000Z"
    copied.mkdir()
    (copied / "report.json").write_bytes((tmp_path / run_id(5) / "report.json").read_bytes())
    before = {path.name for path in tmp_path.iterdir()}
    assert prune(tmp_path, keep=2) == [run_id(0), run_id(3)]
    assert {path.name for path in tmp_path.iterdir()} == before - {run_id(0), run_id(3)}
    assert (tmp_path / run_id(1) / "my-notes.txt").read_text() == "why it was slow"
    assert load(tmp_path).run == run_id(5) and load(outside).run == "keep-this"
    assert prune(tmp_path, keep=2) == [] and prune(tmp_path / "none") == []
    with pytest.raises(ReportError, match="keep at least one"):
        prune(tmp_path, keep=0)


def test_a_removal_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    for number in range(3):
        write(run(number, finding("a", "x.y")), tmp_path)
    for name in ("report.html", "junit.xml"):
        (tmp_path / run_id(0) / name).unlink()
    (tmp_path / run_id(1) / ".report.html.812.draft").write_text("<htm")  # of a killed writer
    assert prune(tmp_path, keep=1) == [run_id(0), run_id(1)]
