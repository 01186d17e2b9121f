"""The NCCL that engine processes have mapped: the lock's, another, none, a deleted one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackpin.checks import engineprocs, nccl_mapped, probe
from rackpin.checks.base import Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.stack.lock import load_stack
from tests.unit import checks_samples as samples
from tests.unit import serving_samples as serving
from tests.unit.checks_samples import found, good, ok, probe_text


@pytest.fixture
def ctx(target: Target) -> Context:
    """Of a stack whose engine uses NCCL 2.19.3."""
    lock = load_stack("cuda12.2-vllm0.4.2").lock.but(debs_closure={})
    return Context(target.fleet, target.fleet.nodes["head1"], lock)


def judged(ctx: Context, procs: list[dict[str, Any]], unread: int = 0) -> Finding:
    answers = {"nccl.maps": ok(probe_text({"procs": procs, "unread": unread}))}
    return found(ctx, nccl_mapped.CHECK, answers)["nccl.mapped"]


def library(ctx: Context, **changes: Any) -> dict[str, Any]:
    path = nccl_mapped.wanted_path(ctx)
    return {"path": path, "deleted": False, "version": "2.19.3"} | changes


def engine(ctx: Context, *libraries: dict[str, Any]) -> dict[str, Any]:
    return {
        "pid": 930, "unit": "ray-head.service", "comm": "ray::RayWorkerW", "main": False,
        "libraries": list(libraries), "environment": {"LD_LIBRARY_PATH": "/opt/hpcx/lib"},
    }  # fmt: skip


def test_the_lock_says_which_one(ctx: Context) -> None:
    assert engineprocs.engine_nccl(ctx.lock) == ("nvidia-nccl-cu12", "2.19.3")
    assert engineprocs.engine_nccl(load_stack("cpu-lab").lock) is None
    for name in ("cuda13-vllm0.33", "r535-vllm0.19"):
        assert engineprocs.engine_nccl(load_stack(name).lock) is not None
    assert nccl_mapped.wanted_path(ctx).endswith(
        "/python3.10/site-packages/nvidia/nccl/lib/libnccl.so.2"
    )


def test_the_one_of_the_lock_passes(ctx: Context) -> None:
    finding = judged(ctx, [engine(ctx, library(ctx))])
    assert finding.outcome is Outcome.PASS and finding.summary == "NCCL 2.19.3 in 1 processes"
    plugin = library(ctx, path="/opt/hpcx/lib/libnccl-net.so", version=None)
    finding = judged(ctx, [engine(ctx, library(ctx), plugin)])
    assert finding.outcome is Outcome.PASS and "plugins: /opt/hpcx" in finding.summary


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"path": "/usr/lib/x86_64-linux-gnu/libnccl.so.2.18.1"}, "not the one of the lock"),
        ({"version": "2.18.1"}, "NCCL 2.18.1 is in use, locked 2.19.3"),
        ({"deleted": True}, "was replaced under a running process"),
    ],
)
def test_another_one_fails(ctx: Context, changes: dict[str, Any], words: str) -> None:
    finding = judged(ctx, [engine(ctx, library(ctx, **changes))])
    assert finding.outcome is Outcome.FAIL
    assert words in finding.summary and "ray::RayWorkerW[930]" in finding.summary
    assert "LD_LIBRARY_PATH=/opt/hpcx/lib" in finding.evidence.output


def test_a_second_one_beside_the_right_one_fails(ctx: Context) -> None:
    other = library(ctx, path="/opt/hpcx/lib/libnccl.so.2", version="2.18.1", deleted=True)
    summary = judged(ctx, [engine(ctx, library(ctx), other)]).summary
    assert "/opt/hpcx/lib/libnccl.so.2 is in use" in summary
    assert "NCCL 2.18.1" in summary and "was replaced" in summary


def test_an_engine_process_without_any_fails(ctx: Context) -> None:
    finding = judged(ctx, [engine(ctx)])
    assert finding.outcome is Outcome.FAIL and "no NCCL mapped" in finding.summary
    main = engine(ctx) | {"unit": "vllm@two.service", "comm": "python", "main": True}
    finding = judged(ctx, [engine(ctx, library(ctx)), main])  # 0.4.2: rank 0 is the server itself
    assert finding.outcome is Outcome.FAIL and "python[930]" in finding.summary


def test_processes_that_are_no_engines_need_none(ctx: Context) -> None:
    agent = engine(ctx) | {"comm": "ray::DashboardA"}
    helper = engine(ctx) | {"unit": "vllm@two.service", "comm": "python"}
    finding = judged(ctx, [engine(ctx, library(ctx)), agent, helper])
    assert finding.outcome is Outcome.PASS


def test_an_engine_on_cpu_has_none_and_says_so(target: Target) -> None:
    ctx = samples.context(target)
    finding = found(ctx, nccl_mapped.CHECK, good(ctx))["nccl.mapped"]
    assert finding.outcome is Outcome.PASS
    assert finding.summary == "no process maps an NCCL: this stack's engine has none"
    finding = judged(ctx, [engine(ctx, library(ctx, path="/opt/x/libnccl.so.2"))])
    assert finding.outcome is Outcome.FAIL and "the lock has no NCCL" in finding.summary


def test_what_is_not_seen_is_no_pass(ctx: Context) -> None:
    assert judged(ctx, []).outcome is Outcome.NOT_RUN
    assert judged(ctx, [engine(ctx, library(ctx))], unread=1).outcome is Outcome.NOT_RUN
    finding = judged(ctx, [engine(ctx, library(ctx, version=None))])
    assert finding.outcome is Outcome.NOT_RUN and "could not be read" in finding.summary
    for output in (Output(rc=124), Output(rc=1, stderr="Traceback"), ok("RACKPIN_JSON {}")):
        answers = {"nccl.maps": output}
        finding = found(ctx, nccl_mapped.CHECK, answers)["nccl.mapped"]
        assert finding.outcome is Outcome.NOT_RUN


def test_a_node_without_ranks_is_not_asked(target: Target) -> None:
    ctx = samples.context(target, "gate1")
    assert not nccl_mapped.CHECK.commands(ctx) and not nccl_mapped.CHECK.judge(ctx, {})


def test_the_probe_reads_a_real_process_and_a_deleted_file(tmp_path: Path) -> None:
    """A process of this very test maps a file of that name; then the file goes away."""
    file = tmp_path / "libnccl.so.2"
    file.write_bytes(b"\0" * 5000 + b"NCCL version 2.99.1+cuda12.3" + b"\0" * 5000)
    hold = (
        "import mmap,sys,pathlib\n"
        f"f=open({str(file)!r},'rb'); m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n"
        "print('up',flush=True); sys.stdin.read()"
    )
    names: dict[str, Any] = {"__name__": "probe"}
    source = probe.text("nccl_mapped", params={"units": "x"})
    exec(compile(source, "probe", "exec"), names)
    environment = {"LD_LIBRARY_PATH": "/opt/x", "VLLM_API_KEY": "secret"}
    with subprocess.Popen(
        [sys.executable, "-c", hold],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
    ) as holder:  # fmt: skip
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
            proc = Path(f"/proc/{holder.pid}")
            assert names["libraries"](proc, {}) == [
                {"path": str(file), "deleted": False, "version": "2.99.1"}
            ]
            assert names["environment"](proc) == {"LD_LIBRARY_PATH": "/opt/x"}
            assert names["main_of_unit"](proc) is False
            file.unlink()
            (gone,) = names["libraries"](proc, {})
            assert (gone["path"], gone["deleted"]) == (str(file), True)
            assert gone["version"] in ("2.99.1", None)  # only root may read it any more
        finally:
            holder.kill()


def test_the_probe_prints_one_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=probe.text("nccl_mapped", params={"units": r"/(no-such-unit)\.service"}),
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert probe.answer(done.stdout) == {"procs": [], "unread": 0}
    assert json.dumps(serving.nccl_facts())
