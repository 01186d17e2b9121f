"""A roll from wave to wave: what fails, what a kill leaves, and that no request is ever lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rackpin.fleet.state import Drain
from rackpin.roll import run as runs
from rackpin.roll.run import DONE, FAILED, INTERRUPTED, PAUSED
from rackpin.stack.lock import Lock
from tests.unit.roll_samples import NEW, OLD, Killed, World, serving_fleet

STILL = {"waiting", "failed", "begun"}


@pytest.fixture
def world(tmp_path: Path, key_file: Path, lock: Lock) -> World:
    return World(serving_fleet(tmp_path, key_file), lock, kinds={"gw1": "apply"})


def states(world: World) -> dict[str, str]:
    return {name: one.state for name, one in world.last.progress().items()}


def drained(world: World) -> dict[str, str]:
    return {name: entry.owner for name, entry in world.state.drained().items()}


def whole(world: World) -> None:
    """Everything is new, serves, and gets requests."""
    assert set(states(world).values()) == {"done"}, states(world)
    assert set(world.locks.values()) == {NEW}
    assert not world.down and world.routed == set(world.engines)
    assert world.last.ended == "done" and world.store.open_roll() is None


def test_every_node_gets_it_and_capacity_is_kept(world: World) -> None:
    assert world.run(world.begin()) == DONE
    whole(world)
    assert world.least == 3, "one at a time"
    assert drained(world) == {}
    order = [step for step in world.done if step.startswith(("apply", "stop"))]
    assert order[:5] == ["apply gw1", "stop head1", "apply head1", "stop w1", "apply w1"]
    assert any("4 units" not in line and "done:" in line for line in world.said)


def test_waves_of_two_keep_half(world: World) -> None:
    assert world.run(world.begin(wave=2, canary=0)) == DONE
    assert world.least == 2


def test_a_change_that_interrupts_nothing_drains_and_stops_nothing(world: World) -> None:
    world.kinds = dict.fromkeys(world.raw.nodes, "apply")
    assert world.run(world.begin()) == DONE
    assert not any(step.startswith(("stop", "tell", "wait")) for step in world.done)
    assert set(world.locks.values()) == {NEW}


def test_a_node_that_fails_stops_the_waves_and_resume_finishes(world: World) -> None:
    world.bad = {"w2": "not_ready: limits.raylet: memlock is 64 KiB"}
    assert world.run(world.begin()) == FAILED
    found = states(world)
    assert (found["w1"], found["w2"], found["w3"], found["w4"]) == (
        "done", "failed", "waiting", "waiting",
    )  # fmt: skip
    assert world.locks["w3"] == OLD and world.routed == {"e1", "e3", "e4"}
    text = "\n".join(world.said)
    assert "memlock is 64 KiB" in text and "--resume" in text
    assert "drained for it, and getting no request: e2" in text
    world.bad = {}
    assert world.run(world.last) == DONE
    whole(world)
    assert world.least == 3


def test_retry_failed_does_only_that(world: World) -> None:
    world.bad = {"w2": "not_ready: x"}
    world.run(world.begin())
    world.bad = {}
    assert world.run(world.last, only_failed=True) == PAUSED
    assert states(world)["w2"] == "done" and states(world)["w3"] == "waiting"
    assert world.run(world.last) == DONE
    whole(world)


def test_some_failures_may_be_allowed_but_never_in_the_canary(world: World) -> None:
    world.bad = {"w3": "not_ready: x"}
    assert world.run(world.begin(max_failures=1)) == FAILED
    assert states(world)["w3"] == "failed" and states(world)["w4"] == "done"
    again = World(world.raw, world.lock, kinds=world.kinds, bad={"w1": "not_ready: x"})
    runs.abort(again.last, again, again.state, again.said.append)
    assert again.run(again.begin(max_failures=1)) == FAILED
    assert states(again)["w2"] == "waiting"


def test_an_engine_that_does_not_get_quiet_is_left_as_it_was(world: World) -> None:
    world.busy = {"e1"}
    assert world.run(world.begin()) == FAILED
    assert world.locks["w1"] == OLD and "stop w1" not in world.done
    assert world.routed == set(world.engines) and drained(world) == {}
    assert world.last.behind() == ["w1", "w2", "w3", "w4"]
    assert "3 running" in "\n".join(world.said)
    assert world.run(world.last) == FAILED, "it is as busy as before"
    world.busy = set()
    assert world.run(world.last) == DONE
    whole(world)


def test_busy_engines_are_cut_only_where_that_was_said(world: World) -> None:
    world.busy = {"e1"}
    assert world.run(world.begin(cut=True)) == DONE
    assert any("cut, as was asked" in line for line in world.said)


def test_cards_that_somebody_holds_stop_their_node(world: World) -> None:
    world.stuck = {"w1": "its cards are still held by python3 4711"}
    assert world.run(world.begin()) == FAILED
    assert "apply w1" not in world.done and world.routed == {"e2", "e3", "e4"}
    assert "python3 4711" in world.last.progress()["w1"].why


def test_engines_that_are_down_elsewhere_stop_the_next_wave(world: World) -> None:
    """What serves is asked before each wave, not taken from the plan."""

    def dies(what: str) -> None:
        if what == "apply w1":
            world.dead = {"e3", "e4"}

    world.moment = dies
    assert world.run(world.begin()) == FAILED
    text = "\n".join(world.said)
    assert "m: 1 of 4 would serve, 2 must" in text and "e3 is down: its unit is failed" in text
    assert "stop w2" not in world.done and states(world)["w2"] == "waiting"


def test_a_gateway_that_is_not_told_stops_everything(world: World) -> None:
    world.told_bad = True
    assert world.run(world.begin()) == FAILED
    assert "stop w1" not in world.done
    assert any("not every gateway could be told" in line for line in world.said)
    world.told_bad = False
    assert world.run(world.last) == DONE
    whole(world)


def test_an_engine_that_dies_after_it_was_back_fails_its_unit(world: World) -> None:
    def dies(what: str) -> None:
        if what == "pause" and "apply w2" in world.done:
            world.dead = {"e2"}

    world.moment = dies
    assert world.run(world.begin()) == FAILED
    assert "not well after it was back: e2" in world.last.progress()["w2"].why


def test_a_node_that_changed_since_the_plan_is_not_interrupted_unsaid(world: World) -> None:
    world.kinds["w2"] = "apply"
    roll = world.begin()
    world.kinds["w2"] = "reboot"
    assert world.run(roll) == FAILED
    assert "which the plan did not say" in world.last.progress()["w2"].why
    assert "stop w2" not in world.done


def test_what_a_person_drained_stays_drained(world: World) -> None:
    world.state.drain("e3", Drain(owner="bob", reason="", since="2026-11-30T00:00:00"))
    world.routed.discard("e3")
    assert world.run(world.begin(keep_percent=30)) == DONE
    assert drained(world) == {"e3": "bob"} and world.locks["w3"] == NEW


def test_pause_and_abort_come_after_the_wave(world: World) -> None:
    def ask(what: str) -> None:
        if what == "apply w1":
            world.store.ask("pause")

    world.moment = ask
    assert world.run(world.begin()) == PAUSED
    assert states(world)["w1"] == "done" and states(world)["w2"] == "waiting"
    assert world.store.open_roll() is not None
    world.moment = lambda what: world.store.ask("abort") if what == "apply w2" else None
    assert world.run(world.last) == PAUSED
    assert world.last.ended == "aborted" and world.locks["w3"] == OLD
    assert world.routed == set(world.engines) and drained(world) == {}


def test_abort_gives_back_what_was_only_drained_and_names_the_rest(world: World) -> None:
    def kill(what: str) -> None:
        if what == "wait e1":
            raise Killed

    world.moment = kill
    with pytest.raises(Killed):
        world.run(world.begin())
    world.moment = lambda _: None
    runs.abort(world.last, world, world.state, world.said.append)
    assert drained(world) == {} and world.routed == set(world.engines)
    world.bad = {"w1": "not_ready: x"}
    world.run(world.begin())
    runs.abort(world.last, world, world.state, world.said.append)
    assert list(drained(world)) == ["e1"]
    assert any("e1 stays drained" in line and "--undo" in line for line in world.said)


def test_an_interrupt_says_how_to_go_on(world: World) -> None:
    def interrupt(what: str) -> None:
        if what == "apply w2":
            raise KeyboardInterrupt

    world.moment = interrupt
    assert world.run(world.begin()) == INTERRUPTED
    assert "--resume" in world.said[-1]
    world.moment = lambda _: None
    assert world.run(world.last) == DONE
    whole(world)


def test_a_state_that_cannot_be_written_stops_it_with_its_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rackpin.fleet import jsonlines
    from rackpin.fleet.state import FleetStateError

    roll = world.begin()
    real = jsonlines.append

    def full(path: Path, line: jsonlines.Line) -> None:
        if "apply w2" in world.done:
            raise FleetStateError(f"{path}: can't be written: No space left on device")
        real(path, line)

    monkeypatch.setattr(jsonlines, "append", full)
    assert world.run(roll) == FAILED
    text = "\n".join(world.said)
    assert "No space left" in text and "could not be noted" in text and "--resume" in text
    monkeypatch.setattr(jsonlines, "append", real)
    assert world.run(world.last) == DONE
    whole(world)


@pytest.mark.parametrize("size", [1, 2])
def test_a_kill_at_any_moment_loses_nothing(
    size: int, tmp_path: Path, key_file: Path, lock: Lock
) -> None:
    """Every moment of a roll once: the next call finishes it, and no request was lost."""
    moment = 0
    while True:
        world = World(serving_fleet(tmp_path / str(moment), key_file), lock, kinds={"gw1": "apply"})
        left = [moment]

        def kill(_: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise Killed

        roll = world.begin(wave=size, canary=0)
        world.moment = kill
        try:
            assert world.run(roll) == DONE
        except Killed:
            named = drained(world)
            assert set(named.values()) <= {f"roll {roll.plan.roll}"}
            assert world.run(world.last) == DONE, (moment, world.said)
        whole(world)
        assert drained(world) == {} and world.least >= 4 - size
        if left[0] >= 0:
            break  # it came to its end before the moment
        moment += 1
    assert moment > 40


def test_twenty_kills_of_one_roll(world: World) -> None:
    chance = random.Random(4711)
    roll = world.begin(wave=2)
    kills = 0

    def kill(_: str) -> None:
        nonlocal kills
        if kills < 20 and chance.random() < 0.2:
            kills += 1
            raise Killed

    world.moment = kill
    for _ in range(21):
        try:
            assert world.run(roll) == DONE
            break
        except Killed:
            continue
    whole(world)
    assert kills == 20 and world.least >= 2
