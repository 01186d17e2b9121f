"""What the survey reads of GPUs, driver and kernels: never more than the text says."""

from __future__ import annotations

import base64
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackpin.driver.state import DriverStateError, parse_state, secure_boot, state_script
from rackpin.facts_driver import Gpu
from tests.unit import driver_samples as samples
from tests.unit.driver_samples import KERNEL, OTHER, VERSION, state, text


def test_a_sound_node_is_read_whole() -> None:
    found = samples.SOUND
    assert (found.gpus, found.nvswitches) == (2, 1)
    assert {"nvidia", "nvidia_uvm"} <= found.modules and "Module" not in found.modules
    assert (found.loaded, found.flavour) == (VERSION, "closed")
    assert found.params["EnableGpuFirmware"] == "18"
    assert found.running == found.next == KERNEL and found.kernels == found.initrds == (KERNEL,)
    assert found.built[KERNEL]["nvidia-uvm"] == VERSION
    assert [(m.module, m.version, m.kernel, m.state) for m in found.dkms] == [
        ("nvidia", VERSION, KERNEL, "installed")
    ]
    assert found.holders == (), "the driver's own daemons are no engines"
    assert not (found.foreign or found.engines or found.dpkg_broken or found.secure_boot)


@pytest.mark.parametrize("name", ["pci", "modules", "dkms", "grub", "audit", "end"])
def test_a_missing_section_is_no_answer(name: str) -> None:
    lines = [line for line in text() if line != f"## {name}"]
    with pytest.raises(DriverStateError):
        parse_state(lines)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pci": "lspci: Cannot open /proc/bus/pci\n= 1"}, "looking for GPUs"),
        ({"pci": "= 127"}, "looking for GPUs"),
        ({"modules": "= 127"}, "lsmod"),
        ({"dkms": "Error! broken\n= 1"}, "dkms status"),
        ({"running": ""}, "'running' is empty"),
        ({"loaded": "NVRM version: what is this"}, "has no version"),
    ],
)
def test_what_could_not_be_looked_at_is_said(changes: dict[str, str], words: str) -> None:
    with pytest.raises(DriverStateError, match=words):
        state(**changes)


def test_the_fact_says_why_and_raises_nothing() -> None:
    assert Gpu().process(text()) == samples.SOUND
    said = Gpu().process(text(modules="= 127"))
    assert isinstance(said, str) and "lsmod" in said


def test_a_file_without_its_last_newline_hides_no_section() -> None:
    assert "printf '\\n## %s\\n'" in state_script()
    assert parse_state([line for one in text() for line in ("", one)]) == samples.SOUND


def test_a_host_without_anything() -> None:
    found = state(pci="= 0", modules="Module Size Used by\n= 0", loaded="", dkms="", built="")
    assert (found.gpus, found.nvswitches, found.loaded, found.dkms) == (0, 0, "", ())


def test_open_modules_and_debians_names() -> None:
    found = state(
        loaded="NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
        dkms=f"nvidia-current/535.261.03, {KERNEL}, x86_64: installed (Original module exists)\n"
        f"nvidia-current/535.261.03: added\nzfs/2.1.11, {KERNEL}, x86_64: installed\n= 0",
        built=f"/lib/modules/{KERNEL}/updates/dkms/nvidia-current.ko.zst|535.261.03",
    )
    assert (found.loaded, found.flavour) == ("580.95.05", "open")
    assert [m.module for m in found.dkms] == ["nvidia-current", "nvidia-current"]
    assert found.built == {KERNEL: {"nvidia-current": "535.261.03"}}


@pytest.mark.parametrize(
    ("lines", "on"),
    [
        (["SecureBoot enabled"], True),
        (["SecureBoot enabled", "SecureBoot validation is disabled in shim"], False),
        (["SecureBoot disabled"], False),
        (["SecureBoot disabled", "Platform is in Setup Mode"], False),
        (["EFI variables are not supported on this system"], False),
        (["This system doesn't support Secure Boot"], False),
        (["no EFI"], False),
        (["   6   0   0   0   1"], True),
        (["   6   0   0   0   0"], False),
        (["Failed to read SecureBoot"], None),
        (["od: /sys/firmware/efi/efivars/SecureBoot-8be4: No such file or directory"], None),
        ([], None),
    ],
)
def test_secure_boot(lines: list[str], on: bool | None) -> None:
    assert secure_boot(lines) is on


def test_only_an_enrolled_key_counts() -> None:
    key = "/var/lib/dkms/mok.pub|/var/lib/dkms/mok.pub is "
    assert not state(keys=f"{key}not enrolled ").enrolled
    assert state(keys=f"{key}already enrolled ").enrolled


def test_the_next_kernel_is_grubs_choice_else_the_newest() -> None:
    images = f"vmlinuz-{KERNEL}\nvmlinuz-6.5.0-9-generic\nvmlinuz-{OTHER}\n"
    assert state(images=images, grub="").next == KERNEL
    assert state(images="", grub="").next == ""
    chosen = samples.GRUB.replace("45-generic", "9-generic")
    assert state(images=images, grub=base64.b64encode(chosen.encode()).decode()).next == (
        "6.5.0-9-generic"
    )
    lost = base64.b64encode(b'set default="Gone"\n' + samples.GRUB[16:].encode()).decode()
    assert "'Gone'" in state(grub=lost).next_fault and state(grub=lost).next == ""
    assert (samples.SOUND.next_fixed, state(grub=lost).next_fixed) == ("", "Gone")


@given(st.integers(min_value=0, max_value=200), st.text(max_size=40))
def test_cut_or_garbled_answers_are_errors_or_whole(cut: int, garbage: str) -> None:
    lines = text()
    try:
        found = parse_state([*lines[:cut], garbage])
    except DriverStateError:
        return
    assert "## end" in [*lines[:cut], garbage.rstrip()] and found.gpus == 2


def test_the_script_runs_in_a_plain_shell() -> None:
    """On whatever machine this is: whole, or an error that says what could not be looked at."""
    done = subprocess.run(["sh", "-c", state_script()], capture_output=True, text=True, timeout=120)
    lines = done.stdout.splitlines()
    assert lines[-1] == "## end"
    try:
        assert parse_state(lines).running
    except DriverStateError as error:
        assert "failed" in str(error)
