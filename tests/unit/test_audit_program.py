"""The program as it lies on a node: one file, standard library only, honest exit codes."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rackpin.audit import expect, script
from rackpin.audit.document import Document
from rackpin.audit.node import main
from rackpin.audit.node.metrics import last_success, metrics_text, write_metrics
from rackpin.audit.node.sheet import KINDS, Sheet
from rackpin.desired import Target
from rackpin.stages import STAGES


def test_it_is_plain_python_of_the_oldest_node() -> None:
    tree = ast.parse(script.installed(), feature_version=(3, 10))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= sys.stdlib_module_names
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    defined += [
        t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets
        if isinstance(t, ast.Name)
    ]  # fmt: skip
    assert len(defined) == len(set(defined)), "the modules share one namespace"


def run(*options: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-", *options],
        input=text if text is not None else script.installed(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def expected(target: Target, tmp_path: Path) -> Path:
    """What a stage leaves on the node; this machine is no such node."""
    wish = expect.for_node(target)
    environment = wish.environment.model_copy(
        update={"path": str(tmp_path / "env/x"), "current": str(tmp_path / "current")}
    )
    file = tmp_path / "audit.json"
    file.write_text(expect.owned_json(wish.model_copy(update={"environment": environment})))
    return file


def test_it_finds_that_this_machine_is_no_such_node(expected: Path, tmp_path: Path) -> None:
    textfile = tmp_path / "metrics.prom"
    done = run("--expected", str(expected), "--json", "--textfile", str(textfile))
    document = Document.model_validate_json(done.stdout)
    assert done.returncode == document.exit_code and done.returncode in (2, 3)
    target = document.targets[0]
    assert target.counts["env.complete"] == 1 and target.name == "head1"
    assert not target.same
    text = textfile.read_text()
    assert 'rackpin_audit_drift{kind="env.complete"} 1' in text
    assert textfile.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.glob(".*")) == [], "no draft is left"


def test_it_is_readable_without_any_library(expected: Path) -> None:
    done = run("--expected", str(expected), "--all")
    assert re.search(r"^env\.complete +\S+env/x\n +expected an environment; found no", done.stdout,
                     re.MULTILINE)  # fmt: skip
    assert re.search(r"^head1: (drift|could not look), \d+ difference", done.stdout, re.MULTILINE)
    assert re.search(r"^same  ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("content", [None, "", "{}", '{"schema_version": 99}', "\x00"])
def test_without_an_expectation_it_could_not_look(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    if content is not None:
        file.write_text(content)
    done = run("--expected", str(file))
    assert done.returncode == 3
    assert str(file) in done.stderr and "deploys/audit.py" in done.stderr


def test_a_textfile_that_cant_be_written_is_an_error_of_its_own(expected: Path) -> None:
    done = run("--expected", str(expected), "--textfile", "/proc/nowhere/x.prom")
    assert done.returncode == 1 and "/proc/nowhere/x.prom" in done.stderr


def test_a_carried_program_prints_one_line(target: Target) -> None:
    done = run(text=script.carried(expect.for_node(target), deep=False))
    assert done.stdout.count("\n") == 1 and Document.model_validate_json(done.stdout)


def test_an_answer_stays_small_enough_for_one_round_trip(
    target: Target, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = expect.for_node(target).model_dump(mode="json")
    sheet = Sheet()
    for kind in KINDS:
        for number in range(1000):
            sheet.differs(kind, f"/opt/rackpin/env/{number}" * 3, "x" * 80, "y" * 1000)
    for number in range(5000):
        sheet.agrees("deb", f"package-{number}", "1.2.3")
    monkeypatch.setattr(main, "audit", lambda *_: sheet.as_target("head1"))
    assert main.main(["--json", "--all"], wish) == 2
    said = capsys.readouterr().out
    assert len(said) < 256 * 1024 and json.loads(said)["targets"][0]["counts"]["wheel.file"] == 1000


# -- metrics


def target_of(counts: dict[str, int], unseen: list[str]) -> dict[str, Any]:
    return {
        "counts": counts,
        "unseen": [{"area": area, "why": "x"} for area in unseen],
        "seconds": 1.25,
    }


WISH = {"stack": "cpu-lab", "lock": "0a51"}


def test_metrics_name_every_kind(tmp_path: Path) -> None:
    text = metrics_text(target_of({"deb.version": 2}, []), WISH, 1000.0, 0.0)
    for kind in KINDS:
        wanted = 2 if kind == "deb.version" else 0
        assert f'rackpin_audit_drift{{kind="{kind}"}} {wanted}\n' in text
    assert "rackpin_audit_last_success_timestamp_seconds 1000\n" in text
    assert 'rackpin_audit_could_not_look{area="deb"} 0\n' in text
    assert 'rackpin_audit_lock_info{stack="cpu-lab",lock="0a51"} 1\n' in text
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+(\{[^}]*\})? [\d.]+", line), line


def test_the_last_success_outlives_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "a.prom"
    assert last_success(file) == 0
    write_metrics(file, metrics_text(target_of({}, []), WISH, 1000.0, 0.0))
    later = metrics_text(target_of({}, ["unit", "unit"]), WISH, 2000.0, last_success(file))
    write_metrics(file, later)
    assert "rackpin_audit_last_success_timestamp_seconds 1000\n" in file.read_text()
    assert "rackpin_audit_last_run_timestamp_seconds 2000\n" in file.read_text()
    assert 'rackpin_audit_could_not_look{area="unit"} 2\n' in file.read_text()


# -- the stage


def test_the_stage_leaves_program_timer_and_expectation(target: Target) -> None:
    wish = STAGES["audit"](target)
    files = {file.path: file for file in wish.files}
    assert files["/usr/local/lib/rackpin/audit"].content.startswith("#!/usr/bin/python3 -I\n")
    compile(files["/usr/local/lib/rackpin/audit"].content, "audit", "exec")
    assert files["/etc/rackpin/audit.json"].mode == "600", "digests of secrets are in it"
    assert wish.units == ("rackpin-audit.timer",)
    listed = {f["path"] for f in json.loads(files["/etc/rackpin/audit.json"].content)["files"]}
    everything = {f.path for stage in STAGES.values() for f in stage(target).files}
    assert listed == everything - {"/etc/rackpin/audit.json"}


def test_the_expectation_is_the_same_before_and_after_the_survey(target: Target) -> None:
    from dataclasses import replace

    one, two = (STAGES["audit"](replace(target, interface=name)) for name in ("", "eth9"))
    assert one == two


def test_no_secret_is_in_the_expectation(target: Target) -> None:
    assert "sk-test" not in expect.for_node(target).model_dump_json()
    found = {f.path: f for f in expect.for_node(target).files}
    assert found["/etc/rackpin/vllm/two.env"].secret
    assert found["/etc/rackpin/node.env"].content and not found["/etc/rackpin/node.env"].sha256
