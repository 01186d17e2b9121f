"""Which nodes go together, in which waves, and when a roll may not begin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rackpin.fleet.state import Drain
from rackpin.inventory import ROOT
from rackpin.roll.model import Kind
from rackpin.stack.lock import Lock
from tests.unit.roll_samples import NEW, World, serving_fleet


@pytest.fixture
def world(tmp_path: Path, key_file: Path, lock: Lock) -> World:
    return World(serving_fleet(tmp_path, key_file), lock, kinds={"gw1": "apply"})


def shown(world: World, **options: object) -> list[tuple[str, list[str]]]:
    plan, problems = world.plan(**options)
    assert problems == []
    return [(wave.role, wave.units) for wave in plan.waves]


def test_gateways_then_the_head_then_a_canary_then_waves(world: World) -> None:
    assert shown(world) == [
        ("gateway", ["gw1"]), ("head", ["head1"]), ("canary", ["w1"]),
        ("wave", ["w2"]), ("wave", ["w3"]), ("wave", ["w4"]),
    ]  # fmt: skip
    assert shown(world, wave=2, canary=0)[2:] == [("wave", ["w1", "w2"]), ("wave", ["w3", "w4"])]


def test_no_wave_takes_more_than_may_be_away(world: World) -> None:
    waves = shown(world, wave=4, canary=0, keep_percent=75)
    assert waves[2:] == [("wave", ["w1"]), ("wave", ["w2"]), ("wave", ["w3"]), ("wave", ["w4"])]
    assert [len(u) for _, u in shown(world, wave=4, canary=0, keep_percent=0)[2:]] == [4]
    weighted = [i.model_copy(update={"weight": 3 if i.name == "e1" else 1})
                for i in world.raw.config.instances]  # fmt: skip
    config = world.raw.config.model_copy(update={"instances": weighted})
    world.raw = world.raw.model_copy(update={"config": config})
    assert shown(world, wave=4, canary=0)[2:] == [("wave", ["w1"]), ("wave", ["w2", "w3", "w4"])]


def test_nodes_of_an_engine_are_one_unit(tmp_path: Path, key_file: Path, lock: Lock) -> None:
    world = World(serving_fleet(tmp_path, key_file, engines=3, over=2), lock)
    world.kinds = dict.fromkeys(world.raw.nodes, "apply")
    plan, _ = world.plan()
    assert [u.nodes for u in plan.units if u.engines] == [["w1", "w2"], ["w3", "w4"], ["w5", "w6"]]
    # A head that is stopped takes every engine over Ray with it: they are one unit.
    world.kinds = {}
    plan, problems = world.plan(keep_percent=0)
    assert problems == []
    (unit,) = [u for u in plan.units if u.engines]
    assert unit.head and unit.nodes == ["head1", "w1", "w2", "w3", "w4", "w5", "w6"]
    _, problems = world.plan()
    assert "m: 0 of 3 would serve, 2 must" in problems[0].message


def test_nodes_that_have_it_already_are_left_alone(world: World) -> None:
    world.locks |= dict.fromkeys(("gw1", "head1", "w2"), NEW)
    assert [units for _, units in shown(world)] == [["w1"], ["w3"], ["w4"]]
    world.locks = dict.fromkeys(world.locks, NEW)
    assert shown(world) == []
    assert len(shown(world, restart=True)) == 6


@pytest.mark.parametrize("kind", ["refused", "unseen"])
def test_a_node_that_may_not_be_changed_bars_the_roll(world: World, kind: Kind) -> None:
    world.kinds["w3"] = kind
    _, problems = world.plan()
    assert [(p.node, p.key) for p in problems] == [("w3", kind)]


def test_the_last_engine_of_a_name_is_not_taken(tmp_path: Path, key_file: Path, lock: Lock) -> None:
    world = World(serving_fleet(tmp_path, key_file, engines=1), lock)
    _, problems = world.plan()
    assert ["0 of 1 would serve, 1 must" in p.message for p in problems] == [True]
    assert world.plan(keep_percent=0)[1] == []


def test_a_drained_engine_is_no_capacity(world: World) -> None:
    for name in ("e1", "e2", "e3"):
        world.state.drain(name, Drain(owner="bob", reason="", since="2026-11-30T00:00:00"))
    plan, problems = world.plan()
    assert plan.capacity["m"].total == 1
    assert [p.node for p in problems] == ["w4"], "the others may be changed, this one serves alone"


def test_without_a_gateway_nobody_is_stopped_unsaid(world: World) -> None:
    nodes = {name: node for name, node in world.raw.nodes.items() if name != "gw1"}
    world.raw = world.raw.model_copy(update={"nodes": nodes})
    _, problems = world.plan()
    assert [p.key for p in problems] == ["gateway"] and "--cut" in problems[0].remedy
    assert world.plan(cut=True)[1] == []


def test_a_quarantined_node_is_left_out_and_said(world: World) -> None:
    from rackpin.fleet.state import Quarantine

    entry = Quarantine(owner="bob", reason="XID 79", since="2026-11-30T00:00:00")
    world.state.keep_out("w2", entry)
    plan, problems = world.plan()
    assert problems == [] and "XID 79" in plan.left_out["w2"]
    assert "w2" not in [name for unit in plan.units for name in unit.nodes]
    assert plan.capacity["m"].total == 3


def test_a_thousand_nodes(tmp_path: Path) -> None:
    """Planned and written within 5 s and 300 MB; in a process of its own, as a peak is one's."""
    script = [sys.executable, "-m", "tests.unit.roll_thousand", str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=110)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["nodes"], found["begun"], found["problems"]) == (1002, 1002, 0), found
    assert "service" in found["kinds"]
    assert found["seconds"] < 5 and found["peak_mb"] < 300, found
