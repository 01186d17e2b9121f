"""Each way of a rebuild: what differs, who may, what holds it up, and where it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackpin.findings import Finding, Outcome
from rackpin.fleet import mark as marks
from rackpin.fleet import quarantine
from rackpin.fleet.identity import Card
from rackpin.fleet.state import Quarantine
from rackpin.inventory import Fleet
from rackpin.rebuild.begin import Refused
from rackpin.rebuild.look import HOSTS, SERIALS, LookError
from rackpin.stack.lock import Lock
from rackpin.verify.idle import HOLDERS
from tests.unit.rebuild_samples import NAME, NEW_KEY, SLOTS, TWO, World, eight

NEW_CARD = Card(model="H100", uuid="GPU-new", vbios="96.00")
MISSING = Finding(
    node=NAME, check="gpu.count", outcome=Outcome.FAIL, summary="7 of 8 GPUs are there",
    expected="8", remedy="reseat the card", source="sku",
)  # fmt: skip


@pytest.fixture
def world(fleet: Fleet, lock: Lock, tmp_path: Path) -> World:
    made = World(fleet, lock, tmp_path)
    made.state.was_ready(NAME, eight(), lock.digest, "r1")
    made.marks[NAME] = made.mark(eight())
    return made


def swapped(world: World) -> None:
    world.now = eight().model_copy(update={"gpus": {**eight().gpus, SLOTS[1]: NEW_CARD}})


def proof(world: World) -> Any:
    (path,) = (world.state.directory / "nodes").glob("*.swap-*.json")
    return json.loads(path.read_text())


def test_one_card_was_swapped(world: World) -> None:
    swapped(world)
    assert world.rebuild().go() == 0
    assert world.deploys == [("rebuild", "-y"), ("site", "-y")]
    assert world.state.quarantined() == {}
    row = next(line for line in world.said.splitlines() if line.startswith("gpu"))
    assert row.split()[:5] == ["gpu", SLOTS[1], "uuid", "GPU-43", "GPU-new"] and "verify" in row
    told = proof(world)
    assert told["old"]["gpus"][SLOTS[1]]["uuid"] == "GPU-43"
    assert told["new"]["gpus"][SLOTS[1]]["uuid"] == "GPU-new"
    assert [d["now"] for d in told["differences"]] == ["GPU-new"] and told["reports"]
    mark = next(stdin for _, _, stdin in world.asked if "quarantined by ada" in stdin)
    assert "rebuild" in mark


def test_gateways_hear_when_it_goes_and_when_it_is_back(world: World) -> None:
    swapped(world)
    assert world.rebuild().go() == 0
    assert world.told == [[NAME], []]
    assert "one get requests again" in world.said
    world.state.keep_out(NAME, Quarantine(owner="ada", reason="rebuild", since="2026-11-30"))
    world.gateway_answers = False
    assert world.rebuild().go() == 1, "it serves, and no client reaches it"
    assert "gate1: timed out" in world.said and "deploys/gateway.py" in world.said


def test_adapters_in_another_order_are_told_as_that(world: World) -> None:
    old = eight().hcas
    swap = {"mlx5_0": old["mlx5_1"], "mlx5_1": old["mlx5_0"]}
    world.now = eight().model_copy(update={"hcas": swap})
    assert world.rebuild().go() == 0
    rows = [line for line in world.said.splitlines() if line.startswith("hca")]
    assert len(rows) == 2 and all("names" in row for row in rows)


def test_seven_of_eight_stays_out_and_goes_on_once_repaired(world: World) -> None:
    gpus = {slot: card for slot, card in eight().gpus.items() if slot != SLOTS[2]}
    pci = {slot: kind for slot, kind in eight().pci.items() if slot != SLOTS[2]}
    world.now = eight().model_copy(update={"gpus": gpus, "pci": pci})
    world.bad = [MISSING]
    assert world.rebuild().go() == 1
    assert world.deploys == [("rebuild", "-y")], "neither Ray nor an engine is started"
    assert NAME in world.state.quarantined()
    assert "7 of 8 GPUs are there" in world.said and "reseat the card" in world.said
    assert f"gpu   {SLOTS[2]}" in world.said or SLOTS[2] in world.said
    world.bad, world.now = [], eight()
    assert world.rebuild().go() == 0
    assert "goes on with the rebuild" in world.said and "gpu.count" in world.said
    assert world.deploys == [("rebuild", "-y"), ("rebuild", "-y"), ("site", "-y")], "built anew"
    assert world.state.quarantined() == {}


def test_a_reinstalled_host_has_no_driver_to_tell_its_cards(world: World) -> None:
    changes = {"machine_id": "bb" * 16, "driver": False, "gpus": {}, "host_keys": [TWO]}
    world.now, world.offered = eight().model_copy(update=changes), NEW_KEY
    world.marks.clear()
    assert world.rebuild(accept=NEW_KEY.fingerprint).go() == 0
    assert "machine-id" in world.said and "host key" in world.said
    assert "can't be told while no driver is loaded" in world.said


@pytest.mark.parametrize("accept", ["", "SHA256:somethingelse"])
def test_a_changed_host_key_is_accepted_only_by_its_fingerprint(world: World, accept: str) -> None:
    world.offered = NEW_KEY
    old = world.known_hosts.read_text()
    with pytest.raises(Refused, match="--accept-host-key " + NEW_KEY.fingerprint[:20]):
        world.rebuild(accept=accept).go()
    assert world.known_hosts.read_text() == old and world.asked == [] and world.deploys == []
    assert NAME in world.state.quarantined()
    assert world.rebuild(accept=NEW_KEY.fingerprint).go() == 0
    assert NEW_KEY.blob in world.known_hosts.read_text()
    assert "goes on" in world.said and "is not accepted" in world.said
    (backup,) = world.tmp.glob("known_hosts.*.old")
    assert backup.read_text() == old and str(backup) in world.said


def test_somebody_elses_quarantine_is_respected(world: World) -> None:
    swapped(world)
    entry = Quarantine(owner="bob", reason="XID 79", since="2026-08-01T00:00:00")
    world.state.keep_out(NAME, entry)
    before = world.files()
    with pytest.raises(Refused, match="bob"):
        world.rebuild().go()
    assert world.files() == before and world.deploys == [] and world.asked == []
    assert world.rebuild(force=True).go() == 0
    assert world.state.quarantined() == {}
    assert world.state.past()[0][:2] == (NAME, "2026-08-01T00:00:00"), "bob's is remembered"


def test_an_own_quarantine_of_before_is_not_lifted(world: World) -> None:
    swapped(world)
    world.state.keep_out(NAME, Quarantine(owner="ada", reason="RMA 4711", since="2026-08-01"))
    assert world.rebuild().go() == 1
    assert world.state.quarantined()[NAME].reason == "RMA 4711"
    assert f"rackpin quarantine {NAME} --lift" in world.said
    world.state.let_in(NAME)
    assert world.rebuild().go() == 0
    assert world.deploys == [("rebuild", "-y"), ("site", "-y")], "what was proved isn't repeated"


@pytest.mark.parametrize("step", ["rebuild", "verify", "pair", "site"])
def test_killed_in_any_step_it_goes_on_there(world: World, step: str) -> None:
    swapped(world)
    world.marks["worker1"] = world.mark(eight())

    def kill(name: str) -> None:
        if name == step:
            raise KeyboardInterrupt

    world.before = kill
    rebuild = world.rebuild()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rackpin.rebuild.run.has_cards", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            rebuild.go()
        word = {"rebuild": "site", "site": "serve"}.get(step, step)
        assert f"at {word} (begun, never ended)" in rebuild.journal.stopped()
        world.before = lambda _: None
        assert world.rebuild().go() == 0
    assert [name for name, *_ in world.deploys] == ["rebuild", "site"], "each step once"
    assert world.judged == ["", "worker1"]
    assert world.state.quarantined() == {} and world.rebuild().journal.open == []


def test_steps_of_before_count_for_this_hardware_only(world: World) -> None:
    """It was proved, then somebody swapped a card again before the second call."""
    swapped(world)
    world.codes["site"] = 1
    assert world.rebuild().go() == 1
    world.codes.clear()
    other = {**world.now.gpus, SLOTS[4]: Card(model="H100", uuid="GPU-second", vbios="96.00")}
    world.now = world.now.model_copy(update={"gpus": other})
    assert world.rebuild().go() == 0
    assert world.deploys == [("rebuild", "-y"), ("site", "-y")] * 2
    assert {d["now"] for d in proof(world)["differences"]} == {"GPU-new", "GPU-second"}


def test_a_node_that_does_not_serve_well_is_kept_out_again(world: World) -> None:
    swapped(world)
    world.codes["site"] = 1
    assert world.rebuild().go() == 1
    assert world.state.quarantined()[NAME].reason == "rebuild"
    assert "stays quarantined" in world.said
    world.codes.clear()
    assert world.rebuild().go() == 0
    assert world.judged == ["", ""], "it is asked again before it may serve"


def test_dry_changes_nothing_anywhere(world: World) -> None:
    swapped(world)
    before = world.files()
    assert world.rebuild().dry() == 0
    assert world.files() == before and world.deploys == [("site", "--dry")]
    reads = {marks.READ.shell, marks.IDENTITY.shell, HOLDERS.shell, SERIALS.shell, HOSTS.shell}
    assert {shell for _, shell, _ in world.asked} == reads
    assert "GPU-new" in world.said and "what others must know" in world.said
    world.offered = NEW_KEY
    assert world.rebuild(accept=NEW_KEY.fingerprint).dry() == 1
    assert world.files() == before and len(world.deploys) == 1


def test_a_node_in_use_is_left_alone_unless_told(world: World) -> None:
    swapped(world)
    units = "unit vllm@one.service\nunit ray-worker.service\n"
    world.holders[NAME] = f"{units}process python3 4711\nend\n"  # the engine's own
    with pytest.raises(Refused, match=r"systemctl stop vllm@one ray-worker"):
        world.rebuild().go()
    assert world.deploys == [] and NAME in world.state.quarantined()
    assert world.rebuild(stop=True).go() == 0
    assert (NAME, "systemctl stop vllm@one ray-worker", "") in world.asked


def test_a_process_that_is_no_unit_is_never_stopped(world: World) -> None:
    world.marks.clear()
    world.holders[NAME] = "process python3 4711\nend\n"
    with pytest.raises(Refused, match="python3 4711"):
        world.rebuild(stop=True).go()
    assert not any("systemctl stop" in shell for _, shell, _ in world.asked)
    world.after_stop = "process python3 4711\nend\n"
    world.holders[NAME] = "unit vllm@one.service\nprocess python3 4711\nend\n"
    with pytest.raises(Refused, match="not free: python3 4711"):
        world.rebuild(stop=True).go()
    assert world.deploys == [], "what is left after the units were stopped is somebody else's"


def test_nothing_to_do(world: World) -> None:
    before = world.files()
    assert world.rebuild().go() == 0
    assert "nothing to do" in world.said and world.files() == before and world.deploys == []
    world.marks[NAME] = world.mark(eight(), lock="cd" * 32)
    assert world.rebuild().go() == 0
    assert world.deploys, "a node that is ready for another lock is not"


def test_cards_that_were_in_quarantine_elsewhere_are_named(world: World) -> None:
    swapped(world)
    entry = Quarantine(owner="bob", reason="XID", since="2026-07-01", serials=["1650099"])
    world.state.keep_out("worker1", entry)
    world.state.let_in("worker1")
    world.serials = f"0000{SLOTS[1].upper()}, 1650099\n"
    assert world.rebuild().go() == 0
    assert "1650099 was quarantined before, in worker1" in world.said


def test_the_head_cannot_be_rebuilt(world: World) -> None:
    rebuild = world.rebuild()
    rebuild.name = "head1"
    with pytest.raises(Refused, match="another node the head"):
        rebuild.go()
    assert quarantine.applied(world.fleet).kept_out == {}


def test_a_node_that_does_not_answer_is_said_and_kept_out(world: World) -> None:
    world.silent = True
    with pytest.raises(LookError, match="timed out"):
        world.rebuild().go()
    assert world.deploys == [] and NAME in world.state.quarantined()


def test_other_nodes_with_the_old_address_are_told_how(world: World) -> None:
    swapped(world)
    moved = world.fleet.nodes[NAME].model_copy(update={"address": "10.9.0.77"})
    rebuild = world.rebuild()
    rebuild.fleet = world.fleet.model_copy(update={"nodes": {**world.fleet.nodes, NAME: moved}})
    assert rebuild.dry() == 0
    assert "head1: has 10.9.0.13 for worker2 in /etc/hosts" in world.said
    assert "deploys/base.py -y --limit head1 --limit worker1 --limit gate1" in world.said
