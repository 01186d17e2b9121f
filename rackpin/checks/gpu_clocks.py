"""Why a card is slower than it could be: heat, the power supply's brake, a limit set too low."""

from __future__ import annotations

from rackpin.checks import gpuinfo
from rackpin.checks.base import Context
from rackpin.checks.gpuinfo import Told
from rackpin.parse.nvidia_smi import Smi
from rackpin.parse.nvidia_smi_model import Gpu, quantity
from rackpin.skus import Sku

# End of the reason's name → how bad, what it means. Up to R530 they are called
# clocks_throttle_reason_…, since then clocks_event_reason_…. Source: NVIDIA, NVML API reference,
# nvmlClocksEventReasons.
REASONS = {
    "hw_thermal_slowdown": ("fault", "the hardware halves its clocks: too hot"),
    "hw_power_brake_slowdown": ("fault", "the power supply brakes it from outside"),
    "sw_thermal_slowdown": ("worry", "the driver lowers its clocks: too hot"),
    "sw_power_cap": ("worry at rest", "its clocks are held down by the power limit"),
}
# One of them is enough to know that nothing of the hardware brakes: older cards have only this.
WHOLE = "hw_slowdown"


def reason(card: Gpu, end: str) -> bool | None:
    """Whether a reason is active; None when the card doesn't say."""
    for path, text in card.fields.items():
        if path.endswith(f"_reason_{end}") and "reasons" in path:
            return {"Active": True, "Not Active": False}.get(text)
    return None


def _clocks(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    for card in smi.gpus:
        who, whole = gpuinfo.name(card), reason(card, WHOLE)
        states = {end: reason(card, end) for end in REASONS}
        for end, (weight, meaning) in REASONS.items():
            rests = not gpuinfo.at_work(card)  # at work a card meets its power limit, as it should
            if states[end] is None and weight == "fault" and whole is None:
                told.untold.append(f"{who}: {end}")
            elif states[end] and weight == "fault":
                told.faults.append(f"{who}: {meaning}")
            elif states[end] and (weight == "worry" or rests):
                told.worries.append(f"{who}: {meaning}")
        if whole and not (states["hw_thermal_slowdown"] or states["hw_power_brake_slowdown"]):
            told.faults.append(f"{who}: the hardware slows it down")
        _power(card, told)
    return "nothing holds the clocks down"


def _power(card: Gpu, told: Told) -> None:
    usual = quantity(gpuinfo.said(card, "default_power_limit") or "")
    if usual is not None and card.power_limit is not None and card.power_limit < usual:
        who = gpuinfo.name(card)
        told.worries.append(f"{who}: its power limit is {card.power_limit} W, of {usual} W")


CHECK = gpuinfo.CardCheck(
    id="gpu.clocks",
    title="Nothing slows the cards down",
    expected="no thermal slowdown, no power brake, the power limit as delivered",
    source="NVIDIA, NVML API reference: clocks event reasons",
    remedy="heat: airflow, fans, inlet temperature; brake: power supplies; limit: nvidia-smi -pl",
    ends=("gpu_temp", "power_draw", "current_power_limit", "performance_state", "gpu_util"),
    look=_clocks,
)
