"""Every check of the registry is lied to: none may pass, and no fault may hide another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rackpin.checks import ALL, judge
from rackpin.checks.base import Check, Context, Output
from rackpin.checks.ray_cluster import NAME as RAY
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome, is_ready, worst
from rackpin.lab.hardware import presets
from rackpin.stack.hostpins import DebPin
from tests.unit import (
    checks_samples,
    gateway_samples,
    gpu_samples,
    host_samples,
    lies_gateway,
    lies_gpu,
    lies_host,
    lies_serving,
    model_samples,
    serving_samples,
)
from tests.unit.lies import Lie
from tests.unit.test_checks_gpu_allreduce import run as all_reduce

SKU = "h100-sxm-8"
LIES: dict[str, tuple[Lie, ...]] = (
    lies_host.LIES | lies_gpu.LIES | lies_serving.LIES | lies_gateway.LIES
)
ENTRIES = [(check, lie) for check in ALL for lie in LIES.get(check.id, ())]
# Answers of other tools, and none at all, whatever was asked.
FOREIGN = {
    "an error text with status 0": Output(rc=0, stdout="Failed to connect to bus: Host is down\n"),
    "another tool": Output(rc=0, stdout="Linux head1 6.5.0 #1 SMP x86_64 GNU/Linux\n## end\nend\n"),
    "N/A": Output(rc=0, stdout="## place\nN/A\nN/A|N/A|N/A\nN/A: N/A\nN/A = N/A\n## end\n"),
    "empty": Output(rc=0),
    "half, and more than is kept": Output(rc=0, stdout="## place\n", truncated=True),
}


def node(target: Target, check: Check) -> tuple[Context, dict[str, Output]]:
    """A healthy node that the check concerns, and all that it answers."""
    ctx = checks_samples.context(target)
    if check.commands(ctx):
        loads = {
            "baseline.two": serving_samples.bench_facts(),
            "long_prompts.two": serving_samples.long_facts(),
        }
        texts = {name: checks_samples.probe_text(facts) for name, facts in loads.items()}
        more = {name: checks_samples.ok(text) for name, text in texts.items()}
        return ctx, checks_samples.good(ctx) | more
    if check.id.startswith("gateway"):
        ctx = gateway_samples.context(ctx)
        return ctx, gateway_samples.answers(ctx)
    if check.id == "models":
        ctx = model_samples.context(ctx)
        return ctx, model_samples.answers(ctx)
    ctx = gpu_samples.context(target, SKU)
    host = ctx.lock.host.model_copy(update={"container_toolkit": DebPin(version="1.19.1-1")})
    ctx = replace(ctx, lock=ctx.lock.but(host=host))
    simulated = presets.node("head1", SKU)
    outputs = gpu_samples.answers(ctx, simulated) | host_samples.gpu_answers(simulated)
    if check.id == "gpu.allreduce":
        for library in ("engine", "host"):
            outputs[f"gpu.allreduce.{library}"] = all_reduce(ctx, SKU)
    return ctx, outputs


# What a check asks beside what decides: without it, or with half of it, the judgement stands.
BESIDE = {
    ("clock", "clock.sync"),
    ("units", "units.dropins"),
    ("units", "units.journal"),
    ("versions.running", "units.show"),  # only tells a stopped unit from one without libraries
    ("limits", "units.show"),  # what was cut off came behind TasksMax
    ("apt", "apt.lists"),  # the end of a path
}


def not_passed(findings: list[Finding]) -> str:
    return "; ".join(f.summary for f in findings if f.outcome is not Outcome.PASS)


def test_every_check_is_lied_to_in_two_ways() -> None:
    """A check without a lie, or without two faults at once, has not been doubted enough."""
    lacking = [check.id for check in ALL if len(LIES.get(check.id, ())) < 2]
    assert not lacking, f"write lies for {lacking} into lies_host.py or lies_gpu.py"
    assert not LIES.keys() - {check.id for check in ALL}
    assert all(len(LIES[check.id][-1].named) >= 2 for check in ALL)


@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.id))
def test_the_sample_is_healthy(target: Target, check: Check) -> None:
    """Else a lie would prove nothing."""
    ctx, outputs = node(target, check)
    found = judge(ctx, outputs, [check])
    assert found and not not_passed(found)


@pytest.mark.parametrize(("check", "lie"), ENTRIES, ids=[c.id for c, _ in ENTRIES])
def test_no_lie_passes_and_every_fault_is_named(target: Target, check: Check, lie: Lie) -> None:
    ctx, outputs = node(target, check)
    for asked, change in lie.edits:
        command = RAY if asked == "ray.cluster" else asked
        outputs[command] = replace(outputs[command], stdout=change(outputs[command].stdout))
    found = judge(ctx, outputs, [check])
    said = not_passed(found)
    assert worst(found) is not Outcome.PASS
    assert not [name for name in lie.named if name not in said], said
    assert "the check itself is broken" not in said
    assert all(f.remedy for f in found if f.outcome is not Outcome.PASS)


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.id))
def test_another_answer_is_no_answer(target: Target, check: Check, foreign: str) -> None:
    ctx, outputs = node(target, check)
    asked = {command.name for command in check.commands(ctx)} | {"batch.clock"}
    found = judge(ctx, outputs | dict.fromkeys(asked, FOREIGN[foreign]), [check])
    assert found and not [f.check for f in found if f.outcome is Outcome.PASS]
    assert not is_ready(found), not_passed(found)
    assert "the check itself is broken" not in not_passed(found)


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
@pytest.mark.parametrize("check", ALL, ids=lambda check: str(check.id))
def test_a_cut_answer_is_no_answer(target: Target, check: Check, part: float) -> None:
    """Each command of the check alone, cut as by a tool that died and said nothing."""
    ctx, good = node(target, check)
    for command in check.commands(ctx):
        text = good[command.name].stdout
        cut = replace(good[command.name], stdout=text[: int(len(text) * part)])
        found = judge(ctx, good | {command.name: cut}, [check])
        if (check.id, command.name) not in BESIDE:
            assert worst(found) is not Outcome.PASS, f"{command.name} cut at {part}"


def test_two_faults_of_different_checks_are_both_there(target: Target) -> None:
    """A lost card and a full disk have nothing to do with each other."""
    ctx = gpu_samples.context(target, SKU)
    simulated = presets.node("head1", SKU, ["gpu-missing", "hca-down"])
    outputs = checks_samples.good(ctx) | gpu_samples.answers(ctx, simulated)
    full = checks_samples.replaced(outputs["disk"], "380000000     24%", "3800000     99%")
    checks = [c for c in ALL if "serving" not in c.needs and "idle" not in c.needs]
    found = {f.check: f for f in judge(ctx, outputs | {"disk": full}, checks)}
    bad = {name for name, f in found.items() if f.outcome is Outcome.FAIL}
    assert {"gpu.bus", "gpu.count", "fabric.hcas", "disk"} <= bad


def test_a_healthy_node_of_another_kind_is_no_healthy_node(target: Target) -> None:
    """Every answer is whole and without an error, and the counts are another node's."""
    ctx = gpu_samples.context(target, SKU)
    commands = [c for check in gpu_samples.GPU_CHECKS for c in check.commands(ctx)]
    other = gpu_samples.Fake(presets.node("head1", "a100-pcie-4"))(commands)
    bad = gpu_samples.bad(gpu_samples.findings(ctx, other))
    for name in ("gpu.bus", "gpu.count", "gpu.model", "gpu.pcie", "fabric.nvlink", "fabric.hcas"):
        assert bad.get(name) in (Outcome.FAIL, Outcome.NOT_RUN), name
    assert bad["gpu.count"] is bad["gpu.bus"] is bad["gpu.model"] is Outcome.FAIL
