"""Units, limits, versions: what is installed, what runs, and with which limits."""

from __future__ import annotations

import subprocess

import pytest

from rackpin.checks import limits, procinfo, unitinfo, units
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.inventory import Limits
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, good, ok, replaced


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def state(ctx: Context, unit: str, **changes: str) -> Output:
    """The sample of systemctl show with other properties of one unit."""
    parsed = unitinfo.parse_show(good(ctx)["units.show"].stdout)
    parsed[unit] |= changes
    blocks = ("\n".join(f"{k}={v}" for k, v in block.items()) for block in parsed.values())
    return ok("\n\n".join(blocks) + "\n")


def show(ctx: Context, unit: str, **changes: str) -> dict[str, Finding]:
    return found(ctx, units.CHECK, units_show=state(ctx, unit, **changes))


# -- units -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ActiveState": "failed", "Result": "exit-code"}, "failed (exit-code"),
        ({"ActiveState": "activating", "SubState": "start-post"}, "still starting (start-post)"),
        ({"ActiveState": "inactive"}, "inactive"),
        ({"UnitFileState": "disabled"}, "reboot"),
        ({"UnitFileState": ""}, "not enabled"),
        ({"NeedDaemonReload": "yes"}, "NeedDaemonReload"),
        ({"KillMode": "process"}, "KillMode=process"),
        ({"KillMode": "none"}, "KillMode=none"),
        ({"FragmentPath": "/run/systemd/system/ray-head.service"}, "/run/systemd"),
        ({"FragmentPath": ""}, "nowhere"),
        ({"LoadState": "not-found", "ActiveState": "inactive"}, "not installed"),
    ],
)
def test_a_unit_that_is_not_as_it_should_be_fails(
    ctx: Context, changes: dict[str, str], words: str
) -> None:
    finding = show(ctx, "ray-head.service", **changes)["units.ray-head"]
    assert finding.outcome is Outcome.FAIL
    assert words in finding.summary and finding.remedy


def test_only_the_unit_that_is_wrong_fails(ctx: Context) -> None:
    findings = show(ctx, "ray-head.service", KillMode="process")
    assert findings["units.vllm@two"].outcome is Outcome.PASS


def test_a_failed_unit_shows_its_last_lines_without_the_key(ctx: Context) -> None:
    failed = state(ctx, "vllm@two.service", ActiveState="failed")
    log = ok(
        "## ray-head.service\nOSError: [Errno 98] address already in use\n"
        "## vllm@two.service\nargs: {'api_key': 's3cr3t-value'}\nCUDA error: out of memory\n"
    )
    finding = found(ctx, units.CHECK, units_show=failed, units_journal=log)["units.vllm@two"]
    assert "out of memory" in finding.evidence.output
    assert "address already" not in finding.evidence.output
    assert "s3cr3t-value" not in finding.model_dump_json()


def test_all_faults_of_a_unit_are_listed_at_once(ctx: Context) -> None:
    findings = show(ctx, "vllm@two.service", KillMode="process", UnitFileState="disabled")
    summary = findings["units.vllm@two"].summary
    assert "KillMode" in summary and "disabled" in summary


def test_a_unit_systemctl_is_silent_about_is_not_run(ctx: Context) -> None:
    text = good(ctx)["units.show"].stdout.split("\n\n")[0] + "\n"
    assert found(ctx, units.CHECK, units_show=ok(text))["units.vllm@two"].outcome == "not_run"


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        ("[Service]\nLimitMEMLOCK=8M\n", Outcome.FAIL),
        ("[Service]\nEnvironment=VLLM_HOST_IP=10.0.0.9\n", Outcome.FAIL),
        ("[Service]\nExecStartPre=/bin/true\n", Outcome.FAIL),
        ("[Unit]\nDescription=Edited by hand\n", Outcome.WARN),
        (None, Outcome.FAIL),
    ],
)
def test_a_foreign_drop_in_is_named(ctx: Context, content: str | None, outcome: Outcome) -> None:
    path = "/etc/systemd/system/vllm@two.service.d/override.conf"
    changed = state(ctx, "vllm@two.service", DropInPaths=path)
    texts = ok("" if content is None else f"## {path}\n{content}")
    finding = found(ctx, units.CHECK, units_show=changed, units_dropins=texts)["units.vllm@two"]
    assert finding.outcome is outcome
    assert path in finding.summary


def test_our_own_drop_in_is_none_of_theirs(ctx: Context) -> None:
    own = "/etc/systemd/system/vllm@two.service.d/90-rackpin.conf"
    findings = show(ctx, "vllm@two.service", DropInPaths=own)
    assert findings["units.vllm@two"].outcome is Outcome.PASS


def test_restarts_warn_once_they_are_many(ctx: Context) -> None:
    assert show(ctx, "vllm@two.service", NRestarts="2")["units.vllm@two"].outcome == "pass"
    finding = show(ctx, "vllm@two.service", NRestarts="7")["units.vllm@two"]
    assert finding.outcome is Outcome.WARN and finding.metrics == {"restarts_count": 7}


@pytest.mark.parametrize("limit", ["1min 30s", "29min 59s", "", "soon"])
def test_a_start_limit_too_short_for_the_model_fails(ctx: Context, limit: str) -> None:
    finding = show(ctx, "vllm@two.service", TimeoutStartUSec=limit)
    assert finding["units.vllm@two"].outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30min 30s", 1830), ("infinity", float("inf")), ("1h", 3600), ("0", None), ("500ms", 0.5),
     ("", None), ("1min x", None), ("1w 2d", 777600)],
)  # fmt: skip
def test_timespans(text: str, seconds: float | None) -> None:
    assert unitinfo.timespan(text) == seconds


def test_other_failed_units_only_warn(ctx: Context) -> None:
    line = "logrotate.service loaded failed failed Rotate log files\n"
    own = "● vllm@two.service loaded failed failed vLLM engine two\n"
    finding = found(ctx, units.CHECK, units_failed=ok(f"{line}{own}## end\n"))["units.others"]
    assert finding.outcome is Outcome.WARN
    assert "logrotate" in finding.summary and "vllm" not in finding.summary
    odd = found(ctx, units.CHECK, units_failed=ok("what is this\n## end\n"))["units.others"]
    assert odd.outcome is Outcome.NOT_RUN


# -- limits ----------------------------------------------------------------------------


def survey(ctx: Context, old: str, new: str) -> Output:
    return replaced(good(ctx)["procs"], old, new)


def test_one_process_with_less_fails_and_is_named(ctx: Context) -> None:
    low = survey(
        ctx,
        "1440/limits:Max locked memory         unlimited            unlimited",
        "1440/limits:Max locked memory         8388608              8388608  ",
    )
    findings = found(ctx, limits.CHECK, procs=low)
    assert findings["limits.vllm@two"].outcome is Outcome.FAIL
    assert "VLLM::EngineCor[1440] has memlock 8388608" in findings["limits.vllm@two"].summary
    assert findings["limits.ray-head"].outcome is Outcome.PASS


def test_the_soft_limit_counts(ctx: Context) -> None:
    low = survey(
        ctx,
        "901/limits:Max open files            1048576 ",
        "901/limits:Max open files            1024    ",
    )
    finding = found(ctx, limits.CHECK, procs=low)["limits.ray-head"]
    assert finding.outcome is Outcome.FAIL and "raylet[901] has nofile 1024" in finding.summary


def test_a_clamped_host_passes_by_its_own_figure_and_says_so(ctx: Context) -> None:
    text = good(ctx)["procs"].stdout.replace("unlimited", "8388608").replace("1048576", "20000")
    stated = Limits(observed_memlock_min=8388608, observed_nofile_min=20000)
    honest = samples.with_config(ctx, limits=stated)
    finding = found(honest, limits.CHECK, procs=ok(text))["limits.ray-head"]
    assert finding.outcome is Outcome.PASS
    assert "asked unlimited, has 8388608" in finding.summary
    assert "asked 1048576, has 20000" in finding.summary
    assert found(ctx, limits.CHECK, procs=ok(text))["limits.ray-head"].outcome is Outcome.FAIL
    lower = ok(text.replace("20000", "1024"))
    assert found(honest, limits.CHECK, procs=lower)["limits.ray-head"].outcome is Outcome.FAIL


def test_limits_that_cannot_be_seen_are_not_run(ctx: Context) -> None:
    gone = "\n".join(x for x in good(ctx)["procs"].stdout.splitlines() if "two.service" not in x)
    assert found(ctx, limits.CHECK, procs=ok(gone))["limits.vllm@two"].outcome == "not_run"
    blind = "\n".join(x for x in good(ctx)["procs"].stdout.splitlines() if "locked" not in x)
    assert found(ctx, limits.CHECK, procs=ok(blind))["limits.ray-head"].outcome == "not_run"


@pytest.mark.parametrize(
    ("value", "outcome"),
    [("4915", Outcome.FAIL), ("infinity", Outcome.PASS), ("18446744073709551615", Outcome.PASS),
     ("", Outcome.NOT_RUN), ("many", Outcome.NOT_RUN)],
)  # fmt: skip
def test_tasks(ctx: Context, value: str, outcome: Outcome) -> None:
    changed = state(ctx, "ray-head.service", TasksMax=value)
    assert found(ctx, limits.CHECK, units_show=changed)["limits.ray-head.tasks"].outcome is outcome


def test_the_survey_command_reads_this_machine() -> None:
    """The real command on whatever runs the tests: whole and readable."""
    done = subprocess.run(
        ["sh", "-c", procinfo.COMMAND.shell],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    procinfo.parse(done.stdout)
