"""all_reduce_perf of one node: only a whole, checked run at the SKU's size and speed passes."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.checks import ALL, DEFAULT, gpu_allreduce
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.answer import answer
from rackpin.skus import load_sku
from tests.unit import checks_samples
from tests.unit import gpu_samples as samples

PASS, FAIL, WARN, NOT_RUN = Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NOT_RUN
CHECK = gpu_allreduce.CHECK
GATED = ["a100-pcie-4", "a100-sxm-8", "h100-sxm-8"]


def run(ctx: Context, sku: str, *faults: str, env: dict[str, str] | None = None) -> Output:
    """What the check's own command prints on the simulated node."""
    command, other = CHECK.commands(ctx)
    assert command.shell.replace("/engine/", "/host/") == other.shell
    node = presets.node("head1", sku, faults)
    found = answer(node, shlex.split(command.shell.rpartition("nccl-tests ")[2]), env)
    return Output(found.code, found.stdout, found.stderr, 20.0)


def judged(ctx: Context, output: Output) -> Finding:
    engine, host = CHECK.judge(ctx, {f"{gpu_allreduce.NAME}.engine": output})
    assert (host.check, host.outcome, host.required) == ("gpu.allreduce.host", NOT_RUN, False)
    return engine


def of(target: Target, *faults: str, sku: str = "h100-sxm-8") -> Finding:
    ctx = samples.context(target, sku)
    return judged(ctx, run(ctx, sku, *faults))


@pytest.mark.parametrize("sku", GATED)
def test_a_healthy_node_reaches_its_figure(target: Target, sku: str) -> None:
    found = of(target, sku=sku)
    gate = load_sku(sku).gate
    assert gate is not None
    assert found.outcome is PASS, found.summary
    assert found.metrics["busbw_gb_s"] >= gate[0].warn_below
    assert found.metrics["busbw_min_gb_s"] == gate[0].fail_below
    assert found.metrics["busbw_expected_gb_s"] == gate[0].expected


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("slow-link", "the least"),
        ("wrong-data", "wrong elements"),
        ("fm-off", "system not yet initialized"),
        ("hot", "the least"),
        ("mig-on", ""),
        ("gpu-missing", ""),
        ("off-bus", ""),
        ("library-mismatch", ""),
    ],
)
def test_faults_fail(target: Target, fault: str, named: str) -> None:
    found = of(target, fault)
    assert found.outcome is FAIL and named in found.summary, found.summary


def test_without_nvls_a_node_is_far_too_slow(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    found = judged(ctx, run(ctx, "h100-sxm-8", env={"NCCL_NVLS_ENABLE": "0"}))
    assert found.outcome is FAIL and "428 the least" in found.summary


def test_slow_and_wrong_are_both_named(target: Target) -> None:
    found = of(target, "slow-link", "wrong-data")
    assert "the least" in found.summary and "wrong elements" in found.summary


@pytest.mark.parametrize(
    ("old", "new", "outcome", "named"),
    [
        ("471.76      0    31865", "440.10      0    31865", WARN, "440.1 GB/s"),
        ("471.76      0    31865", "471.76    N/A    31865", NOT_RUN, "not checked"),
        ("8589934592    2147483648", "4294967296    1073741824", FAIL, "row of 8589934592 bytes"),
        ("# Using devices", "# Reducing maxBytes to 4294967296 due to memory limitation", NOT_RUN,
         "memory allows 4294967296"),
        ("# Out of bounds values : 0 OK\n", "# Out of bounds values : 3 FAILED\n", FAIL, "bounds"),
        ("# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 471.756 \n", "", NOT_RUN, ""),
        ("#  Rank  7 Group  0 Pid   4242 on      head1 device  7 [0xdb] NVIDIA H100 80GB HBM3\n",
         "", FAIL, "over 7 of 8 cards"),
    ],
)  # fmt: skip
def test_lies(target: Target, old: str, new: str, outcome: Outcome, named: str) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    output = samples.altered(run(ctx, "h100-sxm-8"), old, new)
    found = judged(ctx, output)
    assert found.outcome is outcome and named in found.summary, found.summary


def test_a_crash_with_status_0_fails(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    assert judged(ctx, Output(rc=0, stdout="Segmentation fault\n")).outcome is FAIL


def test_both_libraries_are_judged_apart(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    outputs = {
        "gpu.allreduce.engine": run(ctx, "h100-sxm-8", "slow-link"),
        "gpu.allreduce.host": run(ctx, "h100-sxm-8"),
    }
    found = {one.check: one.outcome for one in CHECK.judge(ctx, outputs)}
    assert found == {"gpu.allreduce.engine": FAIL, "gpu.allreduce.host": PASS}


def test_a_build_that_is_missing_is_named_with_the_way_out(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    command = CHECK.commands(ctx)[0]
    done = subprocess.run(["sh", "-c", command.shell], capture_output=True, text=True, timeout=20)
    found = judged(ctx, Output(done.returncode, done.stdout, done.stderr))
    assert found.outcome is NOT_RUN and "engine/all_reduce_perf is not there" in found.summary
    assert "deploys/nccl.py" in found.remedy


def test_cards_too_small_for_the_size_are_not_judged(target: Target) -> None:
    """The other sizes' numbers are good; none of them counts."""
    ctx = samples.context(target, "h100-sxm-8")
    output = run(ctx, "h100-sxm-8")
    lines = [line for line in output.stdout.splitlines() if not line.startswith("  8589934592")]
    lines.insert(-4, "# Reducing maxBytes to 6442450944 due to memory limitation")
    found = judged(ctx, replace(output, stdout="\n".join(lines) + "\n"))
    assert found.outcome is NOT_RUN and "memory allows 6442450944" in found.summary
    assert "size_gib" in found.remedy


def test_a_bad_status_after_a_good_table_fails(target: Target) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    found = judged(ctx, replace(run(ctx, "h100-sxm-8"), rc=3))
    assert found.outcome is FAIL and "status 3" in found.summary


@pytest.mark.parametrize(
    "output",
    [
        Output(rc=124),
        Output(rc=127, stderr="sh: 1: all_reduce_perf: not found"),
        Output(rc=0),
        Output(rc=0, stdout="bash: warning: here-document\n"),
        Output(rc=None),
    ],
)
def test_silence_is_not_run(target: Target, output: Output) -> None:
    found = judged(samples.context(target, "h100-sxm-8"), output)
    assert (found.outcome, found.required) == (NOT_RUN, True) and found.remedy


@pytest.mark.parametrize("sku", ["l40s-8", "rtx4090-2"])
def test_hardware_without_a_figure_is_not_run_with_a_way_out(target: Target, sku: str) -> None:
    ctx = samples.context(target, sku)
    assert not CHECK.commands(ctx)
    (found,) = CHECK.judge(ctx, {})
    assert found.outcome is NOT_RUN and "measure all_reduce_perf" in found.remedy


def test_it_is_asked_of_no_serving_node(target: Target) -> None:
    assert CHECK in ALL and CHECK not in DEFAULT  # it takes the cards
    ctx = checks_samples.context(target)
    assert not CHECK.commands(ctx) and not CHECK.judge(ctx, {})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_cut_run_never_passes(target: Target, data: st.DataObject) -> None:
    ctx = samples.context(target, "h100-sxm-8")
    output = run(ctx, "h100-sxm-8")
    end = data.draw(st.integers(0, output.stdout.index("# Avg bus")))
    found = judged(ctx, replace(output, stdout=output.stdout[:end]))
    assert found.outcome in (FAIL, NOT_RUN)
