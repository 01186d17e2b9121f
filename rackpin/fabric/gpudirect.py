"""How an adapter can reach a card's memory on this node: nvidia-peermem, DMA-BUF, or not at all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from rackpin.fabric.model import Fabric

# Source: kernel 5.12 brought ibv_reg_dmabuf_mr; NVIDIA's open modules export DMA-BUF, the closed
# ones of every branch don't (NVIDIA/nccl v2.19.3-1 src/init.cc asks the driver's attribute).
DMABUF_KERNEL = (5, 12)
PEERMEM = "nvidia_peermem"


@dataclass(frozen=True)
class Way:
    """``by`` is what is to be used; ``why`` says what decided, for people."""

    by: Literal["dmabuf", "peermem", "none", "unknown"]
    why: str

    @property
    def possible(self) -> bool:
        return self.by in ("dmabuf", "peermem")


def kernel_version(release: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else None


def gpudirect(fabric: Fabric, flavour: str = "") -> Way:
    """What kernel and driver support. ``flavour``: of the pinned modules, before they are there."""
    kernel = kernel_version(fabric.kernel)
    is_open = fabric.open_modules
    if is_open is None and flavour:
        is_open = flavour == "open"
    if not fabric.gpus or not fabric.hcas:
        return Way("none", "needs a card and an adapter")
    if is_open is None:
        return Way("unknown", "no NVIDIA driver is there, and none is pinned")
    if is_open and kernel and kernel >= DMABUF_KERNEL:
        return Way("dmabuf", f"open modules on kernel {fabric.kernel}: DMA-BUF, no module needed")
    if fabric.peer_api is False:
        need = "take the open modules (DMA-BUF), or OFED/DOCA, whose modules have it"
        what = "closed modules" if not is_open else f"kernel {fabric.kernel}"
        return Way(
            "none",
            f"{what}: nvidia-peermem, and this kernel's verbs lack its API: {need}",
        )
    if fabric.peer_api is None:
        return Way("peermem", "nvidia-peermem; no verbs are loaded yet, so their API is unproven")
    return Way("peermem", "nvidia-peermem: this kernel's verbs have its API")
