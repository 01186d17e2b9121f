"""Simulated hardware: presets, identities, faults as functions from node to node."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.lab.description import parse
from rackpin.lab.errors import DescriptionError, LabError
from rackpin.lab.hardware import presets
from rackpin.lab.hardware.faults import FAULTS
from rackpin.lab.hardware.smi_topo import near
from tests.unit.hardware_samples import PRESETS, broken, every_case, possible


def test_the_presets_that_were_asked_for() -> None:
    found = {
        name: (node.card.name, len(node.gpus), len(node.nics), node.card_links)
        for name in PRESETS
        for node in [broken(name)]
    }
    assert found == {
        "a100-pcie-4": ("NVIDIA A100 80GB PCIe", 4, 0, 12),
        "a100-sxm-8": ("NVIDIA A100-SXM4-80GB", 8, 4, 12),
        "h100-sxm-8": ("NVIDIA H100 80GB HBM3", 8, 8, 18),
        "l40s-8": ("NVIDIA L40S", 8, 2, 0),
        "rtx4090-2": ("NVIDIA GeForce RTX 4090", 2, 0, 0),
    }


def test_every_fault_can_be_had_somewhere_and_has_a_text() -> None:
    had = {fault for preset in PRESETS for fault in possible(preset)}
    assert had == set(FAULTS)
    assert all(fault.about for fault in FAULTS.values())


@every_case
def test_a_fault_changes_a_node_and_leaves_the_healthy_one(preset: str, fault: str) -> None:
    before = broken(preset).model_dump()
    node = broken(preset, fault)
    assert broken(preset).model_dump() == before
    assert (node.model_dump() == before) == (fault == "")


def test_no_two_cards_of_a_fleet_are_alike_and_a_node_stays_itself() -> None:
    nodes = [broken("h100-sxm-8", name=f"gpu{i:02d}") for i in range(64)]
    gpus = [gpu for node in nodes for gpu in node.gpus]
    nics = [nic for node in nodes for nic in node.nics]
    assert len({gpu.uuid for gpu in gpus}) == len({gpu.serial for gpu in gpus}) == 512
    assert len({nic.guid for nic in nics}) == 512
    assert broken("h100-sxm-8", name="gpu07") == nodes[7]


def test_a_swap_changes_serial_and_uuid_of_that_card_only() -> None:
    old, new = broken("h100-sxm-8").gpus, broken("h100-sxm-8", "gpu-swapped=3").gpus
    assert [i for i in range(8) if old[i].serial != new[i].serial] == [3]
    assert [i for i in range(8) if old[i].uuid != new[i].uuid] == [3]
    assert [gpu.slot for gpu in old] == [gpu.slot for gpu in new]


def test_seven_of_eight_are_counted_again_but_keep_their_minor_numbers() -> None:
    node = broken("a100-sxm-8", "gpu-missing=2")
    assert [gpu.minor for gpu in node.gpus] == [0, 1, 3, 4, 5, 6, 7]
    assert node.absent == ["0000:47:00.0"]


def test_another_order_of_hcas_is_the_same_hardware_under_other_names() -> None:
    old, new = broken("a100-sxm-8"), broken("a100-sxm-8", "hca-order")
    assert {nic.guid for nic in old.nics} == {nic.guid for nic in new.nics}
    assert [nic.device for nic in new.nics] == [nic.device for nic in old.nics]
    assert new.nics[0].guid == old.nics[-1].guid


def test_faults_add_up() -> None:
    node = broken("h100-sxm-8", "hot=0", "hot=1", "ecc-off=1", "hca-down=mlx5_0", "off-bus=2")
    assert [gpu.hot for gpu in node.gpus[:3]] == [True, True, False]
    assert (node.gpus[1].ecc, node.nics[0].state, node.gpus[2].on_bus) == (False, "Down", False)


def test_everything_wrong_with_the_faults_is_said_at_once() -> None:
    with pytest.raises(LabError) as caught:
        broken("rtx4090-2", "hott", "gpu-missing=2", "mig-on", "hang=1", "driver=470.1", "hot")
    said = caught.value.problems
    assert len(said) == 5
    assert "did you mean 'hot'?" in said[0]
    assert said[1] == "rtx4090-2 has no card '2': 0, 1"
    assert said[3] == "fault hang takes no =1"
    assert "535" in said[4] and "590" in said[4]


def test_a_description_refuses_unknown_hardware_with_a_suggestion() -> None:
    text = """
name: x
hosts:
  - { name: a, groups: [head], hardware: h100-smx-8 }
  - { name: b, groups: [head], hardware: rtx4090-2, faults: [hca-down, hot] }
  - { name: c, groups: [head], faults: [hot] }
  - { name: d, groups: [head], hardware: l40s-8, faults: [hot, gpu-missing=7] }
"""
    with pytest.raises(DescriptionError) as caught:
        parse(text, "lab.yaml")
    said = caught.value.problems
    assert [line.split(":")[0] for line in said] == ["hosts.0", "hosts.1", "hosts.2"]
    assert "did you mean 'h100-sxm-8'?" in said[0]
    assert "rtx4090-2 has no HCA" in said[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: other", "Field required"),
        ("[", "not YAML"),
        ("colour: blue", "colour"),
    ],
)
def test_a_wrong_preset_says_where(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(LabError, match=says):
        presets.preset("mine", tmp_path)


def test_how_near_two_slots_are() -> None:
    node = broken("a100-sxm-8")
    gpu = [one.slot for one in node.gpus]
    nic = [one.slot for one in node.nics]
    assert near(gpu[0], nic[0]) == near(gpu[0], gpu[1]) == "PXB"
    assert near(gpu[0], nic[1]) == "NODE"
    assert near(gpu[0], nic[2]) == "SYS"
    assert near(gpu[0], gpu[0]) == "PIX"
