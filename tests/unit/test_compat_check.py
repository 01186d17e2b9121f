"""``rackpin check`` on the shipped stacks, on changed ones, and as a command."""

import json
import shutil
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.compat.check import Verdict, check
from rackpin.compat.cli import check_command
from rackpin.compat.facts import facts_of
from rackpin.stack.items import Deb, DebClosure
from rackpin.stack.lock import STACKS, load_stack, stack_names, write_lock
from rackpin.stack.resolve import resolve

DAY = date(2026, 11, 29)
ARTICLES = "cuda12.2-vllm0.4.2"


def rules(verdict: Verdict, level: str) -> set[str]:
    return {note.rule for note in verdict.notes if note.level == level}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the shipped stacks, to be spoiled."""
    shutil.copytree(STACKS, tmp_path / "stacks")
    return tmp_path / "stacks"


def edit(root: Path, name: str, *changes: tuple[str, str]) -> None:
    file = root / name / "pins.yaml"
    text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", stack_names())
def test_shipped_stacks_have_no_errors(name: str) -> None:
    verdict = check(name, on=DAY)
    assert rules(verdict, "error") == set()
    assert verdict.ok and verdict.lock == load_stack(name).lock.digest


def test_what_is_known_of_the_shipped_stacks_is_said() -> None:
    articles = check(ARTICLES, on=DAY)
    assert {"eol.reached", "bad.driver-cve-2025-33221", "kernel.hwe-ended"} <= rules(
        articles, "warning"
    )
    ended = [n.summary for n in articles.notes if n.rule == "eol.reached"]
    assert any("driver-535 ended on 2026-06-30" in text for text in ended)
    newest = check("r535-vllm0.19", on=DAY)
    assert {"engine.cuda-minor", "stack.unproven"} <= rules(newest, "hint")
    assert not rules(check("cuda13-vllm0.33", on=DAY), "warning") - {"lock.unresolved"}
    assert "eol.reached" not in rules(check(ARTICLES, on=date(2026, 1, 1)), "warning")
    assert "eol.soon" in rules(check(ARTICLES, on=date(2026, 1, 1)), "hint")


def test_other_cards_can_be_asked_for() -> None:
    assert "gpu.driver" in rules(check(ARTICLES, on=DAY, gpus=("h200",)), "error")
    assert check("cuda13-vllm0.33", on=DAY, gpus=("b200", "h200")).ok


def test_without_the_override_it_is_refused_even_without_a_lock(root: Path) -> None:
    edit(root, ARTICLES, ("version: 2.19.3, override: true}", "version: 2.19.3}"))
    verdict = check(ARTICLES, root, DAY)
    assert {"nccl.vllm-0-4-2", "torch.nccl", "lock.stale"} <= rules(verdict, "error")
    shutil.rmtree(root / ARTICLES / "lock")
    assert {"nccl.vllm-0-4-2", "lock.unreadable"} <= rules(check(ARTICLES, root, DAY), "error")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (('NCCL_CUMEM_ENABLE: "0"', 'NCCL_CUMEM_ENABLE: "1"'), "nccl.cumem"),
        (("  VLLM_NCCL_SO_PATH: ", "  OTHER_PATH: "), "nccl.so-path"),
        (("  - name: vllm-nccl-cu12", "  - name: something"), "vllm.nccl-download"),
        (("release: 6.5.0-45-generic", "release: 6.8.0-149-generic"), "kernel.drm-unlocked"),
        (("compiler: gcc-12", "compiler: gcc-11"), "kernel.compiler"),
        (("gpus: [a100, h100]", "gpus: [h200]"), "gpu.driver"),
        (("source: nvidia #", "source: ubuntu #"), "driver.ubuntu-transitional"),
        (('ref: "ubuntu:22.04"', 'ref: "nvidia/cuda:13.0.1-base-ubuntu22.04"'), "image.cuda-floor"),
        (('ref: "ubuntu:22.04"', 'ref: "debian:bookworm-slim"'), "image.os"),
        (('cuda: "12.2"}', 'cuda: "13.0"}'), "nccl.host-toolkit"),
        (("torch: {version: 2.3.0}", "torch: {version: 2.2.1}"), "vllm.torch"),
        (("version: 1.19.1-1", "version: 1.14.3-1"), "bad.toolkit-cve-2024-0132"),
    ],
)
def test_a_spoiled_stack_is_refused(root: Path, change: tuple[str, str], rule: str) -> None:
    edit(root, ARTICLES, change)
    assert rule in rules(check(ARTICLES, root, DAY), "error")


def test_locked_debs_are_judged_too(root: Path) -> None:
    stack = load_stack(ARTICLES, root)

    def deb(name: str, version: str) -> Deb:
        return Deb(name=name, version=version, architecture="amd64", filename=f"{name}.deb",
                   sha256="a" * 64, size=1, repository="nvidia")  # fmt: skip

    debs = [
        deb("libnvidia-compute-535", "535.183.01-0ubuntu1"),
        deb("libnvidia-container1", "1.19.1-1"),
        deb("nvidia-driver-535", "535.129.03-0ubuntu1"),
        deb("nvidia-fabricmanager-535", "535.154.05-1"),
    ]
    lock = stack.lock.but(debs_closure={"ubuntu-22.04": DebClosure(debs=debs)})
    facts = facts_of(stack.pins, lock)
    assert facts["fabric_manager"] == ["535.154.05"]
    assert facts["driver.member"] == ["535.129.03", "535.183.01"]
    write_lock(lock, root)
    verdict = check(ARTICLES, root, DAY)
    assert {"driver.fabric-manager", "driver.one-version"} == rules(verdict, "error")


def test_debians_support_packages_are_no_members_of_the_driver() -> None:
    """nvidia-kernel-common 20220217 beside driver 535 is as it should be there."""
    stack = load_stack("debian12-r535")
    closure = stack.lock.debs_closure["debian-12"]
    assert isinstance(closure, DebClosure)
    assert "nvidia-kernel-common" in {deb.name for deb in closure.debs}
    assert facts_of(stack.pins, stack.lock)["driver.member"] == ["535.261.03"]


def test_facts_of_a_cpu_stack() -> None:
    stack = load_stack("cpu-lab")
    facts = facts_of(stack.pins, stack.lock)
    assert facts["os"] == facts["image.os"] == ["debian-12"]
    assert facts["dist.torch"] == ["2.13.0+cpu"]
    assert not {"driver", "cuda", "nccl.engine", "gpu"} & set(facts)


def test_the_command_tells_levels_apart(root: Path) -> None:
    run = CliRunner()
    good = run.invoke(check_command, [ARTICLES, "--on", "2026-11-29", "--stacks", str(root)])
    assert good.exit_code == 0
    assert "0 error(s)" in good.output.splitlines()[-1]
    edit(root, ARTICLES, ("gpus: [a100, h100]", "gpus: [b200]"))
    bad = run.invoke(check_command, [ARTICLES, "--stacks", str(root), "--json"])
    assert bad.exit_code == 1
    data = json.loads(bad.output)
    assert not data["ok"] and data["counts"]["error"] == 2 and data["schema_version"] == 1
    keys = {"level", "rule", "summary", "remedy", "source", "items"}
    assert all(set(note) == keys for note in data["notes"])
    levels = [note["level"] for note in data["notes"]]
    assert levels == sorted(levels, key=("error", "warning", "hint").index)
    assert run.invoke(check_command, ["nothing", "--stacks", str(root)]).exit_code == 2
    edit(root, ARTICLES, ("flavour:", "flavor:"))
    wrong = run.invoke(check_command, [ARTICLES, "--stacks", str(root)])
    assert wrong.exit_code == 2 and "did you mean 'flavour'?" in wrong.output


def test_check_is_quick_and_brings_in_nothing_it_does_not_need() -> None:
    check(ARTICLES, on=DAY)
    start = time.process_time()
    check(ARTICLES, on=DAY)
    assert time.process_time() - start < 0.3
    code = "import sys, rackpin.cli, rackpin.compat.cli; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not {"pyinfra", "gevent", "httpx", "rich", "paramiko"} & set(done.stdout.split())
    assert resolve.__module__ not in done.stdout.split()
