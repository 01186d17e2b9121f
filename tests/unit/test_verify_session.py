"""A verify session: what it asks of idle and busy nodes, what a mark remembers, what it becomes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from rackpin.checks import gpu_allreduce
from rackpin.checks.base import Command, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.fleet import mark as marks
from rackpin.fleet.identity import Card, Identity, parse
from rackpin.fleet.mark import Mark
from rackpin.lab.hardware import presets
from rackpin.verify import memory
from rackpin.verify.idle import HOLDERS, busy
from rackpin.verify.session import Session
from tests.unit import checks_samples, gpu_samples

IDENTITY_TEXT = (
    "@@ board\n@@ machine\naa\n@@ driver\nloaded\n@@ gpus\n0000:1b:00.0|H100|GPU-1|96\n"
    "@@ hcas\n@@ nics\n@@ pci\n@@ memory\n1000\n@@ disks\n@@ keys\n@@ end\n"
)
IDLE, SERVES = "end\n", "unit vllm@two.service\nprocess python3 4711\nend\n"
MEASURED = {"gpu.allreduce.engine busbw_gb_s": 471.0}


@dataclass
class Node:
    """Answers like a healthy head1 of the lab; what the session itself asks is given."""

    ctx: Context
    holders: str = IDLE
    mark: str = ""
    identity: str = IDENTITY_TEXT
    broken: tuple[str, ...] = ()
    asked: list[list[str]] = field(default_factory=list)

    def __call__(self, commands: Sequence[Command]) -> dict[str, Output]:
        self.asked.append([command.name for command in commands])
        found = checks_samples.good(self.ctx)
        found[marks.READ.name] = checks_samples.ok(self.mark)
        found[marks.IDENTITY.name] = checks_samples.ok(self.identity)
        found[HOLDERS.name] = checks_samples.ok(self.holders)
        for name in self.broken:
            found[name] = Output(rc=124, seconds=10)
        return found


@pytest.fixture
def head(target: Target) -> Node:
    return Node(checks_samples.context(target))


def session(node: Node, **options: object) -> Session:
    return Session(node.ctx.fleet, node.ctx.lock, **options)  # type: ignore[arg-type]


def made(node: Node, verify: Session) -> Mark:
    found = verify.new_mark(node.ctx.node.name, "r1", "2026-08-01T10:00:00+00:00")
    assert found is not None
    return found


def test_a_healthy_node_gets_a_mark_once(head: Node) -> None:
    verify = session(head)
    findings = verify.node("head1", head)
    assert {f.outcome for f in findings} == {Outcome.PASS}
    assert len(head.asked) == 1, "everything in one remote execution"
    mark = made(head, verify)
    assert (mark.state, mark.level, mark.lock) == ("ready", "node", head.ctx.lock.digest)
    assert mark.identity == parse(IDENTITY_TEXT.splitlines())
    head.mark = mark.model_dump_json()
    verify.node("head1", head)
    assert verify.new_mark("head1", "r2", "2027-01-01") is None


def test_before_it_serves_nothing_is_asked_of_ray_or_engines(head: Node) -> None:
    gate = session(head, serving=False)
    findings = gate.node("head1", head)
    groups = {f.check.split(".")[0] for f in findings}
    assert not groups & {"ray", "smoke", "collective", "units", "limits"}
    assert groups >= {"versions", "sysctl", "hosts", "disk"}
    assert made(head, gate).state == "admitted"


def test_quick_asks_neither_generation_nor_collective(head: Node) -> None:
    session(head, level="quick").node("head1", head)
    assert not {"smoke.two", "ray"} & set(head.asked[0])


def test_read_only_gives_engines_no_work(head: Node) -> None:
    session(head, loads=False).node("head1", head)
    assert not any(name.startswith(("smoke", "ray")) for name in head.asked[0])


def test_a_failure_is_in_the_mark_and_a_lower_level_keeps_the_higher(head: Node) -> None:
    head.mark = Mark(
        node="head1", lock=head.ctx.lock.digest, state="ready", level="pair", at="x", run="r0",
        measured=MEASURED, identity=parse(IDENTITY_TEXT.splitlines()),
    ).model_dump_json()  # fmt: skip
    head.broken = ("disk",)
    verify = session(head)
    verify.node("head1", head)
    mark = made(head, verify)
    assert (mark.state, mark.level, mark.why) == ("not_ready", "pair", ["disk"])
    assert mark.measured == MEASURED


def test_a_quick_look_does_not_mend_what_a_longer_one_found(head: Node) -> None:
    head.mark = Mark(
        node="head1", lock=head.ctx.lock.digest, state="not_ready", level="node", at="x", run="r0",
        why=["disk", "smoke.two"], identity=parse(IDENTITY_TEXT.splitlines()),
    ).model_dump_json()  # fmt: skip
    verify = session(head, level="quick")
    verify.node("head1", head)
    mark = made(head, verify)
    assert (mark.state, mark.why) == ("not_ready", ["smoke.two"]), "disk was asked again"
    head.mark = ""
    verify.node("head1", head)
    assert made(head, verify).state == "admitted", "no engine was asked"
    head.mark = mark.model_dump_json()
    verify = session(head)
    verify.node("head1", head)
    assert made(head, verify).state == "ready"


def test_what_was_measured_on_other_hardware_is_forgotten(head: Node) -> None:
    other = Identity(machine_id="aa", driver=True, gpus={"0000:1b:00.0": Card(uuid="GPU-9")})
    head.mark = Mark(
        node="head1", lock=head.ctx.lock.digest, state="ready", level="pair", at="x", run="r0",
        measured=MEASURED, identity=other,
    ).model_dump_json()  # fmt: skip
    verify = session(head)
    verify.node("head1", head)
    mark = made(head, verify)
    assert (mark.level, mark.measured) == ("node", {})


def test_no_answer_is_no_mark_and_no_pass(head: Node) -> None:
    def silent(commands: Sequence[Command]) -> dict[str, Output]:
        raise OSError("connection lost")

    verify = session(head)
    findings = verify.node("head1", silent)
    assert findings and {f.outcome for f in findings} == {Outcome.NOT_RUN}
    assert all("connection lost" in f.summary for f in findings if "disk" in f.check)
    assert verify.new_mark("head1", "r", "x") is None


@pytest.mark.parametrize("text", ["", "@@ board\n", "garbage"])
def test_hardware_that_cannot_be_read_gives_no_mark(head: Node, text: str) -> None:
    head.identity = text
    verify = session(head)
    verify.node("head1", head)
    assert verify.new_mark("head1", "r", "x") is None


def test_who_uses_the_cards() -> None:
    def told(text: str, rc: int = 0) -> list[str]:
        return busy(Output(rc=rc, stdout=text))

    assert told("process nvidia-persiste 812\nprocess nv-fabricmanage 900\nend\n") == []
    assert told(SERVES) == ["vllm@two", "python3 4711"]
    assert told("unit ray-worker.service\nend\n") == ["ray-worker"]
    assert told("") and told("unit") and told(IDLE, rc=124), "not told is taken for used"


@pytest.fixture
def gpu(target: Target) -> Context:
    return gpu_samples.context(target, "h100-sxm-8")


def remembered(ctx: Context, mark: Mark | None) -> Finding:
    asked = memory.Asked(mark=mark, busy=["vllm@two"], answered=True, identity=Identity())
    (found,) = memory.remembered(ctx, gpu_allreduce.CHECK, asked)
    return found


def test_a_busy_node_is_not_disturbed(gpu: Context) -> None:
    mark = Mark(
        node="head1", lock=gpu.lock.digest, state="ready", level="node", at="2026-08-01T10:00",
        run="r", measured=MEASURED,
    )  # fmt: skip
    good = remembered(gpu, mark)
    assert good.outcome is Outcome.PASS and good.metrics == {"busbw_gb_s": 471.0}
    assert "2026-08-01" in good.summary and "vllm@two" in good.summary
    unknown = remembered(gpu, None)
    assert unknown.outcome is Outcome.NOT_RUN and not unknown.required and unknown.remedy
    other = mark.model_copy(update={"lock": "00"})
    assert remembered(gpu, other).outcome is Outcome.NOT_RUN
    bad = mark.model_copy(update={"state": "not_ready", "why": ["gpu.allreduce.engine"]})
    assert remembered(gpu, bad).outcome is Outcome.FAIL, "a slow node stays slow while it serves"


def test_serial_numbers_come_from_the_driver(target: Target, gpu: Context) -> None:
    nodes = {**gpu.fleet.nodes, "head1": gpu.node}
    ctx = replace(gpu, fleet=gpu.fleet.model_copy(update={"nodes": nodes}))
    simulated = presets.node("head1", "h100-sxm-8")
    first = simulated.gpus[0].slot.bus
    text = IDENTITY_TEXT.replace("0000:1b:00.0|", f"{first}|")

    class Cards(Node):
        def __call__(self, commands: Sequence[Command]) -> dict[str, Output]:
            return super().__call__(commands) | gpu_samples.answers(self.ctx, simulated)

    node = Cards(ctx, holders=SERVES, identity=text)
    verify = Session(ctx.fleet, ctx.lock)
    verify.node("head1", node)
    identity = verify.nodes["head1"].identity
    assert identity is not None and identity.gpus[first].serial.isdigit()


def test_an_idle_node_is_measured(target: Target, gpu: Context) -> None:
    nodes = {**gpu.fleet.nodes, "head1": gpu.node}
    ctx = replace(gpu, fleet=gpu.fleet.model_copy(update={"nodes": nodes}))
    for holders, runs in ((IDLE, 2), (SERVES, 1)):
        node = Node(ctx, holders=holders)
        verify = Session(ctx.fleet, ctx.lock)
        findings = verify.node("head1", node)
        assert len(node.asked) == runs
        names = {f.check for f in findings if f.check.startswith("gpu.allreduce")}
        assert names, json.dumps(sorted(f.check for f in findings))
