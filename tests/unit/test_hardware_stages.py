"""Faults of simulated servers as the driver stage's script sees them, and what becomes of it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rackpin.driver import decide
from rackpin.driver.preflight import problems
from rackpin.driver.state import DriverState, parse_state, state_script
from rackpin.driver.want import Want
from tests.unit.driver_samples import WANT
from tests.unit.hardware_host import put
from tests.unit.hardware_samples import PRESETS, broken

# preset → cards and NVSwitches
COUNTS = {
    "h100-sxm-8": (8, 4),
    "a100-sxm-8": (8, 6),
    "a100-pcie-4": (4, 0),
    "l40s-8": (8, 0),
    "rtx4090-2": (2, 0),
}
HGX = replace(WANT, gpus=8, nvswitch=True, fabric_manager=True)


def seen(home: Path, preset: str, *faults: str) -> DriverState:
    """The state script's answer with the server's programs before this machine's."""
    put(broken(preset, *faults), home)
    path = f"{home}/current/bin:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-s"], input=state_script(), env={"PATH": path}, timeout=60,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return parse_state(done.stdout.splitlines())


def refused(want: Want, state: DriverState) -> set[str]:
    # kernels of this machine are nobody's business here
    sound = replace(state, next="", next_fault="", running=want.kernel, foreign=())
    return {problem.key for problem in problems("n", want, sound, {}, {}, {})}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_counted_on_its_bus(preset: str, tmp_path: Path) -> None:
    state = seen(tmp_path, preset)
    assert (state.gpus, state.nvswitches) == COUNTS[preset]
    assert state.secure_boot is False and "nvidia" in state.modules
    assert decide.absent(state) == ""


@pytest.mark.parametrize("preset", PRESETS)
def test_a_server_without_cards_is_left_alone(preset: str, tmp_path: Path) -> None:
    state = seen(tmp_path, preset, "no-cards", "secure-boot")
    assert decide.absent(state) == "no NVIDIA GPU is on its PCI bus"
    assert refused(HGX, state) == set(), "whatever else is wrong with it"


def test_secure_boot_is_refused(tmp_path: Path) -> None:
    assert refused(HGX, seen(tmp_path / "off", "h100-sxm-8")) == set()
    assert refused(HGX, seen(tmp_path / "on", "h100-sxm-8", "secure-boot")) == {"secure boot"}


def test_nvswitches_that_the_inventory_does_not_know_are_refused(tmp_path: Path) -> None:
    unknown = replace(HGX, nvswitch=False)
    assert refused(unknown, seen(tmp_path / "there", "a100-sxm-8")) == {"nvswitch"}
    gone = seen(tmp_path / "gone", "a100-sxm-8", "nvswitch-missing")
    assert refused(unknown, gone) == set()
    assert any("no NVSwitch is on the PCI bus" in note for note in decide.notes(HGX, gone))


def test_a_missing_card_is_told(tmp_path: Path) -> None:
    state = seen(tmp_path, "h100-sxm-8", "gpu-missing=3")
    assert decide.notes(HGX, state) == ["7 GPUs are on the PCI bus, the inventory says 8"]


def test_a_card_that_fell_off_is_still_on_the_bus(tmp_path: Path) -> None:
    assert seen(tmp_path, "h100-sxm-8", "off-bus=3").gpus == 8, "verify names it (gpu.bus)"


@pytest.mark.parametrize("fault", ["nouveau", "not-installed"])
def test_nouveau_is_a_reason_to_reboot(fault: str, tmp_path: Path) -> None:
    state = replace(seen(tmp_path, "l40s-8", fault), running=WANT.kernel)
    reasons = decide.reboot_reasons(WANT, state)
    assert any("nouveau" in reason for reason in reasons) == (fault == "nouveau")
    assert "nvidia" not in state.modules
