"""All checks together: a healthy node passes, a silent one never does, nothing raises."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rackpin.checks import ALL, DEFAULT, judge, plan, run_node
from rackpin.checks.base import Command, Context, Output, Outputs, Question, mask
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome, is_ready
from tests.unit import checks_samples as samples

NODES = ("head1", "worker1", "worker2", "gate1")
SILENT = {
    "nothing came": None,
    "deadline": Output(rc=124),
    "killed": Output(rc=137, stdout="half an ans"),
    "missing tool": Output(rc=127, stderr="sh: 1: ss: not found"),
    "empty": Output(rc=0),
    "garbage": Output(rc=0, stdout="\x00\x01#!{]\nLISTEN\n## \n12/x:y\n= =\n"),
    "an error text with status 0": Output(rc=0, stdout="Failed to connect to bus: No such file\n"),
    "cut": Output(rc=0, stdout="## live\n## self\n", truncated=True),
    "refused": Output(rc=1, stderr="Permission denied"),
}


def test_a_healthy_head_passes_everything(target: Target) -> None:
    ctx = samples.context(target)
    findings = judge(ctx, samples.good(ctx))
    bad = [f"{f.check}: {f.outcome} {f.summary}" for f in findings if f.outcome != "pass"]
    assert not bad
    assert is_ready(findings)
    assert {f.check for f in findings} >= {
        "versions.python", "versions.wheels", "versions.current", "versions.running",
        "units.ray-head", "units.vllm@two", "units.others", "limits.ray-head",
        "limits.vllm@two", "limits.vllm@two.tasks", "sysctl.live", "swap.off", "thp", "hosts.self",
        "address.engine", "clock", "disk", "guard.upgrades", "guard.needrestart", "apt.sources",
        "apt.pins", "listeners",
        "secrets.ps", "secrets.files", "ray.cluster", "ray.placement", "collective.all_nodes",
        "smoke.two", "smoke.two.auth", "tp.two", "nccl.mapped",
    }  # fmt: skip


def test_every_check_has_an_id_of_its_own() -> None:
    ids = [check.id for check in ALL]
    assert len(ids) == len(set(ids)) and all(check.title for check in ALL)
    assert {one for one in ids if one.startswith(("gpu.", "fabric."))} == {
        "gpu.count", "gpu.model", "gpu.driver", "gpu.xid", "gpu.ecc", "gpu.rows", "gpu.pcie",
        "gpu.clocks", "gpu.mig", "gpu.persistence", "gpu.vbios", "fabric.manager", "fabric.gpus",
        "fabric.nvlink", "fabric.hcas", "gpu.allreduce",
        "gpu.next_boot", "gpu.holders", "gpu.dcgm", "gpu.pci_payload", "gpu.pci_errors",
        "fabric.counters", "fabric.hca_pcie", "fabric.acs", "fabric.iommu", "fabric.modules",
        "fabric.map",
    }  # fmt: skip


def test_the_samples_answer_exactly_what_is_asked(target: Target) -> None:
    ctx = samples.context(target)
    assert samples.good(ctx).keys() == samples.asked(ctx)


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("silence", SILENT)
def test_silence_is_never_a_pass(target: Target, name: str, silence: str) -> None:
    """Whatever is missing, no finding may pass, and the node may not be ready."""
    ctx = samples.context(target, name)
    answer = SILENT[silence]
    outputs = {} if answer is None else dict.fromkeys(samples.asked(ctx), answer)
    findings = judge(ctx, outputs)
    assert findings
    assert not [f.check for f in findings if f.outcome is Outcome.PASS]
    assert not is_ready(findings)
    assert not [f.summary for f in findings if "the check itself is broken" in f.summary]
    assert all(f.remedy and f.summary for f in findings)


@pytest.mark.parametrize("silence", SILENT)
def test_one_silent_command_spoils_what_depends_on_it(target: Target, silence: str) -> None:
    """Each command alone: the node is not ready without it, unless it only adds to evidence."""
    ctx = samples.context(target)
    for name in samples.asked(ctx) - {"units.journal", "clock.sync", "units.dropins"}:
        outputs = samples.good(ctx)
        answer = SILENT[silence]
        outputs.pop(name)
        if answer is not None:
            outputs[name] = answer
        assert not is_ready(judge(ctx, outputs)), f"ready without {name}"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(stdout=st.text(max_size=300), rc=st.sampled_from([0, 0, 0, 1, 75]))
def test_judges_survive_any_text(target: Target, stdout: str, rc: int) -> None:
    ctx = samples.context(target)
    outputs = dict.fromkeys(samples.asked(ctx), Output(rc=rc, stdout=stdout))
    findings = judge(ctx, outputs)
    assert not [f.summary for f in findings if "the check itself is broken" in f.summary]
    assert not is_ready(findings)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_judges_survive_damaged_answers(target: Target, data: st.DataObject) -> None:
    """Real answers with a part cut out or overwritten, as a broken tool would give them."""
    ctx = samples.context(target)
    outputs = samples.good(ctx)
    name = data.draw(st.sampled_from(sorted(outputs)))
    whole = outputs[name].stdout
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    outputs[name] = samples.ok(whole[:start] + data.draw(st.text(max_size=8)) + whole[end:])
    findings = judge(ctx, outputs)
    assert not [f.summary for f in findings if "the check itself is broken" in f.summary]


class Broken:
    id = "broken"
    title = "A check with a bug"

    def commands(self, ctx: Context) -> Sequence[Command]:
        raise KeyError("no such thing")

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        raise ZeroDivisionError("division by zero")


def test_a_broken_check_is_a_finding_and_not_the_end(target: Target) -> None:
    ctx = samples.context(target)
    findings = run_node(ctx, lambda commands: samples.good(ctx), [Broken(), *DEFAULT])
    broken = [f for f in findings if f.check == "broken"]
    assert [f.outcome for f in broken] == [Outcome.NOT_RUN, Outcome.FAIL]
    assert "ZeroDivisionError" in broken[1].summary
    assert len(findings) == len(judge(ctx, samples.good(ctx))) + len(broken)


def test_a_failing_runner_leaves_every_check_not_run(target: Target) -> None:
    def runner(commands: Sequence[Command]) -> dict[str, Output]:
        raise OSError("Connection reset by peer")

    findings = run_node(samples.context(target), runner)
    assert {f.outcome for f in findings} == {Outcome.NOT_RUN}
    assert all("Connection reset" in f.summary for f in findings if f.check != "clock")


def test_commands_are_shared_and_bounded(target: Target) -> None:
    for name in NODES:
        commands, broken = plan(samples.context(target, name))
        assert not broken
        names = [command.name for command in commands]
        assert len(names) == len(set(names))
        assert all(0 < command.deadline_s <= 50 for command in commands)


def test_two_checks_may_not_mean_different_things_by_one_name(target: Target) -> None:
    class Other:
        id = "other"
        title = ""

        def commands(self, ctx: Context) -> Sequence[Command]:
            return [Command("swap", "swapon --show")]

        def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
            return []

    _, broken = plan(samples.context(target), [*ALL, Other()])
    assert [f.check for f in broken] == ["other"]


def test_a_node_without_engines_is_asked_nothing_of_ray(target: Target) -> None:
    commands, _ = plan(samples.context(target, "gate1"))
    asked = " ".join(c.name for c in commands)
    assert "ray" not in asked and "smoke" not in asked and "secrets" not in asked


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Environment=VLLM_API_KEY=s3cr3t-value", "s3cr3t-value"),
        ("non-default args: {'api_key': ['s3cr3t-value'], 'model': '/m'}", "s3cr3t-value"),
        ("--api-key s3cr3t-value --port 8000", "s3cr3t-value"),
        ("Authorization: Bearer s3cr3t-value", "s3cr3t-value"),
        ("password = hunter22", "hunter22"),
        ("curl -H 'authorization: bearer s3cr3t-value'", "s3cr3t-value"),
        ("key sk-0123456789abcdef0123 in log", "sk-0123456789abcdef0123"),
    ],
)
def test_evidence_shows_no_secret(target: Target, text: str, secret: str) -> None:
    output = Output(rc=1, stdout=text, stderr=text)
    question = Question(samples.context(target), "x", Command("x", text), output)
    finding = question.answer(Outcome.FAIL, text)
    assert secret not in finding.model_dump_json()


def test_words_that_only_sound_secret_stay() -> None:
    text = "first token after 0.152 s, max_tokens 16, tokenizer mode auto, a key is in the journal"
    assert mask(text) == text
