"""Marks, records and quarantine: bound to lock and hardware, never lost, never guessed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rackpin.findings import Outcome
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.identity import Card, Identity
from rackpin.fleet.mark import Mark
from rackpin.fleet.state import FleetState, FleetStateError, Quarantine
from rackpin.inventory import Fleet
from rackpin.inventory_problems import InventoryError
from rackpin.stack.lock import Lock
from rackpin.stages import ray, serve

LOCK = "ab" * 32
HERE = Identity(machine_id="aa", driver=True, gpus={"s": Card(uuid="GPU-1", serial="1650")})
SWAPPED = Identity(machine_id="aa", driver=True, gpus={"s": Card(uuid="GPU-2", serial="1651")})


def mark(**changes: object) -> Mark:
    made = Mark(
        node="n", lock=LOCK, state="ready", level="node", at="2026-08-01T10:00:00+00:00",
        run="r1", identity=HERE,
    )  # fmt: skip
    return made.model_copy(update=changes)


def entry(
    owner: str = "ada", serials: list[str] | None = None, since: str = "2026-08-01"
) -> Quarantine:
    return Quarantine(owner="ada", reason="XID 79", since=since, serials=serials or ["1650"])


def test_a_mark_counts_only_for_its_lock_and_its_hardware() -> None:
    assert marks.stale(mark(), LOCK, HERE) == []
    assert "lock" in marks.stale(mark(), "cd" * 32, HERE)[0]
    assert "GPU-1 → GPU-2" in marks.stale(mark(), LOCK, SWAPPED)[0]
    assert marks.stale(None, LOCK, HERE) and marks.stale(mark(), LOCK, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 9}', '{"schema_version": 1}'])
def test_a_mark_that_cannot_be_read_is_none(text: str) -> None:
    assert marks.read(text) is None


def test_a_mark_goes_to_its_node_and_back(tmp_path: Path) -> None:
    command = marks.write(mark())
    shell = command.shell.replace("/var/lib/rackpin", str(tmp_path / "deep"))
    subprocess.run(["sh", "-c", shell], input=command.stdin, text=True, check=True, timeout=10)
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["ready.json"]
    assert marks.read((tmp_path / "deep/ready.json").read_text()) == mark()


def test_what_is_the_same_but_for_its_time_is_the_same() -> None:
    assert mark().same_as(mark(at="2027-01-01", run="r9"))
    assert not mark().same_as(mark(state="not_ready"))


def test_quarantine_is_kept_and_the_past_too(tmp_path: Path) -> None:
    state = FleetState(tmp_path / "f")
    assert state.quarantined() == {}
    state.keep_out("gpu1", entry())
    assert FleetState(tmp_path / "f").quarantined() == {"gpu1": entry()}
    state.let_in("gpu1")
    assert state.quarantined() == {}
    assert state.past() == [("gpu1", "2026-08-01", ["1650"])]
    (line,) = quarantine.repeated(state, {"gpu7": entry(since="2026-09-09")})
    assert "gpu7" in line and "1650" in line and "gpu1" in line
    assert quarantine.repeated(state, {"gpu7": entry(serials=["77"], since="2026-09-09")}) == []


def test_a_list_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, fleet: Fleet) -> None:
    state = FleetState(tmp_path / fleet.config.fleet)
    state.keep_out("worker1", entry())
    (state.directory / "quarantine.json").write_text('{"worker1": ')
    with pytest.raises(FleetStateError, match=r"quarantine\.json"):
        state.quarantined()
    with pytest.raises(FleetStateError):
        state.let_in("worker1")
    with pytest.raises(InventoryError, match=r"quarantine\.json"):
        quarantine.applied(kept_in(fleet, tmp_path))


def test_a_record_remembers_what_a_node_was(tmp_path: Path) -> None:
    state = FleetState(tmp_path)
    assert state.was_ready("n", HERE, LOCK, "r1") == []
    since = state.record("n")
    assert since is not None and since.earlier == []
    assert state.was_ready("n", HERE, LOCK, "r2") == []
    (found, *_) = state.was_ready("n", SWAPPED, LOCK, "r3")
    assert "GPU-2" in str(found)
    record = state.record("n")
    assert record is not None and record.earlier == [HERE] and record.run == "r3"


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FleetStateError, match="file"):
        FleetState(tmp_path / "file" / "f").keep_out("n", entry())


def kept_in(fleet: Fleet, directory: Path) -> Fleet:
    config = fleet.config.model_copy(update={"state_dir": str(directory)})
    return fleet.model_copy(update={"config": config})


def out(fleet: Fleet, directory: Path, name: str) -> Fleet:
    fleet = kept_in(fleet, directory)
    quarantine.state_of(fleet).keep_out(name, entry())
    return quarantine.applied(fleet)


def test_a_quarantined_node_serves_nothing_and_neither_does_an_engine_over_it(
    fleet: Fleet, lock: Lock, tmp_path: Path
) -> None:
    from rackpin.desired import Target

    two = next(i for i in fleet.config.instances if len(i.nodes) > 1)
    name = two.nodes[1]
    found = out(fleet, tmp_path, name)
    node, first = found.nodes[name], found.nodes[two.nodes[0]]
    assert node not in found.ray_nodes and not found.in_ray(node)
    assert ray.desired(Target(found, node, lock)).units == ()
    assert f"vllm@{two.name}.service" not in serve.desired(Target(found, first, lock)).units
    assert found.waiting() == {two.name: [name]}
    (told,) = quarantine.findings(found)
    assert told.outcome is Outcome.WARN and two.name in told.summary and "ada" in told.summary
    # what every other node has of its names and ports stays as it is
    assert found.config.instances == fleet.config.instances and found.nodes == fleet.nodes


def test_the_head_cannot_be_kept_out(fleet: Fleet, tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="head"):
        out(fleet, tmp_path, fleet.head.name)


def test_units_do_not_start_while_the_mark_is_there(fleet: Fleet, lock: Lock) -> None:
    from rackpin.desired import Target

    target = Target(fleet, fleet.head, lock)
    units = [f for f in ray.desired(target).files if f.path.endswith(".service")]
    units += [f for f in serve.desired(target).files if f.path.endswith(".service")]
    assert len(units) >= 2
    for file in units:
        assert f"ConditionPathExists=!{quarantine.MARK}" in file.content
