"""What the kernel does to traffic between cards and adapters, and what the next boot will."""

from __future__ import annotations

from collections.abc import Iterator

from rackpin.fabric.gpudirect import PEERMEM, gpudirect
from rackpin.fabric.model import Fabric

# Cards and adapters address memory as the CPU does. Source: NVIDIA's NCCL documentation,
# troubleshooting, IO virtualization; NVIDIA/nccl-tests issues 115 and 117.
WORDS = ("iommu=pt",)
AGAINST = {  # words that undo it: why
    "iommu=nopt": "makes the IOMMU translate",
    "iommu=force": "makes the IOMMU translate",
    "iommu.passthrough=0": "makes the IOMMU translate",
    "intel_iommu=strict": "makes the IOMMU translate",
}
TRANSLATES = ("DMA", "DMA-FQ")  # types of IOMMU groups; identity doesn't


def has_grub(fabric: Fabric) -> bool:
    return fabric.boot.next is not None


def boot_notes(fabric: Fabric) -> Iterator[str]:
    """Kernel parameters that are missing, and where on the way they got lost. Bare metal only."""
    boot = fabric.boot
    for word in WORDS:
        if word in boot.running:
            if boot.next is not None and word not in boot.next:
                yield f"{word} is in force, and the next boot has it no more: grub.cfg lost it"
        elif boot.next is not None and word in boot.next:
            yield f"reboot pending: {word} is in grub.cfg and not in /proc/cmdline"
        elif word in boot.written and boot.next is not None:
            yield f"{word} is in grub's files and not in grub.cfg: update-grub has not run since"
        elif fabric.iommu:
            yield f"{word} is missing from /proc/cmdline" + (
                "" if boot.next is not None else "; there is no grub here: set it where it boots"
            )
    for word in boot.running:
        if word in AGAINST:
            yield f"{word} in /proc/cmdline {AGAINST[word]}: take it out"
        elif word.startswith("pcie_acs_override="):
            yield f"{word}: a patched kernel; it changes groups, not what bridges do"
    slots = [gpu.slot for gpu in fabric.gpus if gpu.iommu in TRANSLATES]
    if slots:
        yield f"the IOMMU translates for cards {', '.join(sorted(slots))}"


def device_notes(fabric: Fabric, flavour: str = "") -> Iterator[str]:
    """The way into a card's memory, and adapters that order their writes strictly."""
    way = gpudirect(fabric, flavour)
    if fabric.gpus and fabric.hcas:
        if not way.possible:
            yield f"no GPUDirect RDMA: {way.why}"
        elif way.by == "peermem" and "nvidia" in fabric.modules and PEERMEM not in fabric.modules:
            yield "nvidia-peermem is not loaded"
    strict = sorted(hca.name for hca in fabric.hcas if hca.relaxed_ordering is False)
    if strict and fabric.gpus:
        yield (
            f"relaxed ordering is off on {', '.join(strict)}: a BIOS setting, or PCI_WR_ORDERING "
            "of the adapter (mlxconfig)"
        )
    gdr = fabric.gdrcopy
    if gdr.loaded and gdr.built and gdr.loaded != gdr.built:
        yield f"gdrdrv {gdr.loaded} is loaded, {gdr.built} is built: the next boot loads that"
    if gdr.loaded and not gdr.node:
        yield "gdrdrv is loaded and /dev/gdrdrv is missing: gdrcopy can't be opened"
    unseen = [bridge.slot for bridge in fabric.bridges if not bridge.seen]
    if unseen and fabric.bare_metal:
        yield f"ACS can't be read on {', '.join(unseen)}"


def acs_on(fabric: Fabric) -> list[str]:
    """Bridges between cards and adapters that send their traffic to the CPU."""
    return [bridge.slot for bridge in fabric.bridges if bridge.acs]
