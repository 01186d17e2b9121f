"""From model to text and back by the readers: every preset, every fault."""

from __future__ import annotations

from typing import Any

import pytest

from rackpin.lab.hardware.answer import answer
from rackpin.lab.hardware.model import Node
from rackpin.lab.hardware.parts import Hangs
from rackpin.lab.hardware.values import bus_id
from rackpin.parse.kinds import reader
from tests.unit.hardware_samples import CASES, NEW, PRESETS, broken, every_case


def read(kind: str, node: Node, call: str) -> Any:
    return reader(kind)(answer(node, call.split()).stdout)


def silent(node: Node) -> str:
    """Why nvidia-smi gives no data on this node, in the reader's word; empty when it does."""
    if node.driver is None:
        return "absent"
    if not node.loaded:
        return "driver-not-loaded"
    if node.library:
        return "library-mismatch"
    if not node.gpus:
        return "no-devices"
    kinds = {"lost": "gpu-lost", "unknown": "nvml-unknown"}
    return next((kinds[gpu.handle] for gpu in node.gpus if gpu.handle), "")


@pytest.mark.parametrize(
    ("preset", "fault", "driver"),
    [*((*case, "") for case in CASES), *((preset, "", NEW) for preset in PRESETS)],
)
def test_nvidia_smi(preset: str, fault: str, driver: str) -> None:
    node = broken(preset, fault, driver)
    if node.hang:
        with pytest.raises(Hangs):
            answer(node, ["nvidia-smi"])
        return
    why = silent(node)
    if why == "absent":
        assert answer(node, ["nvidia-smi"]).code == 127
        return
    fields = "name,pci.bus_id,uuid,serial,driver_version,memory.total,mig.mode.current"
    calls = ("", "-q", "-q -x", "-L", f"--query-gpu={fields} --format=csv")
    for call in calls:
        found = read("nvidia-smi", node, f"nvidia-smi {call}")
        if why:
            assert (found.form, found.error) == ("error", why), call
            continue
        assert found.error is None, call
        assert [gpu.name for gpu in found.gpus] == [node.card.name] * len(node.gpus), call
        if call != "-L":
            assert found.driver == node.driver, call
            wanted = [bus_id(gpu.slot.bus) for gpu in node.gpus]
            assert [gpu.bus_id for gpu in found.gpus] == wanted, call
            assert {gpu.memory_total for gpu in found.gpus} == {node.card.memory}, call
            mig = [gpu.mig if node.card.mig else None for gpu in node.gpus]
            assert [gpu.mig for gpu in found.gpus] == mig, call
        if call:
            assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in node.gpus], call
        if call.startswith("-q"):
            _details(node, found)


def _details(node: Node, found: Any) -> None:
    """What only -q and its XML say."""
    assert found.cuda == node.cuda
    assert [gpu.ecc for gpu in found.gpus] == [gpu.ecc for gpu in node.gpus]
    pending = [gpu.remap_pending for gpu in node.gpus]
    assert [gpu.row_remap_pending for gpu in found.gpus] == pending
    assert [gpu.temperature > 90 for gpu in found.gpus] == [gpu.hot for gpu in node.gpus]
    serials = [gpu.serial if node.card.serial else None for gpu in node.gpus]
    assert [gpu.serial for gpu in found.gpus] == serials
    fabric = {"running": "Completed", "off": "In Progress", "mismatch": "In Progress"}
    state = fabric.get(node.fabric) if node.card.architecture == "Hopper" else None
    assert {gpu.fabric_state for gpu in found.gpus} == {state}


@every_case
def test_topology_and_nvlink(preset: str, fault: str) -> None:
    node = broken(preset, fault)
    if node.hang or silent(node):
        return
    count = len(node.gpus)
    topo = read("topo", node, "nvidia-smi topo -m")
    assert (topo.gpus, topo.complete) == (count, True)
    groups = node.preset.nvlink.groups if node.preset.nvlink else []
    minors = [gpu.minor for gpu in node.gpus]
    wanted = [[minors.index(one) for one in group if one in minors] for group in groups]
    assert [list(group) for group in topo.nvlink_groups] == [one for one in wanted if one[1:]]
    assert sum(topo.link_counts.values()) == count * (count - 1) // 2
    assert [nic.device for nic in topo.nics] == [nic.device for nic in node.nics]
    assert list(topo.cpu_affinity) == [node.preset.cpus[gpu.slot.numa] for gpu in node.gpus]
    status = read("nvlink", node, "nvidia-smi nvlink -s")
    for gpu, seen in zip(node.gpus, status.gpus, strict=True):
        if node.card_links and not gpu.mig:
            down = len(gpu.links_down)
            assert (seen.active, seen.inactive) == (node.card_links - down, down)
        else:
            assert not seen.active
    peers = read("nvlink", node, "nvidia-smi topo -p2p r")
    assert len(peers.matrix) == count


def test_links_between_cards_and_their_nics() -> None:
    topo = read("topo", broken("h100-sxm-8"), "nvidia-smi topo -m")
    assert topo.link_counts == {"NV18": 28}
    nearest = [(near.link, *near.nics) for near in topo.closest_nics]
    assert nearest == [("PXB", f"NIC{i}") for i in range(8)]
    pairs = read("topo", broken("a100-pcie-4"), "nvidia-smi topo -m")
    assert pairs.link_counts == {"NV12": 2, "SYS": 4}
    hidden = read("topo", broken("a100-pcie-4"), "nvidia-smi topo -mp")
    assert hidden.link_counts == {"PXB": 2, "SYS": 4}
    assert read("topo", broken("rtx4090-2"), "nvidia-smi topo -m").link_counts == {"NODE": 1}


@every_case
def test_infiniband(preset: str, fault: str) -> None:
    node = broken(preset, fault)
    if not node.nics:
        assert answer(node, ["ibstat"]).code == 127
        return
    for call in ("ibstat", "ibstatus", "ibv_devinfo", "rdma link", "ibdev2netdev"):
        found = read("infiniband", node, call)
        assert [port.device for port in found.ports] == [nic.device for nic in node.nics], call
        assert [port.up for port in found.ports] == [nic.state == "Active" for nic in node.nics]
    found = read("infiniband", node, "ibstat")
    rates = [nic.rate if nic.state == "Active" else 10 for nic in node.nics]
    assert [port.rate_gbps for port in found.ports] == rates
    assert [port.link_layer for port in found.ports] == [nic.link_layer for nic in node.nics]
    assert [port.physical for port in found.ports] == [nic.physical for nic in node.nics]


def test_wrong_firmware_is_that_of_one_hca() -> None:
    said = answer(broken("h100-sxm-8", "hca-firmware=mlx5_4"), ["ibstat"]).stdout
    assert said.count("Firmware version: 28.39.1002") == 7
    assert said.count("Firmware version: 28.36.1010") == 1


@every_case
def test_lspci_shows_the_cards_with_and_without_a_driver(preset: str, fault: str) -> None:
    node = broken(preset, fault)
    lines = answer(node, ["lspci", "-nn", "-d", "10de:"]).stdout.splitlines()
    cards = [line for line in lines if f"[10de:{node.card.device_id}]" in line]
    assert len(cards) == len(node.gpus)
    switches = [bus for bus in node.preset.nvswitches if bus not in node.absent]
    assert len(lines) == len(node.gpus) + len(switches)
    verbose = answer(node, ["lspci", "-vv", "-d", f"10de:{node.card.device_id}"]).stdout
    narrow = sum(gpu.width < node.card.pcie.width for gpu in node.gpus)
    assert verbose.count("Width x8 (downgraded)") == narrow
    assert verbose.count("Kernel driver in use: nvidia") == (len(node.gpus) if node.loaded else 0)
    assert verbose.count("!!! Unknown header type 7f") == sum(not gpu.on_bus for gpu in node.gpus)


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("off-bus=4", "NVRM: Xid (PCI:0000:9b:00): 79, "),
        ("gsp-timeout=4", "NVRM: Xid (PCI:0000:9b:00): 119, "),
        ("remap-pending=4", "NVRM: Xid (PCI:0000:9b:00): 63, "),
        ("library-mismatch", "NVRM: API mismatch: the client has the version 535.129.04, but"),
    ],
)
def test_the_kernel_log_says_what_broke(fault: str, line: str) -> None:
    healthy = answer(broken("h100-sxm-8"), ["dmesg"]).stdout
    assert "Xid" not in healthy and "mismatch" not in healthy
    assert line in answer(broken("h100-sxm-8", fault), ["dmesg"]).stdout


def test_versions_of_module_and_library() -> None:
    node = broken("h100-sxm-8", "library-mismatch=535.183.01")
    assert answer(node, ["modinfo", "-F", "version", "nvidia"]).stdout == "535.183.01\n"
    assert "535.129.03" in answer(node, ["cat", "/proc/driver/nvidia/version"]).stdout
    assert answer(node, ["nvidia-smi"]).code == 18
    nouveau = broken("h100-sxm-8", "nouveau")
    assert answer(nouveau, ["lsmod"]).stdout.splitlines()[1].startswith("nouveau")
    assert answer(nouveau, ["cat", "/proc/driver/nvidia/version"]).code == 1
    assert answer(nouveau, ["nvidia-smi"]).code == 9


@every_case
def test_all_reduce_perf(preset: str, fault: str) -> None:
    node = broken(preset, fault)
    count = max(1, len(node.gpus))
    if node.rank_hang:
        with pytest.raises(Hangs):
            answer(node, ["all_reduce_perf"])
        return
    said = answer(node, f"all_reduce_perf -b 1G -e 4G -f 2 -g {count}".split())
    if said.code == 127:
        assert fault == "not-installed"
        return
    found = reader("nccl-tests")(said.stdout)
    usable = sum(not gpu.mig for gpu in node.gpus) == count
    works = node.cuda_works and usable and node.gpus and not any(gpu.handle for gpu in node.gpus)
    assert (said.code == 2) == (not works)
    if not works:
        assert found.errors and not found.rows
        return
    assert found.ranks == count
    assert [row.size for row in found.rows] == [1 << 30, 2 << 30, 4 << 30]
    assert found.out_of_bounds == node.wrong
    assert found.ok is (None if count == 1 else node.wrong == 0)
    assert (found.rows[-1].out_of_place.wrong, said.code) == (node.wrong, int(node.wrong > 0))


@pytest.mark.parametrize(
    ("preset", "ranks", "low", "high"),
    [  # the gates and expectations that are published for these machines
        ("h100-sxm-8", 8, 460, 480),
        ("a100-sxm-8", 8, 228, 235),
        ("a100-pcie-4", 2, 193, 210),
        ("a100-pcie-4", 4, 16, 24),
        ("l40s-8", 8, 10, 24),
        ("rtx4090-2", 2, 10, 26),
    ],
)
def test_bandwidth_is_what_such_a_machine_gives(
    preset: str, ranks: int, low: float, high: float
) -> None:
    found = read("nccl-tests", broken(preset), f"all_reduce_perf -b 4G -e 4G -g {ranks}")
    assert low <= found.peak_busbw <= high


def busbw(*nodes: Node, env: dict[str, str] | None = None) -> float:
    call = ["all_reduce_perf", "-b", "8G", "-e", "8G", "-g", str(len(nodes[0].gpus))]
    said = answer(nodes[0], call, env, with_nodes=nodes[1:]).stdout
    found: float = reader("nccl-tests")(said).peak_busbw
    return found


def test_bandwidth_falls_with_what_is_broken() -> None:
    whole = busbw(broken("h100-sxm-8"))
    assert 455 < busbw(broken("h100-sxm-8", "gpu-missing")) < whole
    assert 350 < busbw(broken("h100-sxm-8"), env={"NCCL_NVLS_ENABLE": "0"}) < 370
    for fault in ("slow-link", "hot", "nvlink-down"):
        assert busbw(broken("h100-sxm-8", fault)) < 0.96 * whole, fault


def test_of_several_nodes_the_slowest_sets_the_pace() -> None:
    good = [broken("h100-sxm-8", name=f"n{i}") for i in range(3)]
    slow = broken("h100-sxm-8", "slow-link", name="n3")
    assert 350 < busbw(*good) < 380
    assert busbw(*good[:2], slow) == busbw(good[0], slow) < 100


def test_sixty_four_nodes_answer_without_hosts() -> None:
    fleet = [broken("h100-sxm-8", name=f"gpu{i:02d}") for i in range(64)]
    fleet[17] = broken("h100-sxm-8", "gpu-missing", name="gpu17")
    counts = [len(read("nvidia-smi", node, "nvidia-smi").gpus) for node in fleet]
    assert [i for i, count in enumerate(counts) if count != 8] == [17]


@pytest.mark.parametrize("preset", PRESETS)
def test_files_of_proc_and_sys(preset: str) -> None:
    node = broken(preset)
    for gpu in node.gpus:
        path = f"/proc/driver/nvidia/gpus/{gpu.slot.bus}/information"
        assert gpu.uuid in answer(node, ["cat", path]).stdout
    for nic in node.nics:
        path = f"/sys/class/infiniband/{nic.device}/ports/1/rate"
        assert answer(node, ["cat", path]).stdout.startswith(f"{nic.rate} Gb/sec (4X ")
    modules = answer(node, ["cat", "/proc/modules"]).stdout
    assert ("mlx5_core " in modules, "nvidia " in modules) == (bool(node.nics), True)


def test_dcgmi_fails_on_a_pending_remap_and_health_does_not_see_it() -> None:
    node = broken("a100-sxm-8", "remap-pending")
    diag = answer(node, ["dcgmi", "diag", "-r", "1"])
    assert "| Page Retirement/Row Remap | Fail " in diag.stdout
    assert diag.code != 0
    assert "| Healthy " in answer(node, ["dcgmi", "health", "-c"]).stdout
    assert answer(broken("a100-sxm-8"), ["dcgmi", "diag", "-r", "1"]).code == 0


def test_a_card_without_work_may_have_a_slow_link_which_is_no_fault() -> None:
    """As the lspci of real Ada cards shows it; Hopper cards stay at full speed."""
    idle = answer(broken("rtx4090-2"), ["lspci", "-vv", "-s", "01:00.0"]).stdout
    assert "LnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)" in idle
    busy = answer(broken("rtx4090-2", "hot=0"), ["lspci", "-vv", "-s", "01:00.0"]).stdout
    assert "LnkSta:\tSpeed 16GT/s (ok), Width x16 (ok)" in busy
    hopper = answer(broken("h100-sxm-8"), ["lspci", "-vv", "-d", "10de:2330"]).stdout
    assert hopper.count("LnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)") == 8
    states = "nvidia-smi --query-gpu=pstate,pcie.link.gen.gpucurrent --format=csv,noheader"
    assert answer(broken("l40s-8"), states.split()).stdout == "P8, 1\n" * 8


def test_remapped_rows_say_one_and_zero() -> None:
    call = "nvidia-smi --query-remapped-rows=gpu_bus_id,remapped_rows.pending --format=csv -i 2,3"
    said = answer(broken("a100-sxm-8", "remap-pending=3"), call.split()).stdout
    assert said.splitlines() == [
        "gpu_bus_id, remapped_rows.pending",
        "00000000:47:00.0, 0",
        "00000000:4E:00.0, 1",
    ]


def test_secure_boot_and_a_kernel_of_its_own() -> None:
    healthy = broken("h100-sxm-8")
    assert answer(healthy, ["mokutil", "--sb-state"]).stdout == "SecureBoot disabled\n"
    assert answer(healthy, ["uname", "-r"]).code == 127, "the host's real one answers"
    assert answer(healthy, ["systemd-detect-virt"]) == ("none\n", "", 1)
    node = broken("h100-sxm-8", "secure-boot", "kernel=6.1.0-57-amd64")
    assert answer(node, ["mokutil", "--sb-state"]).stdout == "SecureBoot enabled\n"
    assert answer(node, ["uname", "-r"]).stdout == "6.1.0-57-amd64\n"
    assert "Module nvidia not found" in answer(node, ["modprobe", "nvidia"]).stderr


def test_ports_of_lspci_are_those_of_the_tree_and_say_whether_acs_is_on() -> None:
    off = answer(broken("h100-sxm-8"), ["lspci", "-vv"]).stdout
    on = answer(broken("h100-sxm-8", "acs-on"), ["lspci", "-vv"]).stdout
    assert off.count("ACSCtl:\tSrcValid-") == on.count("ACSCtl:\tSrcValid+") == 24
    assert off.count("Downstream Port (Slot+)") == 16 and off.count("Upstream Port") == 8
    narrow = answer(broken("h100-sxm-8", "pcie-x8=0"), ["lspci", "-vv", "-s", "17:01.0"]).stdout
    assert "Width x8 (downgraded)" in narrow, "the port above the card came up as narrow"
