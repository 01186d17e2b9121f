"""What ``rackpin roll`` may be asked for, and when it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackpin.cli import main
from rackpin.fleet import quarantine
from rackpin.inventory import ROOT
from rackpin.inventory_open import Opened
from rackpin.roll import act, cli, store
from rackpin.roll.act import Acts, Refused
from rackpin.roll.model import Options
from rackpin.roll.store import keep_lock
from rackpin.stack.lock import STACKS, load_stack
from tests.unit.roll_samples import World, serving_fleet

QUICK = Options(watch_s=5)


@pytest.fixture
def world(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    lock = load_stack("cpu-lab").lock
    made = World(serving_fleet(tmp_path, key_file), lock, kinds={"gw1": "apply"})
    made.seen_lock = lock  # type: ignore[attr-defined]

    def opened(file: str | None, data: Sequence[str] = (), *_: Any, **given: Any) -> Opened:
        made.opened_with = (list(data), given)  # type: ignore[attr-defined]
        return Opened(None, made.raw, made.seen_lock, "inv.py")  # type: ignore[attr-defined]

    monkeypatch.setattr(act, "opened", opened)
    monkeypatch.setattr(act, "SshHands", lambda *_: made)
    monkeypatch.setattr(store, "HOLD_S", 0.1)
    monkeypatch.chdir(ROOT)
    return made


def acts(world: World, yes: bool = True) -> Acts:
    return Acts("inv.py", ["a=1"], [], "ada", world.said.append, lambda _: yes)


def do(world: World, action: str = "begin", hosts: Sequence[str] = ()) -> int:
    return acts(world).do(action, hosts, QUICK)


def refused(world: World, action: str = "begin", hosts: Sequence[str] = ()) -> str:
    with pytest.raises(Refused) as caught:
        do(world, action, hosts)
    return str(caught.value)


def test_a_plan_alone_leaves_no_trace(world: World) -> None:
    assert do(world, "plan") == 0
    with pytest.raises(Refused, match="not begun"):
        acts(world, yes=False).do("begin", (), QUICK)
    assert world.store.last() is None and not (world.state.directory / "locks").exists()


def test_it_keeps_the_lock_that_it_brings(world: World) -> None:
    assert do(world) == 0
    assert world.last.ended == "done" and world.last.plan.data == ["a=1"]
    assert (quarantine.locks_of(world.raw) / world.lock.digest / "cpu-lab" / "pins.yaml").is_file()
    assert do(world) == 0
    assert len(list(world.store.directory.glob("*/plan.json"))) == 1, "nothing to do begins nothing"


def test_problems_bar_it_before_anything_is_begun(world: World) -> None:
    world.kinds["w2"] = "refused"
    text = refused(world)
    assert "w2" in text and "nothing was begun" in text
    assert world.store.last() is None


def test_hosts_of_one_engine_are_named_together(
    tmp_path: Path, key_file: Path, world: World
) -> None:
    world.raw = serving_fleet(tmp_path / "two", key_file, engines=3, over=2)
    world.kinds = {"head1": "apply", "gw1": "apply"}
    world.__post_init__()
    assert "e1 runs over w2 too" in refused(world, hosts=["w1"])
    assert "has no host or group w9" in _open_error(world, ["w9"])
    assert do(world, hosts=["w1", "w2"]) == 0
    assert [u.nodes for u in world.last.plan.units] == [["w1", "w2"]]


def _open_error(world: World, hosts: Sequence[str]) -> str:
    from rackpin.inventory_open import OpenError

    with pytest.raises(OpenError) as caught:
        do(world, hosts=hosts)
    return str(caught.value)


def test_one_at_a_time_and_every_way_on_is_named(world: World) -> None:
    world.bad = {"w2": "not_ready: x"}
    assert do(world) == 1
    assert "--resume" in refused(world)
    assert "paused" in refused(world, "pause")
    assert do(world, "status") == 0
    assert do(world, "abort") == 0
    assert "no roll of this fleet is open" in refused(world, "resume")


def test_resume_wants_the_lock_it_was_begun_with(world: World) -> None:
    world.bad = {"w2": "not_ready: x"}
    assert do(world) == 1
    world.seen_lock = world.lock.but(debs_closure={})  # type: ignore[attr-defined]
    text = refused(world, "resume")
    assert "check out what it was begun with" in text and world.lock.digest[:12] in text
    world.seen_lock = world.lock  # type: ignore[attr-defined]
    nodes = {n: node for n, node in world.raw.nodes.items() if n != "w4"}
    world.raw = world.raw.model_copy(update={"nodes": nodes})
    assert "has w4" in refused(world, "resume")


def test_retry_failed_needs_something_that_failed(world: World) -> None:
    world.moment = lambda what: world.store.ask("pause") if what == "apply w1" else None
    assert do(world) == 3
    assert "failed or was cut short" in refused(world, "retry_failed")
    world.moment = lambda _: None
    assert do(world, "resume") == 0


def test_back_needs_the_lock_before_and_takes_over_what_was_drained(
    world: World, tmp_path: Path
) -> None:
    assert "never rolled" in refused(world, "back")
    world.bad = {"w2": "not_ready: x"}
    assert do(world) == 1
    first = world.last
    assert "is not kept here" in refused(world, "back")
    kept = keep_lock(quarantine.locks_of(world.raw), STACKS / "cpu-lab", "old")
    world.bad = {}
    world.locks = {n: "newer" if lock == "new" else "new" for n, lock in world.locks.items()}
    assert do(world, "back") == 0
    back = world.last
    assert back.plan.back_of == first.plan.roll and back.plan.stacks_dir == str(kept)
    assert "stack=cpu-lab" in back.plan.data
    assert world.store.last() is not None and "taken back by" in act.Roll(first.directory).ended
    assert {n for u in back.plan.units for n in u.nodes} == {"gw1", "head1", "w1", "w2"}
    assert world.state.drained() == {} and world.routed == set(world.engines)
    assert any("still names the newer lock" in line for line in world.said)


def test_a_lock_that_a_stack_still_has_is_found(world: World) -> None:
    other = load_stack("debian12-r535").lock.digest
    world.locks = dict.fromkeys(world.locks, other)
    world.bad = {"w1": "not_ready: x"}
    assert do(world) == 1
    world.bad = {}
    assert "--abort ends the roll" in refused(world, "back"), "they are as wished here"
    world.locks = {n: "newer" if lock == "new" else "new" for n, lock in world.locks.items()}
    assert do(world, "back") == 0
    assert "stack=debian12-r535" in world.last.plan.data


def test_nodes_that_had_several_locks_have_no_one_way_back(world: World) -> None:
    world.locks |= {"w1": "other"}
    world.bad = {"w2": "not_ready: x"}
    assert do(world) == 1
    assert "had not one lock before" in refused(world, "back")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--pause", "--abort"], "are two things"),
        (["--wave", "0"], "a number of units"),
        (["--wave", "200%"], "a number of units"),
        (["--level", "quick"], "'quick' is not one of"),
        (["w1", "--resume"], "HOSTs are named when a roll is begun"),
    ],
)
def test_wrong_usage_is_told(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    file = tmp_path / "inv.py"
    file.write_text("")

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(cli, "leave", leave)
    done = CliRunner().invoke(main, ["roll", "-i", str(file), *words])
    assert done.exit_code == 2 and says in done.output, done.output
