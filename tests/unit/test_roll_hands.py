"""What a roll reads from engines, from the stop script and from a run of site.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackpin.checks.base import Output
from rackpin.findings import NodeResult, Report
from rackpin.inventory import ROOT, Fleet
from rackpin.roll.hands import STOP, health, is_up, judged
from tests.unit.checks_samples import probe_text

GOOD = {"unit": {"ActiveState": "active", "ActiveEnterTimestampMonotonic": "77"}, "status": 200}


def test_an_engine_is_up_only_when_unit_and_health_say_so(fleet: Fleet) -> None:
    asked = health(fleet, fleet.config.instances[0])

    def why(facts: object) -> str:
        return is_up(asked, Output(0, probe_text(facts))).why

    assert why(GOOD) == "" and is_up(asked, Output(0, probe_text(GOOD))).start == "77"
    assert why({**GOOD, "status": 503}) == "/health says 503"
    assert why({**GOOD, "status": 0}) == "/health says nothing"
    assert why({**GOOD, "unit": {"ActiveState": "activating"}}) == "its unit is activating"
    assert why({"error": "TimeoutError: timed out"}) == "TimeoutError: timed out"
    assert why({}) == "its unit is unknown"
    assert is_up(asked, Output(None, stderr="lost")).why
    assert is_up(asked, Output(0, "nothing of ours")).why
    assert is_up(asked, Output(124)).why


def report(directory: Path, **states: str) -> str:
    nodes = [NodeResult(name=n, state=s, reason="memlock is 64 KiB") for n, s in states.items()]  # type: ignore[arg-type]
    made = Report(
        run="r1", started="2026-11-30T00:00:00+00:00", seconds=1.0, deploy="site", fleet="test",
        stack="cpu-lab", lock="x", ready=False, nodes=nodes, instances=[], findings=[],
    )  # fmt: skip
    (directory / "report.json").write_text(made.model_dump_json())
    return f"--> Done\n    Report: {directory}/report.html\n"


def test_each_node_is_what_the_report_says_of_it(tmp_path: Path) -> None:
    text = report(tmp_path, a="ready", b="not_ready")
    found = judged(["a", "b", "c"], 1, text, tmp_path / "log")
    assert found.why == {
        "a": "", "b": "not_ready: memlock is 64 KiB", "c": "the report doesn't name it",
    }  # fmt: skip
    assert found.report == str(tmp_path / "report.json")


def test_a_run_without_its_report_proves_nothing(tmp_path: Path) -> None:
    found = judged(["a"], 1, "No such file\nInventoryError: 3 problems", tmp_path / "log")
    assert "ended with 1 and without a report" in found.why["a"]
    assert "3 problems" in found.why["a"]
    lost = "--> Connecting to hosts...\n    [a]    Could not connect (timed out)\nNo hosts!"
    assert judged(["a"], 1, lost, tmp_path / "log").why["a"].startswith("Could not connect (timed")
    assert "not done in" in judged(["a"], None, report(tmp_path, a="ready"), tmp_path).why["a"]
    text = report(tmp_path, a="ready")
    (tmp_path / "report.json").write_text("{")
    assert "can't be read" in judged(["a"], 0, text, tmp_path / "log").why["a"]


@pytest.mark.parametrize("units", [[], ["vllm@a.service", "vllm@b.service"]])
def test_what_is_enabled_or_runs_is_stopped_and_stays_off(tmp_path: Path, units: list[str]) -> None:
    fake = tmp_path / "systemctl"
    fake.write_text(
        "#!/bin/sh\n"
        f'case $1 in list-*) for u in {" ".join(units)}; do echo "$u enabled"; done;;\n'
        f'*) echo "$@" >>{tmp_path}/said;; esac\n'
    )
    fake.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["sh", "-c", STOP.format("vllm@*.service")], check=True, env=env, timeout=20)
    said = (tmp_path / "said").read_text() if (tmp_path / "said").exists() else ""
    assert said == (f"disable --quiet --now -- {' '.join(units)}\n" if units else "")


def test_a_child_dies_with_its_killed_parent(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time\n"
        "from rackpin.child import dying_with_parent\n"
        "c = subprocess.Popen(['sleep', '60'], preexec_fn=dying_with_parent(), "
        "start_new_session=True)\n"
        "print(c.pid, flush=True)\ntime.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    end = time.monotonic() + 10
    while time.monotonic() < end and _runs(child):
        time.sleep(0.05)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
