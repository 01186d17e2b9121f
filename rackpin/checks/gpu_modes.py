"""Settings of the cards: MIG, persistence, and VBIOS alike on all cards of one model."""

from __future__ import annotations

from collections import Counter

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.gpuinfo import Told, said
from rackpin.parse.nvidia_smi import Smi
from rackpin.skus import Sku


def _mig(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    assert sku is not None
    for card in smi.gpus:
        who = gpuinfo.name(card)
        if card.mig:
            told.faults.append(f"MIG is on on {who}: engines see no whole card")
        elif card.mig_pending:
            told.faults.append(f"MIG will be on on {who} after its next reset")
        elif card.mig is None and sku.gpus.mig:
            told.untold.append(f"{who}: whether MIG is on ({said(card, 'current_mig')})")
    return "MIG is off" if sku.gpus.mig else "these cards have no MIG"


def _persistence(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    for card in smi.gpus:
        if card.persistence is None:
            told.untold.append(f"{gpuinfo.name(card)}: its persistence mode")
        elif not card.persistence:
            told.worries.append(f"persistence mode is off on {gpuinfo.name(card)}")
    return "persistence mode is on"


def _vbios(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    models: dict[str, Counter[str]] = {}
    for card in smi.gpus:
        version = said(card, "vbios_version")
        if version is None or not version[:1].isdigit() or card.name is None:
            told.untold.append(f"{gpuinfo.name(card)}: its VBIOS ({version})")
        else:
            models.setdefault(card.name, Counter())[version.upper()] += 1
    for card in smi.gpus:
        version = (said(card, "vbios_version") or "").upper()
        versions = models.get(card.name or "", Counter())
        if len(versions) > 1 and version in versions:
            most, count = versions.most_common(1)[0]
            if version != most:
                told.worries.append(
                    f"{gpuinfo.name(card)} has VBIOS {version}, {count} others of its model {most}"
                )
    return ", ".join(f"VBIOS {version}" for found in models.values() for version in found)


MIG = gpuinfo.CardCheck(
    id="gpu.mig",
    title="MIG is off",
    expected="MIG mode off, now and after the next reset",
    source=f"skus/: gpus.mig; {gpuinfo.NVIDIA}",
    remedy="drain the node, nvidia-smi -mig 0, then reset the card",
    ends=("current_mig", "pending_mig"),
    look=_mig,
    needs_sku=True,
)
PERSISTENCE = gpuinfo.CardCheck(
    id="gpu.persistence",
    title="Persistence mode is on",
    expected="persistence mode on: without it each first user waits until the card is initialized",
    source="NVIDIA, driver persistence",
    remedy="systemctl enable --now nvidia-persistenced, without --no-persistence-mode",
    ends=("persistence_mode",),
    look=_persistence,
)
VBIOS = gpuinfo.CardCheck(
    id="gpu.vbios",
    title="Cards of one model have one VBIOS",
    expected="one VBIOS version for all cards of a model in this node",
    source="the other cards of the node",
    remedy="bring the card to its siblings' VBIOS with the server vendor's firmware tool",
    ends=("vbios_version", "product_name"),
    look=_vbios,
)
