"""Faults of a node as a whole: its driver, fabric manager, HCAs, and what it computes."""

from __future__ import annotations

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import drivers
from rackpin.lab.hardware.fault_parts import changed, chosen_nic, fault, logged, with_nic
from rackpin.lab.hardware.model import Node

OLD_FIRMWARE = {"MT4129": "28.36.1010", "MT4123": "20.31.1014"}  # a release before, by CA type

OLD_KERNEL = "6.1.0-50-amd64"  # of Debian 12, some updates ago


@fault("hang", "nvidia-smi never answers, and only SIGKILL ends it")
def _hang(node: Node, _where: str) -> Node:
    return changed(node, hang=True)


@fault("fm-off", "fabric manager doesn't run: CUDA can't start")
def _fm_off(node: Node, _where: str) -> Node:
    return _fabric(node, "off")


@fault("fm-mismatch", "fabric manager of another version than the driver", "version")
def _fm_mismatch(node: Node, where: str) -> Node:
    other = where or other_version(node.preset.driver)
    return changed(_fabric(node, "mismatch"), fabric_version=other)


def _fabric(node: Node, state: str) -> Node:
    if node.fabric == "none":
        raise LabError(f"{node.preset.name} has no NVSwitch, so it needs no fabric manager")
    return changed(node, fabric=state)


def other_version(version: str) -> str:
    """The next patch of the same branch."""
    branch, *middle, last = version.split(".")
    return ".".join((branch, *middle, f"{int(last) + 1:02d}"))


@fault("hca-down", "an HCA's port is down, the cable or its peer is missing", "HCA")
def _hca_down(node: Node, where: str) -> Node:
    node = changed(node, network_factor=node.network_factor * 0.5)
    return with_nic(node, where, state="Down", physical="Polling", lid=65535)


@fault("hca-renamed", "an HCA has a name that isn't mlx5_N", "HCA")
def _hca_renamed(node: Node, where: str) -> Node:
    bus = int(chosen_nic(node, where).slot.bus[5:7], 16)
    return with_nic(node, where, device=f"ibp{bus}s0", netdev=f"ibp{bus}s0")


@fault("hca-ethernet", "an HCA came up as Ethernet (RoCE) instead of InfiniBand", "HCA")
def _hca_ethernet(node: Node, where: str) -> Node:
    bus = int(chosen_nic(node, where).slot.bus[5:7], 16)
    node = changed(node, network_factor=node.network_factor * 0.5)
    return with_nic(node, where, link_layer="Ethernet", lid=0, netdev=f"enp{bus}s0np0")


@fault("hca-firmware", "an HCA has older firmware than the others", "HCA")
def _hca_firmware(node: Node, where: str) -> Node:
    return with_nic(node, where, firmware=OLD_FIRMWARE[chosen_nic(node, where).ca_type])


@fault("hca-errors", "an HCA's port counts errors: a bad cable or transceiver", "HCA")
def _hca_errors(node: Node, where: str) -> Node:
    counters = {"symbol_error": 2417, "link_downed": 12, "port_rcv_errors": 380}
    return with_nic(node, where, counters=counters)


@fault("hca-missing", "an HCA isn't on the bus", "HCA")
def _hca_missing(node: Node, where: str) -> Node:
    gone = chosen_nic(node, where)
    node = changed(node, network_factor=node.network_factor * 0.5)
    rest = [nic for nic in node.nics if nic is not gone]
    return changed(node, nics=rest, absent=[*node.absent, gone.slot.bus])


@fault("hca-order", "the HCAs' names are numbered the other way round")
def _hca_order(node: Node, _where: str) -> Node:
    chosen_nic(node, "")
    names = [(nic.device, nic.netdev) for nic in reversed(node.nics)]
    turned = [
        nic.model_copy(update={"device": device, "netdev": netdev})
        for nic, (device, netdev) in zip(node.nics, names, strict=True)
    ]
    return changed(node, nics=sorted(turned, key=lambda nic: nic.device))


@fault("slow-link", "nothing shows it, but all_reduce_perf is far too slow")
def _slow(node: Node, _where: str) -> Node:
    local, network = node.local_factor * 0.62, node.network_factor * 0.25
    return changed(node, local_factor=local, network_factor=network)


@fault("sockets", "NCCL finds no HCA that it can use and goes by TCP")
def _sockets(node: Node, _where: str) -> Node:
    chosen_nic(node, "")
    return changed(node, sockets=True)


@fault("no-gdr", "NCCL goes without GPUDirect RDMA, through the host's memory")
def _no_gdr(node: Node, _where: str) -> Node:
    chosen_nic(node, "")
    return changed(node, gdr=False, network_factor=node.network_factor * 0.5)


@fault("rank-hang", "all_reduce_perf never ends, and only SIGKILL ends it")
def _rank_hang(node: Node, _where: str) -> Node:
    return changed(node, rank_hang=True)


@fault("wrong-data", "all_reduce_perf finds wrong elements")
def _wrong(node: Node, _where: str) -> Node:
    return changed(node, wrong=4)


@fault("library-mismatch", "the libraries are newer than the module that is loaded", "version")
def _mismatch(node: Node, where: str) -> Node:
    library = where or other_version(node.preset.driver)
    module = node.driver or node.preset.driver
    node = logged(
        node,
        f"NVRM: API mismatch: the client has the version {library}, but",
        f"NVRM: this kernel module has the version {module}.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
    )
    return changed(node, library=library)


@fault("nouveau", "nouveau owns the cards, the NVIDIA module isn't loaded")
def _nouveau(node: Node, _where: str) -> Node:
    return changed(node, nouveau=True)


@fault("not-installed", "no driver yet: there is no nvidia-smi; lspci shows the cards")
def _bare(node: Node, _where: str) -> Node:
    return changed(node, driver=None)


@fault("driver", "another version of the driver", "version")
def _driver(node: Node, where: str) -> Node:
    version = where or other_version(node.preset.driver)
    running = version if node.fabric == "running" else node.fabric_version
    return changed(node, driver=version, cuda=drivers.cuda(version), fabric_version=running)


@fault("no-cards", "no card and no NVSwitch is on the bus: their board has no power")
def _no_cards(node: Node, _where: str) -> Node:
    gone = [*(gpu.slot.bus for gpu in node.gpus), *node.preset.nvswitches]
    return changed(node, gpus=[], absent=[*node.absent, *gone])


@fault("nvswitch-missing", "no NVSwitch is on the bus")
def _no_switches(node: Node, _where: str) -> Node:
    if not node.preset.nvswitches:
        raise LabError(f"{node.preset.name} has no NVSwitch")
    return changed(node, absent=[*node.absent, *node.preset.nvswitches])


@fault("acs-on", "access control is on, on every port above cards and HCAs")
def _acs(node: Node, _where: str) -> Node:
    return changed(node, acs=True)


@fault("iommu-on", "the IOMMU translates the addresses of cards and HCAs")
def _iommu(node: Node, _where: str) -> Node:
    return changed(node, iommu_translates=True)


@fault("secure-boot", "Secure Boot is on, and no key of DKMS is enrolled")
def _secure_boot(node: Node, _where: str) -> Node:
    return changed(node, secure_boot=True)


@fault("kernel", "this kernel runs; what boots and loads next, the host's disk says", "version")
def _kernel(node: Node, where: str) -> Node:
    return changed(node, kernel=where or OLD_KERNEL)
