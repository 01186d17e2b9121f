"""Reports on disk: whole or not at all, small, and read back with clear errors."""

from __future__ import annotations

import json
import re
import resource
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from rackpin.findings import (
    Evidence,
    Finding,
    InstanceResult,
    Measurement,
    NodeResult,
    Outcome,
    Outlier,
    Report,
)
from rackpin.report import ReportError, files, load, write
from rackpin.report.cli import report as report_command
from rackpin.report.compare import compare
from rackpin.report.schema import FILE, schema, text
from rackpin.report.shape import storable

from . import report_samples as samples
from .report_fleet import fleet


def test_what_is_written_can_be_read_back_equal(tmp_path: Path) -> None:
    for report in (samples.good(), samples.troubled()):
        written = write(report, tmp_path)
        assert load(written.json) == load(tmp_path) == load(tmp_path / report.run) == report
        assert written.latest.read_bytes() == written.html.read_bytes()
        assert (tmp_path / "latest.json").read_bytes() == written.json.read_bytes()
        assert not written.latest.is_symlink()
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "report.json", "report.html", "junit.xml", "metrics.json",
        "latest.json", "latest.html", "latest.prom",
    }  # fmt: skip


def test_a_huge_output_is_cut_with_a_note(tmp_path: Path) -> None:
    huge = "first line\n" + "é<" * 500_000 + "\nlast line"
    findings = [samples.finding("a", "gpu.xid", "fail", "x", evidence=Evidence(output=huge))]
    written = write(samples.report([samples.ready_node("a", 0)], findings, ready=False), tmp_path)
    for output in (
        load(written.json).findings[0].evidence.output,
        written.html.read_text(encoding="utf-8"),
    ):
        assert "first line" in output and "last line" in output
        assert re.search(r"\[… \d+ characters cut …\]", output)
    assert len(load(written.json).findings[0].evidence.output) <= 65536
    assert "was cut to 65536 characters" in load(written.json).notes[0]
    assert written.html.stat().st_size < 100_000 and written.junit.stat().st_size < 50_000
    again = load(written.json)
    assert storable(again) == again


@pytest.mark.parametrize("output", ["", "<é\"'&>" * 20_000])
def test_two_hundred_nodes_stay_small_and_fast(tmp_path: Path, output: str) -> None:
    report = samples.large(200, 20, output)
    begun = time.process_time()
    written = write(report, tmp_path)
    assert time.process_time() - begun < 30
    assert written.html.stat().st_size < 5_000_000
    assert written.html.read_text().count('class="f"') == 4000


def test_the_worst_text_everywhere_stays_small(tmp_path: Path) -> None:
    text = "<é\"'&>" * 400
    evidence = Evidence(command=text, output=text)
    names = [f"gpu-{number:03}" for number in range(200)]
    nodes = [NodeResult(name=n, state="failed", reason=text, changes=[text] * 99) for n in names]
    more = {"remedy": text, "expected": text, "source": text, "evidence": evidence}
    findings = [
        samples.finding(n, f"a.{k}", "fail", text, **more) for n in names for k in range(20)
    ]
    bad = {"why": text, "transport": text, "outcome": Outcome.FAIL}
    night = fleet(64)
    measured = [one.model_copy(update=bad) for one in night.measurements]
    words = {"value": text, "usual": text, "what": text}
    odd = [night.outliers[0].model_copy(update={"node": n, **words}) for n in names * 5]
    made = samples.report(nodes, findings, ready=False, measurements=measured, outliers=odd)
    written = write(made, tmp_path)
    assert written.html.stat().st_size < 5_000_000 and written.junit.stat().st_size < 5_000_000


def test_a_full_disk_leaves_the_last_report_whole(tmp_path: Path) -> None:
    write(samples.good(), tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # writes end half-way, for real
    try:
        with pytest.raises(ReportError, match=r"report\.json: can't be written: File too large"):
            write(samples.troubled(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("fails_at", [1, 2, 3, 4, 5, 6, 7])
def test_no_file_is_ever_partial(tmp_path: Path, monkeypatch, fails_at: int) -> None:
    write(samples.good(), tmp_path)
    old_json, old_html = (tmp_path / f"latest.{end}" for end in ("json", "html"))
    before = old_json.read_bytes(), old_html.read_bytes()
    calls = 0
    real = files._write_synced

    def write_some(path: Path, data: bytes) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            path.write_bytes(data[:10])
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(files, "_write_synced", write_some)
    with pytest.raises(ReportError, match="No space left on device; free space"):
        write(samples.troubled().model_copy(update={"run": "second"}), tmp_path)
    assert (old_json.read_bytes(), old_html.read_bytes()) == before
    assert not list(tmp_path.rglob("*.draft"))
    assert (tmp_path / "second" / "report.json").exists() is (fails_at > 1)


@pytest.mark.parametrize("run", ["../outside", "a/b", "", ".hidden", "x\n", "a" * 200])
def test_a_run_id_never_leaves_the_directory(tmp_path: Path, run: str) -> None:
    with pytest.raises(ReportError, match="can't name a directory"):
        write(samples.good().model_copy(update={"run": run}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_load_says_what_is_wrong(tmp_path: Path) -> None:
    def refuses(text: str | bytes, pattern: str) -> None:
        path = tmp_path / "r.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(ReportError, match=pattern) as caught:
            load(path)
        assert str(path) in str(caught.value)

    whole = samples.good().model_dump_json()
    refuses(whole[:700], r"no valid JSON \(line 1 column \d+")
    refuses(b"\xff\xfe\x00", "no JSON file")
    refuses("[" * 100_000, "no JSON file")
    refuses("[]", "no rackpin report")
    refuses('{"schema_version": true}', "no rackpin report")
    refuses(whole.replace('"schema_version":2', '"schema_version":7'), "upgrade rackpin")
    refuses(whole.replace('"schema_version":2', '"schema_version":0'), "run verify again")
    refuses(whole.replace('"outcome":"pass"', '"outcome":"skip"', 1), r"findings\.0\.outcome")
    refuses(whole.replace('"stack":', '"stak":'), r"(?s)2 values.*stack.*stak")
    with pytest.raises(ReportError, match=r"no such report; run `rackpin verify` first"):
        load(tmp_path / "none")


def test_command_exit_status(tmp_path: Path) -> None:
    write(samples.good(), tmp_path / "good")
    write(samples.troubled(), tmp_path / "bad")

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(report_command, arguments)
        return result.exit_code, result.output

    code, text = run(str(tmp_path / "good" / "latest.json"))
    assert code == 0 and "READY: 3 of 3 nodes ready" in text
    assert text.splitlines()[-1].endswith("latest.html")
    code, text = run(str(tmp_path / "bad"))
    assert code == 1 and "NOT READY: 1 of 4 nodes ready" in text
    assert run(str(tmp_path / "gone"))[0] == 2
    (tmp_path / "broken.json").write_text("{")
    code, text = run(str(tmp_path / "broken.json"))
    assert code == 2 and "broken.json" in text and "Traceback" not in text


def test_a_report_of_the_first_schema_is_read_and_compared(tmp_path: Path) -> None:
    data = json.loads(samples.good().model_dump_json())
    for key in ("level", "partial", "measurements", "outliers"):
        del data[key]
    path = tmp_path / "old.json"
    path.write_text(json.dumps({**data, "schema_version": 1}))
    old = load(path)
    assert (old.schema_version, old.level, old.partial) == (2, "node", False)
    assert (old.measurements, old.outliers) == ([], [])
    assert old == samples.good() and not compare(old, samples.good()).worse
    assert compare(old, samples.troubled()).worse


def test_the_schema_file_is_what_the_model_says() -> None:
    assert json.loads(FILE.read_text(encoding="utf-8")) == schema(), (
        "run `python -m rackpin.report.schema`"
    )
    assert FILE.read_text(encoding="utf-8") == text()


def test_reports_hold_to_the_schema_file(tmp_path: Path) -> None:
    validator = Draft202012Validator(json.loads(FILE.read_text(encoding="utf-8")))
    Draft202012Validator.check_schema(validator.schema)
    for number, made in enumerate((samples.good(), samples.troubled(), samples.hostile(), fleet())):
        written = write(made, tmp_path / str(number))
        data = json.loads(written.json.read_bytes())
        assert [error.message for error in validator.iter_errors(data)] == []
    for broken in ({"partial": "no"}, {"level": "all"}, {"schema_version": 1}, {"extra": 1}):
        assert not validator.is_valid({**data, **broken}), broken
    del data["measurements"][0]["outcome"]
    assert not validator.is_valid(data)


def test_schema_and_manual_name_every_field() -> None:
    made = schema()
    assert made["properties"]["schema_version"]["const"] == 2
    assert set(made["required"]) == set(Report.model_fields)
    manual = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    models = (Report, NodeResult, InstanceResult, Finding, Evidence, Measurement, Outlier)
    fields = {name for model in models for name in model.model_fields}
    assert sorted(name for name in fields if f"`{name}`" not in manual) == []
    assert all(f"`{outcome}`" in manual for outcome in Outcome)
