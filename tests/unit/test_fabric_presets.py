"""The lab's simulated servers as /sys shows them, looked at by the survey's own script."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.fabric.kernel import acs_on, boot_notes
from rackpin.fabric.model import Fabric, Near, distance
from rackpin.fabric.names import notes as name_notes
from rackpin.fabric.names import table
from rackpin.fabric.settings import derive
from rackpin.lab.hardware import pci, presets
from rackpin.lab.hardware.smi_topo import matrix
from rackpin.lab.hardware.sysfs import files
from rackpin.lab.hardware.tree import write
from rackpin.parse.topo import read
from tests.unit.fabric_samples import Tree


def look(root: Path, preset: str, *faults: str) -> Fabric:
    """What the script finds on such a server."""
    for name, content in files(presets.node("gpu001", preset, faults)).items():
        write(root / "sys" / name, content)
    return Tree(root).look()


@pytest.mark.parametrize("name", presets.names())
def test_the_list_is_the_nearest_of_topo(name: str, tmp_path: Path) -> None:
    node = presets.node("gpu001", name)
    fabric = look(tmp_path, name)
    assert [gpu.slot for gpu in fabric.gpus] == sorted(gpu.slot.bus for gpu in node.gpus)
    values = derive(fabric, "eth0", ["2.19.3"]).values
    if not node.nics:
        assert values == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"}
        return
    listed = set(values["NCCL_IB_HCA"].removeprefix("=").split(","))
    topo = read(matrix(node).text())
    device = {nic.name: nic.device for nic in topo.nics}
    nearest = [(c.link, {device[nic] for nic in c.nics}) for c in topo.closest_nics]
    assert nearest
    assert all(nics <= listed for _, nics in nearest)
    # NCCL counts host bridges of one CPU as equally far, topo tells PHB and NODE apart.
    if all(link in ("PIX", "PXB") for link, _ in nearest):
        assert listed == set.union(*(nics for _, nics in nearest))


@pytest.mark.parametrize("name", presets.names())
def test_no_two_devices_or_ports_have_one_address(name: str) -> None:
    paths = pci.chains(presets.preset(name))
    parents = [(one, chain[i - 1]) for chain in paths.values() for i, one in enumerate(chain) if i]
    slots = [one for one, _ in set(parents)]
    assert len(slots) == len(set(slots)), "each has one parent"
    assert set(paths) == {chain[-1] for chain in paths.values()}


def test_cards_and_adapters_on_one_switch_are_nearer_than_the_next(tmp_path: Path) -> None:
    fabric = look(tmp_path, "h100-sxm-8")
    near = [[distance(gpu, hca) for hca in fabric.hcas] for gpu in fabric.gpus]
    assert [row.index(Near.PIX) for row in near] == list(range(8))
    assert near[0] == [Near.PIX, *[Near.PHB] * 3, *[Near.SYS] * 4]


@pytest.mark.parametrize(
    ("fault", "listed"),
    [
        ("", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        ("hca-down=mlx5_2", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),  # until it is back, NCCL passes it
        ("hca-missing=mlx5_2", "=mlx5_0,mlx5_1,mlx5_3"),
        ("hca-renamed=mlx5_2", "=ibp139s0,mlx5_0,mlx5_1,mlx5_3"),
        ("hca-ethernet=mlx5_2", "=mlx5_0,mlx5_1,mlx5_3"),  # never mixed
        ("hca-firmware=mlx5_2", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        ("hca-order", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        ("gpu-missing=2", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
    ],
)
def test_what_a_fault_makes_of_the_list(fault: str, listed: str, tmp_path: Path) -> None:
    fabric = look(tmp_path, "a100-sxm-8", *filter(None, [fault]))
    derived = derive(fabric, "eth0", ["2.19.3"])
    assert derived.values["NCCL_IB_HCA"] == listed
    said = " ".join(derived.notes)
    assert ("mlx5_2 port 1 is DOWN/Polling" in said) == (fault == "hca-down=mlx5_2")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("hca-renamed=mlx5_2", "ibp139s0 at 0000:8b:00.0 should be mlx5_2"),
        ("hca-missing=mlx5_2", "mlx5_2 at 0000:8b:00.0 is gone"),
        ("hca-order", "mlx5_3 at 0000:0b:00.0 should be mlx5_0"),
    ],
)
def test_names_that_were_pinned_stay(fault: str, says: str, tmp_path: Path) -> None:
    before = table(look(tmp_path / "before", "a100-sxm-8"))
    after = look(tmp_path / "after", "a100-sxm-8", fault)
    pinned = Fabric(gpus=after.gpus, hcas=after.hcas, names=before)
    assert table(pinned) == before
    assert any(says in note for note in name_notes(pinned))


def test_acs_and_iommu_are_seen_where_they_are_on(tmp_path: Path) -> None:
    fabric = look(tmp_path / "healthy", "h100-sxm-8")
    assert acs_on(fabric) == [] and len(fabric.bridges) == 32
    assert all(bridge.seen for bridge in fabric.bridges)
    assert {gpu.iommu for gpu in fabric.gpus} == {"identity"}
    assert {hca.relaxed_ordering for hca in fabric.hcas} == {True}
    broken = look(tmp_path / "broken", "h100-sxm-8", "acs-on", "iommu-on")
    # of each switch the root port and its two downstream ports; an upstream port has no ACS
    assert len(acs_on(broken)) == 24
    assert any("the IOMMU translates for cards" in note for note in boot_notes(broken))


@pytest.mark.parametrize("name", presets.names())
def test_a_server_whose_board_has_no_power_has_no_card(name: str, tmp_path: Path) -> None:
    fabric = look(tmp_path, name, "no-cards")
    assert fabric.gpus == ()
    assert len(fabric.hcas) == len(presets.node("x", name).nics)
