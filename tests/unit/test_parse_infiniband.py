"""The reader of the InfiniBand and RoCE tools: forms without samples, damage, speed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from rackpin.parse.infiniband import read
from rackpin.parse.kinds import NotThisKind
from tests.unit.parse_noise import HARMLESS, agrees, cuts, damaged, garbage, linear, reading

IBSTAT = "".join(
    f"CA 'mlx5_{i}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n"
    f"\tNode GUID: 0xa088c20300e3a50{i}\n\tPort 1:\n\t\tState: {state}\n"
    f"\t\tPhysical state: {physical}\n"
    f"\t\tRate: {rate}\n\t\tBase lid: 1{i}\n\t\tSM lid: 1\n\t\tLink layer: InfiniBand\n"
    for i, (state, physical, rate) in enumerate(
        [("Active", "LinkUp", 400), ("Initializing", "LinkUp", 400), ("Down", "Polling", 10)]
    )
)
STATUS = (
    "Infiniband device 'mlx5_0' port 1 status:\n"
    "\tdefault gid:\t fe80:0000:0000:0000:a088:c203:0e3:a50a\n"
    "\tbase lid:\t 0x6f\n\tsm lid:\t\t 0x1\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
    "\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n\n"
)
DEVINFO = (
    "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t28.39.1002\n"
    "\tnode_guid:\t\t\ta088:c203:00e3:a50a\n\tphys_port_cnt:\t\t\t1\n\tmax_mr_size:\t\t\t0xffffffff\n"
    "\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n"
    "\t\t\tactive_mtu:\t\t1024 (3)\n\t\t\tlink_layer:\t\tEthernet\n\t\t\tactive_width:\t\t4X (2)\n"
    "\t\t\tactive_speed:\t\t100.0 Gbps (128)\n\t\t\tphys_state:\t\tLINK_UP (5)\n"
    "\t\t\tGID[  0]:\t\tfe80::a288:c2ff:fee3:a50a, RoCE v1\n"
    "\t\t\tGID[  1]:\t\tfe80::a288:c2ff:fee3:a50a, RoCE v2\n"
    "\t\t\tGID[  2]:\t\t0000:0000:0000:0000:0000:ffff:0a00:0102, RoCE v1\n"
    "\t\t\tGID[  3]:\t\t::ffff:10.0.1.2, RoCE v2\n"
)
NETDEV = (
    "0000:1a:00.0 mlx5_0 (MT4129 - MCX75310AAS-NEAT) ConnectX-7 NDR fw 28.39.1002 port 1 (ACTIVE)"
    " ==> ibs1 (Up)\n"
    "0000:4d:00.0 mlx5_1 (MT4129 - MCX75310AAS-NEAT) ConnectX-7 NDR fw 28.39.1002 port 1 (DOWN  )"
    " ==> ibs2 (Down)\n"
)
RDMA = (
    "link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13 sm_lid 1 lmc 0 state ACTIVE "
    "physical_state LINK_UP \n"
    "link rocep1s0f0/1 state DOWN physical_state DISABLED netdev ens1f0np0 \n"
)
RDMA_JSON = json.dumps(
    [
        {
            "ifindex": 0,
            "ifname": "mlx5_0",
            "port": 1,
            "state": "ACTIVE",
            "physical_state": "LINK_UP",
        },
        {"ifindex": 1, "ifname": "mlx5_1", "port": 1, "state": "INIT", "netdev": "ibs2"},
    ]
)
GIDS = (
    "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n"
    "---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
    "mlx5_0\t1\t0\tfe80:0000:0000:0000:a288:c2ff:fee3:a50a\t\t\tv1\tens1\n"
    "mlx5_0\t1\t1\tfe80:0000:0000:0000:a288:c2ff:fee3:a50a\t\t\tv2\tens1\n"
    "mlx5_0\t1\t5\t0000:0000:0000:0000:0000:ffff:0a00:0102\t10.0.1.2  \tv2\tens1\nn_gids_found=3\n"
)
SYSFS = "".join(
    f"/sys/class/infiniband/mlx5_0/ports/1/{key}:{value}\n"
    for key, value in {
        "link_layer": "InfiniBand",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "state": "4: ACTIVE",
    }.items()
)
MLXLINK = (
    "\nOperational Info\n----------------\nState                           : Polling\n"
    "Physical state                  : ETH_AN_FSM_ENABLE\nSpeed                           : N/A\n"
    "Width                           : N/A\nFEC                             : N/A\n"
)
FORMS = {
    "ibstat": IBSTAT,
    "ibstatus": STATUS,
    "ibv_devinfo -v": DEVINFO,
    "ibdev2netdev": NETDEV,
    "rdma link": RDMA,
    "show_gids": GIDS,
    "sysfs": SYSFS,
    "mlxlink": MLXLINK,
}


@pytest.mark.parametrize("tool", FORMS)
def test_knows_the_tool(tool: str) -> None:
    assert read(FORMS[tool]).tool == tool and not read(FORMS[tool]).errors


def test_ibstat() -> None:
    said = read(IBSTAT)
    assert [port.up for port in said.ports] == [True, False, False]
    assert [(p.state, p.physical, p.rate_gbps) for p in said.ports][1:] == [
        ("Initializing", "LinkUp", 400),
        ("Down", "Polling", 10),
    ]
    assert said.devices[2].firmware == "28.39.1002" and said.complete
    one = read("CA: 'mlx5_0'\nPort 1:\nState: Active\nPhysical state: LinkUp\nRate: 40 (FDR10)\n")
    assert one.ports[0].rate_gbps == 40


def test_devinfo_tells_rate_and_gid_with_v() -> None:
    said = read(DEVINFO)
    port = said.ports[0]
    assert (port.rate_gbps, port.physical, port.active_mtu, port.gid_index) == (
        400,
        "LINK_UP",
        1024,
        3,
    )
    assert said.right_gid_index == 3 and said.gids[2].ipv4 == "10.0.1.2"
    plain = read(DEVINFO[: DEVINFO.index("\tmax_mr_size")] + DEVINFO[DEVINFO.index("\t\tport:") :])
    assert plain.ports[0].link_layer == "Ethernet"


def test_devinfo_promises_a_port_that_is_cut_off() -> None:
    said = read(DEVINFO[: DEVINFO.index("\t\tport:")])
    assert (said.ports, said.complete, said.devices[0].ports) == ((), False, 1)


def test_ibdev2netdev_verbose_has_the_ports_own_state() -> None:
    said = read(NETDEV)
    assert [(p.state, p.netdev, p.netdev_state, p.up) for p in said.ports] == [
        ("ACTIVE", "ibs1", "Up", True),
        ("DOWN", "ibs2", "Down", False),
    ]
    assert said.devices[0].firmware == "28.39.1002"
    assert read("mlx5_2 port 1 ==>  (Down)\n").ports[0].netdev is None


def test_rdma_link_text_and_json() -> None:
    said = read(RDMA)
    assert [(p.device, p.state, p.physical, p.netdev) for p in said.ports] == [
        ("mlx5_0", "ACTIVE", "LINK_UP", None),
        ("rocep1s0f0", "DOWN", "DISABLED", "ens1f0np0"),
    ]
    old = read("0/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev ens1\n")
    assert old.ports[0].netdev == "ens1"
    ports = read(RDMA_JSON).ports
    assert [(p.state, p.up, p.netdev) for p in ports] == [
        ("ACTIVE", True, None),
        ("INIT", False, "ibs2"),
    ]
    device = read("0: mlx5_0: node_type ca fw 28.39.1002 node_guid a088:c203:00e3:a50a \n")
    assert (device.tool, device.ports, device.devices[0].firmware) == ("rdma dev", (), "28.39.1002")
    both = "".join(f"{i}: mlx5_{i}: node_type ca fw 28.39.1002 \n" for i in range(2))
    assert [one.device for one in read(both).devices] == ["mlx5_0", "mlx5_1"]


def test_gid_table() -> None:
    said = read(GIDS)
    assert (said.right_gid_index, len(said.gids), said.complete) == (5, 3, True)
    assert read(GIDS.replace("found=3", "found=4")).complete is False
    none = read(GIDS.replace("v2", "v1"))
    assert none.right_gid_index is None and none.ports[0].gid_index is None
    empty = read(GIDS.partition("mlx5_0")[0] + "n_gids_found=0\n")
    assert (empty.tool, empty.gids, empty.complete) == ("show_gids", (), True)


def test_other_tools() -> None:
    port = read(SYSFS).ports[0]
    assert (port.state, port.physical, port.rate_gbps, port.up) == ("ACTIVE", "LinkUp", 200, True)
    names = read("    device          \t   node GUID\n    ------          \t----------------\n"
                 "    mlx5_0          \ta088c20300e3a50a\n")  # fmt: skip
    assert (names.tool, names.ports, names.devices[0].device) == ("ibv_devices", (), "mlx5_0")
    polling = read(MLXLINK).ports[0]
    assert (polling.state, polling.rate_gbps, polling.up) == ("Polling", None, None)


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("No IB devices found\n", "ibv_devinfo"),
        ("Failed to get IB devices list: Function not implemented\n", "ibv_devinfo"),
        ("ibpanic: [31] main: can't list IB device names: No such file or directory\n", "ibstat"),
        ('-E- Failed to open device: "mlx5_0". Cannot perform operation\n', "mlxlink"),
    ],
)
def test_what_a_tool_fails_with_is_a_reading(text: str, tool: str) -> None:
    said = read(text)
    assert (said.tool, said.ports) == (tool, ()) and said.errors


def test_a_failure_beside_ports_leaves_the_answer_incomplete() -> None:
    said = read(IBSTAT + "ibpanic: [7] main: stat of IB device 'mlx5_9' failed: No such file\n")
    assert len(said.ports) == 3 and said.complete is False and "mlx5_9" in said.errors[0]


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
@pytest.mark.parametrize("tool", FORMS)
def test_noise_changes_nothing(tool: str, change: object) -> None:
    assert callable(change)
    assert read(change(FORMS[tool])) == read(FORMS[tool])


@pytest.mark.parametrize("tool", FORMS)
def test_a_cut_text_says_nothing_that_the_whole_does_not(tool: str) -> None:
    whole = read(FORMS[tool])
    for cut in cuts(FORMS[tool]):
        if not (part := reading(read, cut)):
            continue
        assert part.tool == whole.tool or (part.tool, tool) == ("ibv_devinfo", "ibv_devinfo -v")
        assert set(part.gids) <= set(whole.gids)
        for mine, theirs in zip(part.ports, whole.ports, strict=False):
            assert agrees(mine, theirs, tuple(vars(mine))), (cut[-40:], mine)


@pytest.mark.parametrize("tool", FORMS)
def test_the_same_text_twice_has_the_same_ports(tool: str) -> None:
    assert read(FORMS[tool] * 2).ports == read(FORMS[tool]).ports


def test_outputs_of_other_tools_beside_it_are_told() -> None:
    said = read(IBSTAT + NETDEV + GIDS)
    assert said.ports == read(IBSTAT).ports
    assert said.notes == ("output of ibdev2netdev is not read", "output of show_gids is not read")


def test_a_port_that_is_given_twice_differently_is_told() -> None:
    said = read(IBSTAT + IBSTAT.replace("Polling", "Disabled"))
    assert len(said.ports) == 3 and "mlx5_2 port 1" in said.notes[0]


@pytest.mark.parametrize(
    "text",
    ["", "bash: ibstat: command not found\n", "State: Active\n", "[]", "link to that/1 is up\n"],
)
def test_other_texts_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(NotThisKind, match=r"\w+"):
        read(text)


@given(damaged(IBSTAT + DEVINFO))
def test_damaged_ports_never_crash(text: str) -> None:
    assert (said := reading(read, text)) is None or said.tool


@given(damaged(GIDS + RDMA + NETDEV + RDMA_JSON))
def test_damaged_tables_never_crash(text: str) -> None:
    assert (said := reading(read, text)) is None or said.tool


@given(garbage)
def test_garbage_never_crashes(text: str) -> None:
    assert (said := reading(read, text)) is None or said.tool


@pytest.mark.parametrize(
    "text", [*FORMS.values(), RDMA_JSON + "\n", "a" * 60 + " port 1 ==> ", "[[", ": "]
)
def test_time_grows_with_the_text(text: str) -> None:
    assert linear(read, text)
