"""Faults by name: each a pure function from a node to the node that has it.

A wish is ``NAME`` or ``NAME=WHERE``: the index of a card, the name of an HCA, a version. Without
WHERE it is the second card (the first where there is one only), the last HCA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import drivers, identity
from rackpin.lab.hardware.model import Gpu, Nic, Node

Change = Callable[[Node, str], Node]
OLD_FIRMWARE = {"MT4129": "28.36.1010", "MT4123": "20.31.1014"}
ODD_VBIOS = "00.00.01"  # the end of another release of the card's VBIOS
FAULT_AT_S = 86.4  # seconds after boot at which the kernel logs what broke


@dataclass(frozen=True)
class Fault:
    """``where``: what may stand after ``=``, empty when nothing may."""

    name: str
    about: str
    where: str
    change: Change


FAULTS: dict[str, Fault] = {}


def _fault(name: str, about: str, where: str = "") -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        FAULTS[name] = Fault(name, about, where, change)
        return change

    return add


def apply(node: Node, wished: Sequence[str]) -> Node:
    """The node with all faults; LabError lists every one that can't be had on this node."""
    problems = []
    for wish in wished:
        name, equals, where = wish.partition("=")
        fault = FAULTS.get(name)
        try:
            if fault is None:
                raise LabError(drivers.unknown("fault", name, list(FAULTS)))
            if equals and not fault.where:
                raise LabError(f"fault {name} takes no {wish[len(name) :]}")
            node = fault.change(node, where)
        except LabError as error:
            problems.append(str(error))
    if problems:
        raise LabError(f"{node.name}: {len(problems)} fault(s) can't be had:", *problems)
    return node


def _with(node: Node, **changes: Any) -> Node:
    return node.model_copy(update=changes)


def _index(node: Node, where: str) -> int:
    if not where:
        return min(1, len(node.gpus) - 1)
    if not where.isdigit() or int(where) >= len(node.gpus):
        raise LabError(f"{node.preset.name} has no card {where!r}: 0 to {len(node.gpus) - 1}")
    return int(where)


def _gpu(node: Node, where: str, **changes: Any) -> Node:
    chosen = _index(node, where)
    return _with(
        node,
        gpus=[
            gpu.model_copy(update=changes) if i == chosen else gpu
            for i, gpu in enumerate(node.gpus)
        ],
    )


def _chosen_nic(node: Node, where: str) -> Nic:
    if not node.nics:
        raise LabError(f"{node.preset.name} has no HCA")
    known = [nic.device for nic in node.nics]
    if where and where not in known:
        raise LabError(drivers.unknown("HCA", where, known))
    return node.nics[known.index(where) if where else -1]


def _nic(node: Node, where: str, **changes: Any) -> Node:
    chosen = _chosen_nic(node, where)
    nics = [nic.model_copy(update=changes) if nic is chosen else nic for nic in node.nics]
    return _with(node, nics=nics)


def _log(node: Node, *lines: str) -> Node:
    begin = FAULT_AT_S + len(node.kernel_log)
    stamped = [(begin + i / 1000, line) for i, line in enumerate(lines)]
    return _with(node, kernel_log=[*node.kernel_log, *stamped])


def xid_bus(gpu: Gpu) -> str:
    """As the driver names a card in the kernel log: 0000:3b:00 without the function."""
    return gpu.slot.bus.rpartition(".")[0]


def _identified(gpu: Gpu) -> list[str]:
    return [
        f"NVRM: GPU at PCI:{xid_bus(gpu)}: {gpu.uuid}",
        f"NVRM: GPU Board Serial Number: {gpu.serial}",
    ]


@_fault("gpu-missing", "a card isn't on the bus at all: seven of eight", "card")
def _missing(node: Node, where: str) -> Node:
    chosen = _index(node, where)
    gone = node.gpus[chosen]
    if len(node.gpus) == 1:
        raise LabError("the only card can't be missing: use not-installed or nouveau")
    rest = [gpu for i, gpu in enumerate(node.gpus) if i != chosen]
    return _with(node, gpus=rest, absent=[*node.absent, gone.slot.bus])


@_fault("off-bus", "a card fell off the bus: XID 79, nvidia-smi says it is lost", "card")
def _off_bus(node: Node, where: str) -> Node:
    gpu = node.gpus[_index(node, where)]
    node = _log(
        node,
        *_identified(gpu),
        f"NVRM: Xid (PCI:{xid_bus(gpu)}): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.slot.bus}: GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.slot.bus}: GPU serial number is {gpu.serial}.",
    )
    return _gpu(node, where, handle="lost", on_bus=False)


@_fault("gsp-timeout", "a card's GSP firmware doesn't answer: XID 119, unknown error", "card")
def _gsp(node: Node, where: str) -> Node:
    index = _index(node, where)
    gpu = node.gpus[index]
    xid = f"NVRM: Xid (PCI:{xid_bus(gpu)}): 119, pid=4242, name=nvidia-smi, "
    late = f"Timeout after 6s of waiting for RPC response from GPU{index} GSP! "
    node = _log(
        node,
        *_identified(gpu),
        f"{xid}{late}Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
        f"{xid}{late}Expected function 10 (FREE) (0xa55a0210 0x0).",
    )
    return _gpu(node, where, handle="unknown")


@_fault("hang", "nvidia-smi never answers, and only SIGKILL ends it")
def _hang(node: Node, _where: str) -> Node:
    return _with(node, hang=True)


@_fault("remap-pending", "a card waits for a reset to remap a row: XID 63", "card")
def _remap(node: Node, where: str) -> Node:
    gpu = node.gpus[_index(node, where)]
    node = _log(
        node,
        f"NVRM: Xid (PCI:{xid_bus(gpu)}): 63, pid=1896, "
        "Row Remapper: New row marked for remapping, reset gpu to activate.",
    )
    return _gpu(node, where, remap_pending=True, remapped=1)


@_fault("ecc-off", "ECC is off on a card", "card")
def _ecc(node: Node, where: str) -> Node:
    if not node.card.ecc:
        raise LabError(f"{node.card.name} has ECC off anyway")
    return _gpu(node, where, ecc=False)


@_fault("mig-on", "MIG mode was left on, without instances", "card")
def _mig(node: Node, where: str) -> Node:
    if not node.card.mig:
        raise LabError(f"{node.card.name} knows no MIG")
    return _gpu(node, where, mig=True)


@_fault("pcie-x8", "a card's link came up at half its width", "card")
def _x8(node: Node, where: str) -> Node:
    slowed = 0.55 if not node.card_links else 1.0
    node = _with(node, local_factor=node.local_factor * slowed)
    return _gpu(node, where, width=node.card.pcie.width // 2)


@_fault("vbios-odd", "a card has another VBIOS than the others", "card")
def _vbios(node: Node, where: str) -> Node:
    begin = ".".join(node.card.vbios.split(".")[:2])
    return _gpu(node, where, vbios=f"{begin}.{ODD_VBIOS}")


@_fault("hot", "a card is too hot: thermal slowdown, clocks halved", "card")
def _hot(node: Node, where: str) -> Node:
    return _gpu(_with(node, local_factor=node.local_factor * 0.8), where, hot=True)


@_fault("nvlink-down", "one NVLink of a card is down", "card")
def _nvlink(node: Node, where: str) -> Node:
    link = node.preset.nvlink
    if link is None:
        raise LabError(f"{node.preset.name} has no NVLink")
    return _gpu(node, where, links_down=frozenset({link.links - 1}))


@_fault("fm-off", "fabric manager doesn't run: CUDA can't start")
def _fm_off(node: Node, _where: str) -> Node:
    return _fabric(node, "off")


@_fault("fm-mismatch", "fabric manager of another version than the driver", "version")
def _fm_mismatch(node: Node, where: str) -> Node:
    other = where or other_version(node.preset.driver)
    return _with(_fabric(node, "mismatch"), fabric_version=other)


def _fabric(node: Node, state: str) -> Node:
    if node.fabric == "none":
        raise LabError(f"{node.preset.name} has no NVSwitch, so it needs no fabric manager")
    return _with(node, fabric=state)


def other_version(version: str) -> str:
    """The next patch of the same branch."""
    branch, *middle, last = version.split(".")
    return ".".join((branch, *middle, f"{int(last) + 1:02d}"))


@_fault("hca-down", "an HCA's port is down, the cable or its peer is missing", "HCA")
def _hca_down(node: Node, where: str) -> Node:
    node = _with(node, network_factor=node.network_factor * 0.5)
    return _nic(node, where, state="Down", physical="Polling", lid=65535)


@_fault("hca-renamed", "an HCA has a name that isn't mlx5_N", "HCA")
def _hca_renamed(node: Node, where: str) -> Node:
    bus = int(_chosen_nic(node, where).slot.bus[5:7], 16)
    return _nic(node, where, device=f"ibp{bus}s0", netdev=f"ibp{bus}s0")


@_fault("hca-ethernet", "an HCA came up as Ethernet (RoCE) instead of InfiniBand", "HCA")
def _hca_ethernet(node: Node, where: str) -> Node:
    bus = int(_chosen_nic(node, where).slot.bus[5:7], 16)
    node = _with(node, network_factor=node.network_factor * 0.5)
    return _nic(node, where, link_layer="Ethernet", lid=0, netdev=f"enp{bus}s0np0")


@_fault("hca-firmware", "an HCA has older firmware than the others", "HCA")
def _hca_firmware(node: Node, where: str) -> Node:
    return _nic(node, where, firmware=OLD_FIRMWARE[_chosen_nic(node, where).ca_type])


@_fault("hca-missing", "an HCA isn't on the bus", "HCA")
def _hca_missing(node: Node, where: str) -> Node:
    gone = _chosen_nic(node, where)
    node = _with(node, network_factor=node.network_factor * 0.5)
    rest = [nic for nic in node.nics if nic is not gone]
    return _with(node, nics=rest, absent=[*node.absent, gone.slot.bus])


@_fault("hca-order", "the HCAs' names are numbered the other way round")
def _hca_order(node: Node, _where: str) -> Node:
    _chosen_nic(node, "")
    names = [(nic.device, nic.netdev) for nic in reversed(node.nics)]
    turned = [
        nic.model_copy(update={"device": device, "netdev": netdev})
        for nic, (device, netdev) in zip(node.nics, names, strict=True)
    ]
    return _with(node, nics=sorted(turned, key=lambda nic: nic.device))


@_fault("gpu-swapped", "a card was replaced: another serial number and UUID", "card")
def _swapped(node: Node, where: str) -> Node:
    gpu = node.gpus[_index(node, where)]
    words = (node.name, gpu.minor, "second")
    uuid, serial = identity.gpu_uuid(*words), identity.serial(*words)
    return _gpu(node, where, uuid=uuid, serial=serial, fabric_id=identity.uuid("fabric", *words))


@_fault("slow-link", "nothing shows it, but all_reduce_perf is far too slow")
def _slow(node: Node, _where: str) -> Node:
    local, network = node.local_factor * 0.62, node.network_factor * 0.25
    return _with(node, local_factor=local, network_factor=network)


@_fault("wrong-data", "all_reduce_perf finds wrong elements")
def _wrong(node: Node, _where: str) -> Node:
    return _with(node, wrong=4)


@_fault("library-mismatch", "the libraries are newer than the module that is loaded", "version")
def _mismatch(node: Node, where: str) -> Node:
    library = where or other_version(node.preset.driver)
    module = node.driver or node.preset.driver
    node = _log(
        node,
        f"NVRM: API mismatch: the client has the version {library}, but",
        f"NVRM: this kernel module has the version {module}.  Please",
        "NVRM: make sure that this kernel module and all NVIDIA driver",
        "NVRM: components have the same version.",
    )
    return _with(node, library=library)


@_fault("nouveau", "nouveau owns the cards, the NVIDIA module isn't loaded")
def _nouveau(node: Node, _where: str) -> Node:
    return _with(node, nouveau=True)


@_fault("not-installed", "no driver yet: there is no nvidia-smi; lspci shows the cards")
def _bare(node: Node, _where: str) -> Node:
    return _with(node, driver=None)


@_fault("driver", "another version of the driver", "version")
def _driver(node: Node, where: str) -> Node:
    version = where or other_version(node.preset.driver)
    running = version if node.fabric == "running" else node.fabric_version
    return _with(node, driver=version, cuda=drivers.cuda(version), fabric_version=running)
