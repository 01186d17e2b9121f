"""Each fault of a node leads to its refusal, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rackpin.driver import decide
from rackpin.driver.preflight import problems
from rackpin.driver.state import DriverState
from rackpin.driver.want import Want
from rackpin.inventory_problems import Problem
from tests.unit.driver_samples import BARE, KERNEL, OTHER, READY, SOUND, VERSION, WANT, dkms

NEWER = "6.5.0-46-generic"
PINS = {"nvidia-driver-535": f"{VERSION}-0ubuntu1", "nvidia-fabricmanager-535": f"{VERSION}-1"}
FABRIC = {"nvidia-fabricmanager-535": f"{VERSION}-1"}


def found(
    want: Want = WANT,
    state: DriverState = SOUND,
    installed: dict[str, str] | None = None,
    fabric: dict[str, str | None] | None = None,
) -> list[Problem]:
    have = PINS if installed is None else installed
    return problems("gpu1", want, state, have, PINS, FABRIC if fabric is None else fabric)


def keys(problems: list[Problem]) -> list[str]:
    return [problem.key for problem in problems]


@pytest.mark.parametrize("state", [SOUND, BARE, READY])
def test_a_sound_node_and_a_bare_one_have_no_problem(state: DriverState) -> None:
    assert found(state=state) == []


def test_a_host_without_a_gpu_is_left_alone_whatever_else_is_wrong_with_it() -> None:
    bad = replace(SOUND, gpus=0, secure_boot=True, foreign=("/usr/bin/nvidia-uninstall",))
    assert decide.absent(bad) and found(state=bad) == []
    assert not decide.absent(SOUND)


def test_secure_boot_is_refused_until_a_key_is_enrolled() -> None:
    on = replace(BARE, secure_boot=True)
    (problem,) = found(state=on)
    assert problem.key == "secure boot" and "mokutil --import" in problem.remedy
    assert found(state=replace(on, enrolled=True)) == []
    (problem,) = found(state=replace(BARE, secure_boot=None))
    assert "can't be told" in problem.message


def test_a_run_install_is_found_and_named() -> None:
    files = ("/usr/bin/nvidia-uninstall", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.54.15")
    (problem,) = found(state=replace(BARE, foreign=files))
    assert all(file in problem.message for file in files) and ".run" in problem.message
    assert "nvidia-uninstall" in problem.remedy


def test_a_newer_kernel_that_would_boot_first() -> None:
    after = replace(SOUND, kernels=(KERNEL, NEWER), next=NEWER)
    (problem,) = found(state=after)
    assert problem.key == "next boot" and f"purge linux-image-{NEWER}" in problem.remedy
    chosen = replace(after, next=KERNEL)
    assert found(state=chosen) == [], "GRUB's default may say otherwise"
    fixed = replace(BARE, next_fixed="1>2")
    (problem,) = found(state=fixed)
    assert "'1>2', which boots 6.5.0-44-generic" in problem.message
    assert found(state=replace(SOUND, next_fixed="1>2")) == []
    (problem,) = found(state=replace(SOUND, next="", next_fault="GRUB's default isn't there"))
    assert problem.message == "GRUB's default isn't there"


def test_headers_must_be_there_when_the_stack_pins_no_kernel() -> None:
    loose = replace(WANT, kernel="")
    assert found(loose) == []
    (problem,) = found(loose, replace(BARE, modules=frozenset()))
    assert problem.key == "kernel" and f"linux-headers-{OTHER}" in problem.remedy


def test_nvswitches_that_nobody_knows_of() -> None:
    assert keys(found(replace(WANT, nvswitch=False))) == ["nvswitch"]
    assert keys(found(replace(WANT, fabric_manager=False))) == ["nvswitch"]
    none = replace(SOUND, nvswitches=0)
    assert found(replace(WANT, nvswitch=False, fabric_manager=False), none) == []
    assert any("no NVSwitch" in note for note in decide.notes(WANT, none))
    assert decide.notes(WANT, SOUND) == []


@pytest.mark.parametrize("version", ["535.183.01-1", "535.129.3-1", "1:535.1-1"])
def test_a_fabric_manager_of_another_version(version: str) -> None:
    (problem,) = found(fabric={"nvidia-fabricmanager-535": version})
    assert problem.key == "fabric manager" and version in problem.message


def test_the_driver_never_changes_under_an_engine() -> None:
    serving = replace(SOUND, engines=("ray-worker.service", "vllm@big.service"))
    assert found(state=serving) == [], "nothing changes"
    older = {**PINS, "nvidia-driver-535": "535.104.05-0ubuntu1"}
    (problem,) = found(state=serving, installed=older)
    assert "535.104.05-0ubuntu1 → 535.129.03-0ubuntu1" in problem.message
    assert "systemctl stop ray-worker.service vllm@big.service" in problem.remedy
    assert "reboot=allowed" in problem.remedy
    assert found(replace(WANT, reboot="allowed"), serving, older) == []
    assert found(state=SOUND, installed=older) == [], "nobody uses it"
    (problem,) = found(state=replace(serving, loaded="535.104.05"))
    assert "the loaded module is 535.104.05" in problem.message
    other = replace(SOUND, holders=("4711 python3",), loaded="535.104.05")
    (problem,) = found(state=other)
    assert "process 4711 python3" in problem.message


def test_a_reboot_that_the_site_forbids() -> None:
    never = replace(WANT, reboot="never")
    assert found(never) == []
    (problem,) = found(never, BARE)
    assert problem.key == "reboot" and "nouveau" in problem.message and KERNEL in problem.message


REASONS: list[tuple[dict[str, Any], str]] = [
    ({"running": OTHER}, f"kernel {OTHER} runs, {KERNEL} is pinned"),
    ({"modules": frozenset({"nouveau"}), "loaded": "", "flavour": ""}, "nouveau"),
    ({"loaded": "535.104.05"}, "the loaded module is 535.104.05"),
    ({"flavour": "open"}, "the open one"),
]


@pytest.mark.parametrize(("changes", "words"), REASONS)
def test_each_reason_for_a_reboot(changes: dict[str, Any], words: str) -> None:
    (reason,) = decide.reboot_reasons(WANT, replace(SOUND, **changes))
    assert words in reason


def test_no_reboot_without_a_reason() -> None:
    assert decide.reboot_reasons(WANT, SOUND) == []
    fresh = replace(SOUND, loaded="", flavour="", params={}, modules=frozenset())
    assert decide.reboot_reasons(WANT, fresh) == [], "a module can simply be loaded"
    assert decide.loaded_faults(WANT, fresh) == ["no NVIDIA module is loaded"]


def test_options_are_compared_as_numbers_and_never_guessed() -> None:
    def with_option(value: str) -> Want:
        return replace(WANT, options={"NVreg_EnableGpuFirmware": value})

    assert decide.reboot_reasons(with_option("0x12"), SOUND) == []
    (reason,) = decide.reboot_reasons(with_option("0"), SOUND)
    assert reason == "NVreg_EnableGpuFirmware is 18, not 0"
    unknown = replace(WANT, options={"NVreg_NoSuchThing": "1"})
    assert decide.reboot_reasons(unknown, SOUND) == [], "it would reboot for ever"
    assert "NVreg_NoSuchThing" in decide.notes(unknown, SOUND)[0]
    words = replace(WANT, options={"NVreg_RegistryDwords": "a=1"})
    assert decide.reboot_reasons(words, replace(SOUND, params={"RegistryDwords": '"a=1"'})) == []


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"dkms": ()}, "is not built"),
    ({"dkms": (dkms(VERSION, KERNEL, "built"),)}, "is built"),
    ({"dkms": (dkms(VERSION, KERNEL, "added"),)}, "is added"),
    ({"dkms": (dkms(VERSION, OTHER),)}, "is not built"),
    ({"dkms": (*SOUND.dkms, dkms("550.54.15", KERNEL))}, "DKMS has nvidia/550.54.15"),
    ({"dkms": (replace(SOUND.dkms[0], differs=1),)}, "not the ones that DKMS built"),
    ({"built": {}}, "has no nvidia.ko"),
    ({"built": {KERNEL: {"nvidia": VERSION}}}, "has no nvidia-uvm.ko"),
    ({"built": {KERNEL: {"nvidia": "535.104.05", "nvidia-uvm": VERSION}}}, "is 535.104.05"),
    ({"built": {KERNEL: {"nvidia": "", "nvidia-uvm": VERSION}}}, "not readable"),
]


@pytest.mark.parametrize(("changes", "words"), FAULTS)
def test_no_proof_and_no_reboot_without_the_modules(changes: dict[str, Any], words: str) -> None:
    for state in (replace(SOUND, **changes), replace(READY, **changes)):
        assert any(words in fault for fault in decide.proof_faults(WANT, state))
        assert any(words in fault for fault in decide.reboot_faults(WANT, state))


def test_a_missing_module_says_why() -> None:
    state = replace(SOUND, dkms=(), headers=(), errors=("nv.c:7:1: error: no DRM_UNLOCKED",))
    (fault, *_) = decide.module_faults(WANT, state, KERNEL)
    assert "headers are missing" in fault and "no DRM_UNLOCKED" in fault


def test_both_kernels_are_proved() -> None:
    assert decide.required_kernels(WANT, READY) == [KERNEL]
    loose = replace(WANT, kernel="")
    assert decide.required_kernels(loose, READY) == [OTHER, KERNEL]
    assert decide.to_build(loose, READY) == [OTHER]
    both = replace(
        READY,
        dkms=(*READY.dkms, dkms(VERSION, OTHER)),
        built={KERNEL: SOUND.built[KERNEL], OTHER: SOUND.built[KERNEL]},
    )
    assert decide.proof_faults(loose, both) == [] and decide.to_build(loose, both) == []


NOT_NOW: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"next": NEWER}, {}, f"the next boot takes {NEWER}"),
    ({"next": "", "next_fault": "GRUB says nothing"}, {}, "GRUB says nothing"),
    ({"next": "", "kernels": ()}, {}, "no kernel is in /boot"),
    ({"initrds": (OTHER,)}, {}, f"no initrd.img-{KERNEL}"),
    ({"dpkg_broken": True}, {}, "dpkg is not whole"),
    ({"engines": ("vllm@big.service",)}, {}, "vllm@big.service would be stopped"),
    ({"holders": ("4711 python3",)}, {}, "process 4711 python3 would be stopped"),
    ({}, {"reboot": "never"}, '"never"'),
]


@pytest.mark.parametrize(("found_", "wish", "words"), NOT_NOW)
def test_each_refusal_of_a_reboot(found_: dict[str, Any], wish: dict[str, Any], words: str) -> None:
    faults = decide.reboot_faults(replace(WANT, **wish), replace(READY, **found_))
    assert any(words in fault for fault in faults)


def test_a_reboot_that_may_be() -> None:
    assert decide.reboot_reasons(WANT, READY) and decide.reboot_faults(WANT, READY) == []
    serving = replace(READY, engines=("vllm@big.service",))
    assert decide.reboot_faults(replace(WANT, reboot="allowed"), serving) == []
