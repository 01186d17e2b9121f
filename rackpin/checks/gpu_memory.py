"""The cards' memory: ECC, its errors, and rows that wait for a reset or can't be replaced."""

from __future__ import annotations

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.gpuinfo import Told
from rackpin.parse.nvidia_smi import Smi
from rackpin.parse.nvidia_smi_model import Gpu, flag, is_bad, quantity
from rackpin.skus import Sku

VOLATILE = "ecc_errors / volatile / "  # since the driver was loaded
LIFETIME = "ecc_errors / aggregate / "
# Of the card's whole life only SRAM counts: bad DRAM rows get replaced by spare ones.
_SRAM = "sram"
NO_ACTION = ("", "NONE", "N/A")
_DRAM = ("dram", "double_bit / total")


def _uncorrected(card: Gpu, when: str) -> dict[str, str]:
    """Counters of uncorrectable errors by their last name; before Ampere: double_bit."""
    return {
        path.removeprefix(when): text
        for path, text in card.fields.items()
        if path.startswith(when) and ("uncorrectable" in path or "double_bit" in path)
    }


def _ecc(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    assert sku is not None
    for card in smi.gpus:
        who = gpuinfo.name(card)
        if card.ecc is None:
            told.untold.append(f"{who}: whether ECC is on ({gpuinfo.said(card, 'current_ecc')})")
            continue
        if not card.ecc:
            if sku.gpus.ecc:
                told.faults.append(f"ECC is off on {who}")
            continue
        if sku.gpus.ecc and flag(gpuinfo.said(card, "pending_ecc") or "") is False:
            told.faults.append(f"ECC will be off on {who} after its next reset")
        texts = _uncorrected(card, VOLATILE)
        counts = {key: quantity(text) for key, text in texts.items()}
        dram = [value for key, value in counts.items() if key.startswith(_DRAM)]
        if None in dram or not dram or any(is_bad(text) for text in texts.values()):
            told.untold.append(f"{who}: its uncorrectable ECC errors")
        bad = [f"{value} {key}" for key, value in counts.items() if value]
        if bad:
            told.faults.append(f"{who} has uncorrected ECC errors: {', '.join(bad)}")
        old = {key: quantity(text) for key, text in _uncorrected(card, LIFETIME).items()}
        if any(value and key.startswith(_SRAM) for key, value in old.items()) and not bad:
            told.worries.append(f"{who} had uncorrected SRAM errors in its life")
        if flag(gpuinfo.said(card, "sram_threshold_exceeded") or "") is True:
            told.faults.append(f"{who}: the threshold of SRAM errors is exceeded")
    return "ECC is on, no uncorrected errors" if sku.gpus.ecc else "no uncorrected errors"


def _rows(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    for card in smi.gpus:
        who = gpuinfo.name(card)
        if card.row_remap_failed:
            told.faults.append(f"{who} could not replace a memory row: the card must go")
        if card.row_remap_pending:
            told.faults.append(f"{who} waits for a reset to replace a memory row")
        if card.page_retirement_pending:
            told.faults.append(f"{who} waits for a reboot to retire a memory page")
        for repair in ("channel_repair_pending", "tpc_repair_pending"):
            if flag(gpuinfo.said(card, repair) or ""):
                told.faults.append(f"{who} waits for a reset: {repair}")
        action = card.recovery_action or ""
        if card.reset_required or action.upper() not in NO_ACTION:
            told.faults.append(f"{who} asks to be recovered: {action or 'Reset'}")
        rows = card.row_remap_pending is not None and card.row_remap_failed is not None
        if not rows and card.page_retirement_pending is None:
            told.untold.append(f"{who}: whether memory rows wait for a reset")
    return "no memory row waits for a reset, none failed"


ECC = gpuinfo.CardCheck(
    id="gpu.ecc",
    title="ECC is on and has nothing uncorrected",
    expected="ECC on where the SKU says so; no uncorrectable error since the driver was loaded",
    source=f"skus/: gpus.ecc; {gpuinfo.NVIDIA}",
    remedy="ECC off: nvidia-smi -e 1, then reset the card. Errors: drain, reset, see gpu.rows; "
    "when they come again, replace the card",
    ends=(
        "current_ecc",
        "pending_ecc",
        "dram_uncorrectable",
        "sram_uncorrectable",
        "sram_uncorrectable_parity",
    ),
    look=_ecc,
    needs_sku=True,
)
ROWS = gpuinfo.CardCheck(
    id="gpu.rows",
    title="No memory row waits for replacement",
    expected="no pending row remap, no failed one, no reset asked for",
    source="NVIDIA, GPU memory error management: row remapping",
    remedy="pending: drain the node, then nvidia-smi -r or reboot. Failed: replace the card",
    ends=("remapped_row_pending", "remapped_row_failure", "reset_required", "gpu_recovery_action"),
    look=_rows,
)
