"""Faults of one card."""

from __future__ import annotations

from rackpin.lab.errors import LabError
from rackpin.lab.hardware import identity
from rackpin.lab.hardware.fault_parts import changed, fault, index_of, logged, with_card
from rackpin.lab.hardware.model import Gpu, Node

ODD_VBIOS = "00.00.01"  # the end of another release of the card's VBIOS


def xid_bus(gpu: Gpu) -> str:
    """As the driver names a card in the kernel log: 0000:3b:00 without the function."""
    return gpu.slot.bus.rpartition(".")[0]


def _identified(gpu: Gpu) -> list[str]:
    return [
        f"NVRM: GPU at PCI:{xid_bus(gpu)}: {gpu.uuid}",
        f"NVRM: GPU Board Serial Number: {gpu.serial}",
    ]


@fault("gpu-missing", "a card isn't on the bus at all: seven of eight", "card")
def _missing(node: Node, where: str) -> Node:
    chosen = index_of(node, where)
    gone = node.gpus[chosen]
    if len(node.gpus) == 1:
        raise LabError("the only card can't be missing: use not-installed or nouveau")
    rest = [gpu for i, gpu in enumerate(node.gpus) if i != chosen]
    return changed(node, gpus=rest, absent=[*node.absent, gone.slot.bus])


@fault("off-bus", "a card fell off the bus: XID 79, nvidia-smi says it is lost", "card")
def _off_bus(node: Node, where: str) -> Node:
    gpu = node.gpus[index_of(node, where)]
    node = logged(
        node,
        *_identified(gpu),
        f"NVRM: Xid (PCI:{xid_bus(gpu)}): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.slot.bus}: GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.slot.bus}: GPU serial number is {gpu.serial}.",
    )
    return with_card(node, where, handle="lost", on_bus=False)


@fault("gsp-timeout", "a card's GSP firmware doesn't answer: XID 119, unknown error", "card")
def _gsp(node: Node, where: str) -> Node:
    index = index_of(node, where)
    gpu = node.gpus[index]
    xid = f"NVRM: Xid (PCI:{xid_bus(gpu)}): 119, pid=4242, name=nvidia-smi, "
    late = f"Timeout after 6s of waiting for RPC response from GPU{index} GSP! "
    node = logged(
        node,
        *_identified(gpu),
        f"{xid}{late}Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
        f"{xid}{late}Expected function 10 (FREE) (0xa55a0210 0x0).",
    )
    return with_card(node, where, handle="unknown")


@fault("remap-pending", "a card waits for a reset to remap a row: XID 63", "card")
def _remap(node: Node, where: str) -> Node:
    gpu = node.gpus[index_of(node, where)]
    node = logged(
        node,
        f"NVRM: Xid (PCI:{xid_bus(gpu)}): 63, pid=1896, "
        "Row Remapper: New row marked for remapping, reset gpu to activate.",
    )
    return with_card(node, where, remap_pending=True, remapped=1)


@fault("ecc-off", "ECC is off on a card", "card")
def _ecc(node: Node, where: str) -> Node:
    if not node.card.ecc:
        raise LabError(f"{node.card.name} has ECC off anyway")
    return with_card(node, where, ecc=False)


@fault("mig-on", "MIG mode was left on, without instances", "card")
def _mig(node: Node, where: str) -> Node:
    if not node.card.mig:
        raise LabError(f"{node.card.name} knows no MIG")
    return with_card(node, where, mig=True)


@fault("pcie-x8", "a card's link came up at half its width", "card")
def _x8(node: Node, where: str) -> Node:
    slowed = 0.55 if not node.card_links else 1.0
    node = changed(node, local_factor=node.local_factor * slowed)
    return with_card(node, where, width=node.card.pcie.width // 2)


@fault("vbios-odd", "a card has another VBIOS than the others", "card")
def _vbios(node: Node, where: str) -> Node:
    begin = ".".join(node.card.vbios.split(".")[:2])
    return with_card(node, where, vbios=f"{begin}.{ODD_VBIOS}")


@fault("hot", "a card is too hot: thermal slowdown, clocks halved", "card")
def _hot(node: Node, where: str) -> Node:
    return with_card(changed(node, local_factor=node.local_factor * 0.8), where, hot=True)


@fault("nvlink-down", "one NVLink of a card is down", "card")
def _nvlink(node: Node, where: str) -> Node:
    link = node.preset.nvlink
    if link is None:
        raise LabError(f"{node.preset.name} has no NVLink")
    return with_card(node, where, links_down=frozenset({link.links - 1}))


@fault("gpu-swapped", "a card was replaced: another serial number and UUID", "card")
def _swapped(node: Node, where: str) -> Node:
    gpu = node.gpus[index_of(node, where)]
    words = (node.name, gpu.minor, "second")
    uuid, serial = identity.gpu_uuid(*words), identity.serial(*words)
    return with_card(
        node, where, uuid=uuid, serial=serial, fabric_id=identity.uuid("fabric", *words)
    )
