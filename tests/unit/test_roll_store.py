"""The run state of a roll: whole whatever ends the writer, one writer, seen by every command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackpin import runlog
from rackpin.checks import ray_cluster
from rackpin.checks.base import Context, Question
from rackpin.findings import Outcome
from rackpin.fleet import quarantine
from rackpin.fleet.state import FleetStateError
from rackpin.inventory import ROOT
from rackpin.inventory_problems import InventoryError
from rackpin.roll import store
from rackpin.roll.store import FileStore, Held, Roll, keep_lock
from rackpin.stack.lock import STACKS, Lock, load_stack
from tests.unit.roll_samples import World, serving_fleet

HOLDER = """
import sys, time
from pathlib import Path
from rackpin.roll.store import FileStore
with FileStore(Path(sys.argv[1])).hold():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def world(tmp_path: Path, key_file: Path, lock: Lock) -> World:
    return World(serving_fleet(tmp_path, key_file), lock, kinds={"gw1": "apply"})


def test_events_cut_at_any_byte_are_read_up_to_the_cut(world: World) -> None:
    roll = world.begin()
    roll.note("begun", units=["w1"])
    roll.note("failed", units=["w1"], why="“außer” Plan")
    data = roll.path.read_bytes()
    first = data.index(b"\n") + 1
    for size in range(len(data) + 1):
        roll.path.write_bytes(data[:size])
        events = Roll(roll.directory).events
        assert len(events) == (0 if size < first else 1 if size < len(data) else 2), size
    roll.path.write_bytes(data[:-3])
    again = Roll(roll.directory)
    again.note("done", units=["w1"])
    assert [e["event"] for e in Roll(roll.directory).events] == ["begun", "done"]


def test_a_line_in_the_middle_that_is_none_is_told_with_its_number(world: World) -> None:
    roll = world.begin()
    roll.note("begun", units=["w1"])
    roll.path.write_text("{}\n" + roll.path.read_text())
    with pytest.raises(FleetStateError, match=r"events\.jsonl:1: is no event of a roll"):
        Roll(roll.directory)
    (roll.directory / "plan.json").write_text("{")
    with pytest.raises(FleetStateError, match=r"plan\.json: can't be read"):
        world.store.last()


def test_a_plan_that_was_not_written_whole_is_no_roll(world: World) -> None:
    directory = world.store.directory / "20300101T000000.000Z"
    directory.mkdir(parents=True)
    (directory / ".plan.json.1.draft").write_text("{")
    assert world.store.last() is None


def test_one_writer_and_who_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "HOLD_S", 0.1)
    assert world.store.writer() == ""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(world.store.directory)],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        assert f"(pid {process.pid}) for 0 min" in world.store.writer()
        with pytest.raises(Held, match=f"pid {process.pid}"), world.store.hold():
            pass
        process.kill()
        process.wait(10)
        assert world.store.writer() == "", "what a kill leaves holds nobody up"
        with world.store.hold():
            assert f"pid {os.getpid()}" in FileStore(world.store.directory).writer()
    finally:
        process.kill()


def test_a_run_of_site_py_is_refused_while_somebody_rolls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = ["inventories/prod.py", "deploys/site.py", "-y"]
    roll = world.begin()
    runlog.not_into_a_roll(world.fleet(), site)  # it stopped: nobody has the fleet
    with world.store.hold():
        with pytest.raises(InventoryError, match="--pause"):
            runlog.not_into_a_roll(world.fleet(), site)
        runlog.not_into_a_roll(world.fleet(), [*site, "--dry"])
        runlog.not_into_a_roll(world.fleet(), ["inventories/prod.py", "deploys/verify.py"])
        monkeypatch.setenv(FileStore.OWN, roll.plan.roll)
        runlog.not_into_a_roll(world.fleet(), site)  # the roll's own
        monkeypatch.setenv(FileStore.OWN, "another")
        with pytest.raises(InventoryError):
            runlog.not_into_a_roll(world.fleet(), site)


def test_every_command_sees_an_open_roll(world: World) -> None:
    roll = world.begin()
    roll.note("begun", units=["w1"], step="")
    roll.note("step", units=["w1"], step="apply")
    fleet = world.fleet()
    assert list(fleet.behind) == ["head1", "gw1", "w2", "w3", "w4"]
    (finding,) = [f for f in quarantine.findings(fleet) if f.check == "roll"]
    assert finding.outcome is Outcome.WARN and "--resume" in finding.remedy
    assert "w[2-4]" in finding.summary
    roll.note("end", how="aborted")
    assert world.fleet().behind == {}


def test_ray_is_not_missing_nodes_that_the_roll_did_not_come_to(world: World) -> None:
    """An older Ray can't join; one that did is no stranger either."""
    roll = world.begin()
    roll.note("step", units=["head1", "w1"], step="apply")
    fleet = world.fleet()
    ctx = Context(fleet, fleet.nodes["head1"], world.lock)
    assert [n.name for n in fleet.ray_nodes] == ["head1", "w1"]

    def judged(*names: str) -> str:
        nodes = [
            {"address": fleet.nodes[n].address, "alive": True,
             "resources": {"GPU": float(fleet.ray_gpus(fleet.nodes[n]))}}
            for n in names
        ]  # fmt: skip
        question = Question(
            ctx, "ray.cluster", ray_cluster.command(ctx), ray_cluster.NO_ANSWER, "", ""
        )
        return str(ray_cluster.judge_members(question, {"nodes": nodes}).outcome)

    assert judged("head1", "w1") == judged("head1", "w1", "w2") == "pass"
    assert judged("head1") == judged("head1", "w2") == "fail"


def test_a_kept_lock_is_the_whole_stack_and_kept_once(tmp_path: Path) -> None:
    lock = load_stack("cpu-lab").lock
    kept = keep_lock(tmp_path, STACKS / "cpu-lab", lock.digest)
    assert load_stack("cpu-lab", kept).lock == lock
    (kept / "cpu-lab" / "pins.yaml").write_text("changed: by hand")
    assert keep_lock(tmp_path, STACKS / "cpu-lab", lock.digest) == kept
    assert (kept / "cpu-lab" / "pins.yaml").read_text() == "changed: by hand"
    assert [p.name for p in tmp_path.iterdir()] == [lock.digest], "no draft is left"


def test_a_request_that_cannot_be_read_is_one_to_stop(world: World) -> None:
    assert world.store.asked() == ""
    world.store.directory.mkdir(parents=True, exist_ok=True)
    for word, wish in (("pause", "pause"), ("abort", "abort")):
        world.store.ask(word)
        assert world.store.asked() == wish == world.store.asked(take=True)
        assert world.store.asked() == ""
    (world.store.directory / "request.json").write_text("{")
    assert world.store.asked(take=True) == "pause"


def test_its_files_are_json_that_a_person_reads(world: World) -> None:
    roll = world.begin()
    plan = json.loads((roll.directory / "plan.json").read_text())
    assert plan["schema_version"] == 1 and plan["owner"] == "ada"
    assert (roll.directory / "plan.json").read_text().count("\n") > 50
