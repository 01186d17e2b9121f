"""The cards' PCIe link: all lanes, and the speed that card, slot and SKU allow."""

from __future__ import annotations

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.gpuinfo import Told, said
from rackpin.parse.nvidia_smi import Smi
from rackpin.parse.nvidia_smi_model import Gpu, quantity
from rackpin.skus import Sku

BUSY = ("P0", "P1", "P2")  # states in which a card may move data at full speed


def _number(card: Gpu, end: str) -> int | None:
    """``16x`` and ``5``; None for N/A and all else."""
    found = quantity((said(card, end) or "").removesuffix("x"))
    return None if found is None else int(found)


def _pcie(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    assert sku is not None
    if sku.pcie is None:
        told.untold.append(f"the SKU {sku.name} doesn't say what PCIe link its cards have")
        return ""
    want = sku.pcie
    for card in smi.gpus:
        who = gpuinfo.name(card)
        width, top = _number(card, "current_link_width"), _number(card, "max_link_gen")
        now = _number(card, "current_link_gen")
        if width is None:
            told.untold.append(f"{who}: the width of its PCIe link")
        elif width < want.width:
            told.faults.append(f"{who} has {width} of {want.width} PCIe lanes")
        if top is None:
            told.untold.append(f"{who}: the highest speed of its PCIe link")
        elif top < want.generation:
            told.faults.append(f"{who} is limited to PCIe Gen{top}, not Gen{want.generation}")
        if now is None:
            told.untold.append(f"{who}: the speed of its PCIe link")
        elif now < min(want.generation, top or want.generation):
            _slow(card, f"{who} runs at PCIe Gen{now}, not Gen{want.generation}", told)
    return f"PCIe Gen{want.generation} x{want.width}"


def _slow(card: Gpu, what: str, told: Told) -> None:
    """A card at rest lowers its link's speed by itself (never its width); a busy one doesn't."""
    if card.performance_state is None:
        told.untold.append(f"{what}, and whether it is at rest")
    elif card.performance_state in BUSY and gpuinfo.at_work(card):
        told.faults.append(f"{what}, at work")
    elif card.performance_state in BUSY:
        told.worries.append(f"{what}, in {card.performance_state}")


CHECK = gpuinfo.CardCheck(
    id="gpu.pcie",
    title="PCIe links have all lanes and their speed",
    expected="the SKU's width always, its generation as the limit and whenever the card works",
    source="skus/: pcie",
    remedy="reseat the card and its riser, check the slot's settings in the BIOS; then replace it",
    ends=("current_link_width", "max_link_gen", "current_link_gen", "performance_state"),
    look=_pcie,
    needs_sku=True,
)
