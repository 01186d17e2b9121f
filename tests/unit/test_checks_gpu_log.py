"""The kernel's log: which codes fail, which only warn, and when the log isn't all of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rackpin.checks import gpu_xid
from rackpin.checks.base import Output
from rackpin.desired import Target
from rackpin.diagnose.rules import xids
from rackpin.findings import Finding, Outcome
from rackpin.lab.hardware import presets
from tests.unit import gpu_samples as samples

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
BOOT = "[    0.000000] Linux version 5.15.0-1047-nvidia"
APPLICATION = (13, 31, 43, 45)
HARDWARE = (48, 63, 64, 74, 79, 94, 95, 119, 120)


def xid(code: int, bus: str = "0000:3b:00") -> str:
    return f"[  812.100000] NVRM: Xid (PCI:{bus}): {code}, pid=77, name=python, something"


def judged(
    target: Target,
    *lines: str,
    first: str = BOOT,
    status: str = "0 900",
    journal: tuple[str, ...] = (),
    **changes: object,
) -> Finding:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    answer = samples.sectioned(
        {
            "dmesg": "\n".join(lines),
            "dmesg status": f"{status}\n{first}",
            "journal": "\n".join(journal[1:]),
            "journal status": f"{len(journal)}\n{''.join(journal[:1])}",
        }
    )
    outputs["gpu.log"] = Output(**{**answer.__dict__, **changes})
    return samples.findings(ctx, outputs)["gpu.xid"]


@pytest.mark.parametrize("code", APPLICATION)
def test_a_programs_own_error_warns(target: Target, code: int) -> None:
    found = judged(target, xid(code))
    assert found.outcome is WARN and f"Xid {code} on 0000:3b:00" in found.summary


@pytest.mark.parametrize("code", HARDWARE)
def test_an_error_of_the_hardware_fails(target: Target, code: int) -> None:
    found = judged(target, xid(code))
    assert found.outcome is FAIL and xids()[code].says in found.summary
    assert xids()[code].fix in found.remedy


def test_an_unknown_code_is_no_small_thing(target: Target) -> None:
    assert 999 not in xids()
    found = judged(target, xid(999))
    assert found.outcome is FAIL and "Xid 999" in found.summary and "look up" in found.remedy


def test_all_codes_are_named_whatever_comes_first(target: Target) -> None:
    """A program's error before it must not end the search (Azure/azurehpc issue 714)."""
    found = judged(target, xid(31), xid(119, "0000:bb:00"), xid(79, "0000:19:00"))
    assert found.outcome is FAIL
    assert all(f"Xid {code}" in found.summary for code in (31, 79, 119))


@pytest.mark.parametrize(
    ("severity", "outcome"), [(", Fatal", FAIL), (", Non-fatal", WARN), ("", FAIL)]
)
def test_nvswitches(target: Target, severity: str, outcome: Outcome) -> None:
    line = f"[ 90.1] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034{severity}, Link 30 LTSSM"
    found = judged(target, line)
    assert found.outcome is outcome and "SXid 20034 on nvidia-nvswitch2" in found.summary


def test_a_card_lost_without_a_code(target: Target) -> None:
    found = judged(target, "[ 70.0] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0x56:1474)")
    assert found.outcome is FAIL and "not initialised" in found.summary


def test_the_journal_knows_what_the_ring_buffer_forgot(target: Target) -> None:
    late = "[86500.100000] eth0: link up"
    journal = (f"{BOOT[:15]} gpu01 kernel: Linux", f"[ 9.000000] gpu01 kernel: {xid(79)[15:]}")
    assert judged(target, first=late, journal=journal).outcome is FAIL
    assert judged(target, first=late, journal=journal[:1]).outcome is PASS
    assert "no longer reaches back" in judged(target, first=late).summary
    assert judged(target, first=late).outcome is WARN


def test_a_log_that_can_not_be_read_is_not_run(target: Target) -> None:
    refused = "dmesg: read kernel buffer failed: Operation not permitted"
    assert judged(target, first=refused, status="1 1").outcome is NOT_RUN
    assert judged(target, first="", status="0 1").outcome is NOT_RUN
    assert judged(target, rc=1).outcome is NOT_RUN
    assert judged(target, stdout="").outcome is NOT_RUN


def test_a_cut_answer_still_shows_its_faults(target: Target) -> None:
    assert judged(target, xid(79), truncated=True).outcome is FAIL
    assert judged(target, truncated=True).outcome is NOT_RUN


def stub(directory: Path, **programs: str) -> dict[str, str]:
    """An environment whose PATH has these programs first, as sh scripts."""
    for name, text in programs.items():
        file = directory / name.replace("_", "-")
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}", "LC_ALL": "C"}


def run(shell: str, env: dict[str, str]) -> Output:
    done = subprocess.run(["sh", "-c", shell], env=env, capture_output=True, text=True, timeout=30)
    return Output(done.returncode, done.stdout, done.stderr)


def test_the_script_keeps_every_code_of_a_storm(target: Target, tmp_path: Path) -> None:
    """Twenty thousand lines of one code leave room for the one line of another."""
    log = tmp_path / "log"
    storm = [xid(31, f"0000:{n % 8}b:00") for n in range(20_000)]
    log.write_text("\n".join([BOOT, *storm[:10_000], xid(79), *storm[10_000:]]) + "\n")
    env = stub(tmp_path, dmesg=f"cat {log}", journalctl="exit 1")
    answer = run(gpu_xid.LOG.shell, env)
    assert len(answer.stdout) < 16_000
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8")) | {"gpu.log": answer}
    found = samples.findings(ctx, outputs)["gpu.xid"]
    assert found.outcome is FAIL
    assert "Xid 79 on 0000:3b:00" in found.summary and "Xid 31 on 0000:0b:00" in found.summary


def test_the_script_says_when_dmesg_is_refused(target: Target, tmp_path: Path) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    refused = "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1"
    outputs["gpu.log"] = run(gpu_xid.LOG.shell, stub(tmp_path, dmesg=refused, journalctl="exit 1"))
    assert samples.findings(ctx, outputs)["gpu.xid"].outcome is NOT_RUN
    outputs["gpu.log"] = run(gpu_xid.LOG.shell, stub(tmp_path, dmesg=f"echo '{BOOT}'"))
    assert samples.findings(ctx, outputs)["gpu.xid"].outcome is PASS


def test_codes_since_the_last_verify(target: Target) -> None:
    """Boot was 86400 s before 1800000000, the last verify an hour after it."""
    ctx = samples.context(target, "h100-sxm-8")
    ctx.extra["last_verify"] = "2027-01-14T09:00:00+00:00"
    outputs = samples.answers(ctx, presets.node("head1", "h100-sxm-8"))
    old = xid(79, "0000:19:00")
    new = xid(48).replace("812.1", "9000.1")
    text = {
        "time": "1800000000\n86400.0",
        "dmesg": f"{old}\n{new}",
        "dmesg status": f"0 900\n{BOOT}",
        "journal": "",
        "journal status": "",
    }
    outputs["gpu.log"] = samples.sectioned(text)
    summary = samples.findings(ctx, outputs)["gpu.xid"].summary
    assert "(before the last verify)" in summary.partition("Xid 79")[2].partition(";")[0]
    assert "(since the last verify)" in summary.partition("Xid 48")[2].partition(";")[0]
    outputs["gpu.log"] = samples.sectioned(text | {"time": ""})
    assert "last verify" not in samples.findings(ctx, outputs)["gpu.xid"].summary
