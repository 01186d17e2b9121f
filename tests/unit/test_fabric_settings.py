"""From a node's /sys to NCCL's settings: servers that there are, and what goes wrong on them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackpin.fabric.fleet import uneven
from rackpin.fabric.gpudirect import gpudirect
from rackpin.fabric.lint import lint
from rackpin.fabric.look import LookError, parse
from rackpin.fabric.model import Fabric, Gid, Gpu, Hca, Near, Port, distance
from rackpin.fabric.select import choose
from rackpin.fabric.settings import derive
from tests.unit import fabric_samples as samples
from tests.unit.fabric_samples import ETH, IB, Tree, h100, roce, storage, switch

NDR = "=mlx5_0,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9,mlx5_10,mlx5_11"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_h100_with_eight_infiniband_ports(tree: Tree) -> None:
    storage(h100(tree), "mlx5_1", ETH, rate=100)
    storage(tree, "mlx5_2", IB, start=0xF4)
    found = tree.look()
    derived = derive(found, "bond0", ["2.19.3"])
    assert derived.values == {"NCCL_IB_HCA": NDR, "NCCL_SOCKET_IFNAME": "=bond0"}
    assert not derived.notes
    assert choose(found).farthest == Near.PIX


def test_a100_with_four_adapters_for_eight_cards(tree: Tree) -> None:
    for i, start in enumerate((0x10, 0x40, 0x80, 0xC0)):
        for card in range(2):
            tree.gpu(samples.below_two(start, card, start + 6 + 4 * card), i // 2)
        tree.hca(f"mlx5_{i}", samples.below_two(start, 2, start + 18), i // 2, rate=200)
    storage(tree, "mlx5_4", IB, rate=200)
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert derived.values["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"
    assert choose(tree.look()).farthest == Near.PXB
    assert "NCCL_NET_GDR_LEVEL" not in derived.values, "PXB is the default"


def test_roce_needs_an_index_of_this_nccl_and_none_of_a_newer(tree: Tree) -> None:
    h100(tree, ETH)
    found = tree.look()
    old = derive(found, "bond0", ["2.19.3", "2.27.5"], traffic_class=104)
    assert old.values == {
        "NCCL_IB_GID_INDEX": "3",
        "NCCL_IB_HCA": NDR,
        "NCCL_IB_TC": "104",
        "NCCL_SOCKET_IFNAME": "=bond0",
    }
    assert not old.notes
    new = derive(found, "bond0", ["2.21.5"])
    assert "NCCL_IB_GID_INDEX" not in new.values
    assert ["roce_traffic_class" in note for note in new.notes] == [True]


def test_roce_with_its_addresses_at_different_indices(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.hca("mlx5_0", switch(0x10, 1, 0x14), layer=ETH, gids=roce(1))
    tree.hca("mlx5_1", switch(0x10, 2, 0x15), layer=ETH, gids=roce(2, first=4))
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert "NCCL_IB_GID_INDEX" not in derived.values
    assert "mlx5_0: 3; mlx5_1: 5" in "\n".join(derived.notes)


def test_roce_without_an_ipv4_address_is_named(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    link_local = {i: g for i, g in roce(1).items() if i < 2}
    tree.hca("mlx5_0", switch(0x10, 1, 0x14), layer=ETH, gids=link_local, traffic_class=106)
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert "NCCL_IB_GID_INDEX" not in derived.values
    assert derived.notes == (
        "mlx5_0 has no RoCE v2 address with IPv4: give its interface an address",
    )
    assert tree.look().hcas[0].ports[0].traffic_class == 106


def test_without_an_adapter_nccl_need_not_look_for_one(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert derived.values == {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "=eth0"}


def test_adapters_that_are_all_down_are_no_reason_to_switch_them_off(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.hca("mlx5_0", switch(0x10, 1, 0x14), up=False)
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert derived.values == {"NCCL_SOCKET_IFNAME": "=eth0"}
    assert "TCP" in derived.notes[-1] and "cable" in derived.notes[0]


def test_infiniband_for_storage_beside_a_roce_fabric(tree: Tree) -> None:
    storage(h100(tree, ETH), "mlx5_1", IB)
    choice = choose(tree.look())
    assert choice.layer == ETH
    assert [rail.hca.name for rail in choice.left] == ["mlx5_1"]
    assert derive(tree.look(), "eth0", ["2.19.3"]).values["NCCL_IB_HCA"] == NDR


def test_renamed_adapters_are_found_by_where_they_are(tree: Tree) -> None:
    h100(tree, name="ibp{}s0")
    value = derive(tree.look(), "eth0", ["2.19.3"]).values["NCCL_IB_HCA"]
    assert value == NDR.replace("mlx5_", "ibp").replace(",", "s0,") + "s0"


def test_a_port_that_is_down_stays_in_the_list_and_is_named(tree: Tree) -> None:
    storage(h100(tree, down=(5,)), "mlx5_2", IB, rate=400)
    derived = derive(tree.look(), "eth0", ["2.19.3"])
    assert derived.values["NCCL_IB_HCA"] == NDR, "its card must not fall to the storage port"
    assert derived.notes == (
        "mlx5_9 port 1 is DOWN/Polling: no link; look at its cable and switch port",
    )


def test_a_port_without_subnet_manager_says_so(tree: Tree) -> None:
    h100(tree)
    tree.put("sys/class/infiniband/mlx5_3/ports/1/state", "2: INIT")
    tree.put("sys/class/infiniband/mlx5_3/ports/1/sm_lid", "0x0")
    assert "no subnet manager answers" in derive(tree.look(), "eth0").notes[0]


def test_the_empty_second_port_of_a_card_is_no_fault(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    path = switch(0x10, 1, 0x14)
    tree.hca("mlx5_0", path)
    tree.hca("mlx5_1", path.replace("14:00.0", "14:00.1"), up=False)
    derived = derive(tree.look(), "eth0")
    assert derived.values["NCCL_IB_HCA"] == "=mlx5_0" and not derived.notes


def test_an_adapter_with_two_ports_is_listed_by_port(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.hca("mlx4_0", switch(0x10, 1, 0x14), rate=100)
    tree.hca("mlx4_0", "", rate=100, number=2)
    assert derive(tree.look(), "eth0").values["NCCL_IB_HCA"] == "=mlx4_0:1,mlx4_0:2"


def at_the_cpu(tree: Tree, numa: int) -> Fabric:
    tree.gpu("pci0000:10/0000:10:01.0/0000:11:00.0", 0)
    tree.hca("mlx5_0", "pci0000:20/0000:20:01.0/0000:21:00.0", numa)
    return tree.look()


def test_the_level_is_raised_only_where_card_and_adapter_meet_at_the_cpu(tree: Tree) -> None:
    found = at_the_cpu(tree, 0)
    way = replace(found, kernel="6.8.0-1-generic", open_modules=True)
    assert derive(way, "eth0").values["NCCL_NET_GDR_LEVEL"] == "PHB"
    assert "NCCL_NET_GDR_LEVEL" not in derive(found, "eth0").values, (
        "no GPUDirect, nothing to limit"
    )


def test_the_level_is_left_where_they_are_on_two_cpus(tree: Tree) -> None:
    found = replace(at_the_cpu(tree, 1), kernel="6.8.0-1-generic", open_modules=True)
    derived = derive(found, "eth0")
    assert "NCCL_NET_GDR_LEVEL" not in derived.values
    assert "0000:11:00.0" in derived.notes[0] and "other CPU" in derived.notes[0]


def test_the_site_wins_and_a_contradiction_is_said(tree: Tree) -> None:
    site = {"NCCL_IB_HCA": "=mlx5_0", "NCCL_IB_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    derived = derive(h100(tree).look(), "eth0", ["2.19.3"], site=site)
    assert derived.values["NCCL_IB_HCA"] == "=mlx5_0"
    assert "OMP_NUM_THREADS" not in derived.values
    assert f"found here: {NDR}" in derived.notes[0] and "unused" in derived.notes[1]


def test_a_node_without_cards_gets_nothing(tree: Tree) -> None:
    storage(tree, "mlx5_0", IB)
    assert not derive(tree.look(), "eth0", site={"NCCL_DEBUG": "INFO"}).settings


def test_virtual_functions_beside_their_adapter_are_left_out(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.hca("mlx5_0", switch(0x10, 1, 0x14))
    tree.hca("mlx5_1", switch(0x10, 1, 0x14).replace("14:00.0", "14:00.2"))
    full = tree.root / "sys/devices" / switch(0x10, 1, 0x14).replace("14:00.0", "14:00.2")
    (full / "physfn").symlink_to("../0000:14:00.0")
    derived = derive(tree.look(), "eth0")
    assert derived.values["NCCL_IB_HCA"] == "=mlx5_0" and "mlx5_1 is a virtual" in derived.notes[0]


def test_software_rdma_is_no_fabric(tree: Tree) -> None:
    tree.gpu(switch(0x10, 0, 0x13))
    tree.put("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE")
    tree.put("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet")
    tree.put("sys/class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)")
    derived = derive(tree.look(), "eth0")
    assert "NCCL_IB_HCA" not in derived.values and "rxe0" in derived.notes[0]


@pytest.mark.parametrize(
    "facts, by",
    [
        ({"open_modules": True, "kernel": "6.8.0-1-generic"}, "dmabuf"),
        ({"open_modules": True, "kernel": "5.4.0-1-generic", "peer_api": True}, "peermem"),
        ({"open_modules": False, "kernel": "6.5.0-45-generic", "peer_api": True}, "peermem"),
        ({"open_modules": False, "kernel": "6.1.0-50-amd64", "peer_api": False}, "none"),
        ({"kernel": "6.8.0-1-generic"}, "unknown"),
    ],
)
def test_the_way_into_a_cards_memory(tree: Tree, facts: dict[str, object], by: str) -> None:
    found = replace(h100(tree).look(), **facts)  # type: ignore[arg-type]
    assert gpudirect(found).by == by


def test_the_pinned_flavour_counts_before_a_driver_is_there(tree: Tree) -> None:
    found = replace(h100(tree).look(), kernel="6.8.0-1-generic")
    assert gpudirect(found, "open").by == "dmabuf"
    assert gpudirect(found, "closed").by == "peermem"


def test_distances_by_the_names_of_nccl() -> None:
    def device(path: str, numa: int | None = 0) -> Gpu:
        return Gpu(path.split("/")[-1], tuple(path.split("/")), numa)

    card = device(switch(0x10, 0, 0x13))
    assert distance(card, device(switch(0x10, 1, 0x14))) == Near.PIX
    assert distance(card, device(samples.below_two(0x10, 1, 0x20))) == Near.PXB
    assert distance(card, device(switch(0x30, 1, 0x34))) == Near.PHB
    assert distance(card, device(switch(0x30, 1, 0x34), numa=1)) == Near.SYS
    unknown = device(switch(0x10, 0, 0x13), None)
    assert distance(unknown, device(switch(0x30, 1, 0x34), None)) == Near.PHB


def test_a_node_with_a_port_less_is_told_from_the_others(tmp_path: Path) -> None:
    whole = choose(h100(Tree(tmp_path / "a")).look())
    less = choose(h100(Tree(tmp_path / "b"), down=(3,)).look())
    alone = choose(Fabric(gpus=(Gpu("0000:01:00.0"),)))
    assert uneven({"gpu1": whole, "gpu2": whole}) == uneven({}) == []
    assert uneven({"gpu1": whole, "gpu2": less, "gpu3": whole, "gpu4": alone}) == [
        "gpu2: fabric: 7 live InfiniBand ports of 400 Gb/s, where most nodes have 8 live "
        "InfiniBand ports of 400 Gb/s",
        "gpu4: fabric: no live port, where most nodes have 8 live InfiniBand ports of 400 Gb/s",
    ]
    assert uneven({"gpu1": less, "gpu2": whole})[0].startswith("gpu1"), "of two, the one with less"


def test_a_cut_answer_is_an_error(tree: Tree) -> None:
    with pytest.raises(LookError, match="cut"):
        parse(["@@ gpus", "@@ hcas"])
    with pytest.raises(LookError, match="can't be read"):
        parse(["@@ gpus", "@@ end"])


def hcas() -> st.SearchStrategy[Hca]:
    """Adapters anywhere, in any state, of either layer."""

    def make(number: int, spot: int, up: bool, ib: bool, rate: int, index: int) -> Hca:
        gid = Gid(index, f"{'0000:' * 5}ffff:0a01:0001", "v2", "eth1")
        layer = IB if ib else ETH
        port = Port(1, "ACTIVE" if up else "DOWN", "LinkUp", rate, layer, 1, () if ib else (gid,))
        path = switch(BRIDGES[spot % 8], 1 + spot % 3, number + 1).split("/")
        return Hca(path[-1], tuple(path), spot % 2, f"mlx5_{number}", ports=(port,))

    return st.builds(
        make,
        st.integers(0, 40),
        st.integers(0, 15),
        st.booleans(),
        st.booleans(),
        st.sampled_from([25, 100, 200, 400]),
        st.integers(0, 5),
    )


BRIDGES = samples.BRIDGES


@settings(max_examples=150, deadline=None)
@given(st.lists(hcas(), max_size=12, unique_by=lambda h: h.name), st.integers(0, 99))
def test_the_same_facts_in_any_order_give_the_same_settings(found: list[Hca], seed: int) -> None:
    cards = [
        Gpu(f"0000:{b:02x}:00.0", tuple(switch(b, 0, b + 3).split("/")), i // 4)
        for i, b in enumerate(BRIDGES)
    ]
    one = derive(Fabric(gpus=tuple(cards), hcas=tuple(found)), "eth0", ["2.19.3"])
    random.Random(seed).shuffle(cards)
    random.Random(seed).shuffle(found)
    other = derive(Fabric(gpus=tuple(cards), hcas=tuple(found)), "eth0", ["2.19.3"])
    assert one == other
    said = [f for f in lint(one.values, ["2.19.3"]) if f.name != "NCCL_IB_DISABLE"]
    assert not said, "what is derived is nothing that would be complained of"
    listed = one.values.get("NCCL_IB_HCA", "=").removeprefix("=").split(",")
    layers = {h.ports[0].layer for h in found if h.name in listed}
    assert len(layers) <= 1, "InfiniBand and RoCE are never mixed"
    up = [h for h in found if h.ports[0].up]
    assert ("NCCL_IB_HCA" in one.values) == bool(up)
    assert ("NCCL_IB_DISABLE" in one.values) == (not found)
