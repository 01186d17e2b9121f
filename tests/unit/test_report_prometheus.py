"""The textfile for Prometheus, read by Prometheus's own parser."""

from __future__ import annotations

import stat
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from rackpin.findings import Report
from rackpin.report import ReportError, write
from rackpin.report.cli import report as command
from rackpin.report.prometheus import render, write_textfile
from rackpin.report.shape import presentable

from . import report_samples as samples
from .report_fleet import fleet

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(text: str) -> Series:
    found: Series = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation and family.samples
        for one in family.samples:
            key = (one.name, frozenset(one.labels.items()))
            assert key not in found, f"{key} is there twice"
            found[key] = one.value
    return found


def series(report: Report) -> Series:
    return parsed(render(presentable(report)))


def value(found: Series, name: str, **labels: str) -> float:
    return found[f"rackpin_{name}", frozenset({"fleet": "paris-1", **labels}.items())]


def test_what_is_said_of_a_run() -> None:
    report = fleet(partial=True)
    found = series(report)
    started = datetime.fromisoformat(report.started).timestamp()
    assert value(found, "run_timestamp_seconds") == started > 1e9
    assert value(found, "run_duration_seconds") == 1403.0
    assert value(found, "run_partial") == 1.0 and value(found, "fleet_ready") == 0.0
    about = next(dict(labels) for name, labels in found if name == "rackpin_run_info")
    assert about["lock"] == samples.LOCK and about["level"] == "fleet"
    good = series(samples.good())
    assert value(good, "run_partial") == 0.0 and value(good, "fleet_ready") == 1.0


def test_nodes_checks_and_findings() -> None:
    found = series(fleet())
    assert value(found, "node_ready", node="gpu-001") == 1.0
    assert value(found, "node_ready", node="gpu-009") == 0.0
    assert value(found, "node_state", node="gpu-009", state="quarantined") == 1.0
    assert value(found, "node_state", node="gpu-009", state="ready") == 0.0
    assert value(found, "node_checks", node="gpu-025", outcome="fail") == 2.0
    assert value(found, "node_checks", node="gpu-034", outcome="pass") == 0.0
    xid = {"node": "gpu-025", "check": "gpu.xid", "outcome": "fail", "required": "true"}
    assert value(found, "finding", **xid) == 1.0
    assert value(found, "node_outliers", node="gpu-022") == 2.0


def test_a_node_that_only_calls_itself_ready_is_not() -> None:
    found = series(samples.report([samples.ready_node("a", 0)], []))
    assert value(found, "node_ready", node="a") == 0.0


def test_bandwidth_in_bytes_with_what_is_expected() -> None:
    found = series(fleet())
    of = {"node": "fleet", "check": "collective.pairs"}
    assert value(found, "busbw_bytes_per_second", **of) == pytest.approx(33.0e9)
    assert value(found, "busbw_expected_bytes_per_second", **of) == pytest.approx(48.5e9)
    pair = {"node": "gpu-005", "kind": "pair", "library": "engine"}
    assert 30e9 < value(found, "measured_lowest_busbw_bytes_per_second", **pair) < 35e9
    assert value(found, "measured_lowest_busbw_expected_bytes_per_second", **pair) == 48.5e9
    fails = {"kind": "pair", "library": "engine", "outcome": "fail"}
    assert value(found, "measurements", **fails) == 59.0


def test_instances() -> None:
    found = series(fleet())
    assert value(found, "instance_serving", instance="qwen-7b") == 1.0
    assert value(found, "instance_ttft_seconds", instance="qwen-7b") == 0.087
    assert value(found, "instance_output_tokens_per_second", instance="llama-70b") == 1480.0
    down = series(samples.troubled())
    assert value(down, "instance_serving", instance="llama-70b") == 0.0
    assert not any("ttft" in name for name, _ in down), "what was not measured is not there"


def test_a_check_that_answered_twice_is_one_series_with_the_worst() -> None:
    twice = [samples.finding("a", "smoke.x"), samples.finding("a", "smoke.x", "fail", "y")]
    found = series(samples.report([samples.ready_node("a", 0)], twice))
    said = {"node": "a", "check": "smoke.x", "outcome": "fail", "required": "true"}
    assert value(found, "finding", **said) == 1.0
    assert sum(name == "rackpin_finding" for name, _ in found) == 1


def test_labels_are_escaped() -> None:
    odd = 'a\\b "c"'
    report = samples.good().model_copy(update={"fleet": odd})
    assert {dict(labels)["fleet"] for _, labels in series(report)} == {odd}
    assert series(samples.hostile()), "any text gives a file that can be parsed"


def test_a_time_that_cannot_be_read_is_left_out() -> None:
    found = series(samples.good().model_copy(update={"started": "yesterday"}))
    assert not any("timestamp" in name for name, _ in found) and found


def test_it_is_written_whole_and_readable_by_the_collector(tmp_path: Path) -> None:
    write(samples.good(), tmp_path / "reports")
    latest = tmp_path / "reports" / "latest.prom"
    assert parsed(latest.read_text()) == series(samples.good())
    place = write_textfile(samples.good(), tmp_path)
    assert place == tmp_path / "rackpin.prom" and place.read_text() == latest.read_text()
    assert stat.S_IMODE(place.stat().st_mode) == 0o644
    other = write_textfile(samples.troubled(), tmp_path / "own.prom")
    assert parsed(other.read_text()) == series(samples.troubled())
    assert {path.name for path in tmp_path.iterdir()} == {"reports", "rackpin.prom", "own.prom"}
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match=r"own\.prom: can't be written"):
        write_textfile(samples.good(), tmp_path / "file" / "own.prom")


def test_the_command_writes_it_too(tmp_path: Path) -> None:
    write(samples.good(), tmp_path)
    place = tmp_path / "collector"
    place.mkdir()
    said = CliRunner().invoke(command, [str(tmp_path), "--textfile", str(place)])
    assert said.exit_code == 0 and (place / "rackpin.prom").is_file()
