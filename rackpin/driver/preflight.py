"""What must be true of a node before its driver is touched. Pure: survey in, problems out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rackpin.driver import decide
from rackpin.driver.decide import STOP, busy, newer_kernels, reboot_reasons
from rackpin.driver.state import DriverState
from rackpin.driver.want import Want, upstream
from rackpin.inventory_problems import Problem

Found = tuple[str, str, str]  # key, what is wrong, what to do


def problems(
    node: str,
    want: Want,
    state: DriverState,
    installed: Mapping[str, str],
    wished: Mapping[str, str | None],
    fabric: Mapping[str, str | None],
) -> list[Problem]:
    """Everything that must be decided by a person first.

    ``installed``: versions of the stage's packages as found; ``wished``: the stage's packages with
    their pins; ``fabric``: the stack's fabric manager packages with theirs.
    """
    if decide.absent(state):
        return []
    found = [
        *_secure_boot(want, state),
        *_foreign(want, state),
        *_kernels(want, state),
        *_fabric(want, state, fabric),
        *_change(want, state, installed, wished),
    ]
    return [Problem(node, key, what, remedy) for key, what, remedy in found]


def _secure_boot(want: Want, state: DriverState) -> Iterator[Found]:
    way = (
        "switch Secure Boot off in the firmware, or enrol DKMS's key on the node's console: "
        "mokutil --import /var/lib/dkms/mok.pub (Ubuntu: /var/lib/shim-signed/mok/MOK.der; "
        "`dkms generate_mok` or update-secureboot-policy makes it), then reboot"
    )
    if state.secure_boot is None:
        yield (
            "secure boot",
            "whether it is on can't be told",
            f"install mokutil; if it is on, {way}",
        )
    elif state.secure_boot and not state.enrolled:
        what = "is on and no key of DKMS is enrolled: the kernel would reject the module"
        yield "secure boot", what, way


def _foreign(want: Want, state: DriverState) -> Iterator[Found]:
    if state.foreign:
        some = ", ".join(state.foreign[:4])
        yield (
            "driver",
            f"one was installed by hand, from a .run file: {some} "
            f"{'belongs' if len(state.foreign) == 1 else 'belong'} to no package",
            "when the node serves nothing: nvidia-uninstall (or sh NVIDIA-Linux-x86_64-VERSION.run "
            "--uninstall), remove what is left, then run again",
        )


def _kernels(want: Want, state: DriverState) -> Iterator[Found]:
    if state.next_fault:
        yield "next boot", state.next_fault, "correct GRUB_DEFAULT, then update-grub"
    elif want.kernel and state.next_fixed and state.next != want.kernel:
        yield (
            "next boot",
            f"GRUB's default is {state.next_fixed!r}, which boots {state.next}, not the pinned "
            f"{want.kernel}",
            "set GRUB_DEFAULT to 0 (or to the pinned kernel), then update-grub",
        )
    elif newer := newer_kernels(want, state):
        yield (
            "next boot",
            f"would take {state.next}, not the pinned {want.kernel}",
            f"purge {', '.join(f'linux-image-{k}' for k in newer)}, or set GRUB_DEFAULT and "
            "update-grub",
        )
    if not want.kernel:
        for kernel in decide.required_kernels(want, state):
            if kernel not in state.headers and decide.module_faults(want, state, kernel):
                yield (
                    "kernel",
                    f"the stack pins none, and headers of {kernel} are missing",
                    f"pin kernel in the stack, or install linux-headers-{kernel}",
                )


def _fabric(want: Want, state: DriverState, fabric: Mapping[str, str | None]) -> Iterator[Found]:
    if state.nvswitches and not want.nvswitch:
        yield (
            "nvswitch",
            f"{state.nvswitches} NVSwitches are on the bus, the inventory says there is none; "
            "without fabric manager no GPU works",
            'give the node "nvswitch": True, or its SKU nvswitch: true',
        )
    if (want.nvswitch or state.nvswitches) and not want.fabric_manager:
        yield (
            "nvswitch",
            "the node has NVSwitches and its stack no fabric manager",
            "take a stack with driver.fabric_manager: true",
        )
    for name, version in fabric.items():
        if version is not None and upstream(version) != want.version:
            yield (
                "fabric manager",
                f"{name} is pinned at {version}, the driver at {want.version}: it takes only its "
                "own version",
                "lock again, or correct apt_pins",
            )


def changes(
    want: Want,
    state: DriverState,
    installed: Mapping[str, str],
    wished: Mapping[str, str | None],
) -> list[str]:
    """What the stage would do to a driver that is in use."""
    moved = [
        f"{name} {installed[name]} → {version}"
        for name, version in wished.items()
        if name in installed and version is not None and installed[name] != version
    ]
    some = [*moved[:3], f"{len(moved) - 3} packages more"] if len(moved) > 3 else moved
    return [*some, *reboot_reasons(want, state)]


def _change(
    want: Want,
    state: DriverState,
    installed: Mapping[str, str],
    wished: Mapping[str, str | None],
) -> Iterator[Found]:
    reasons = reboot_reasons(want, state)
    todo = changes(want, state, installed, wished)
    if reasons and want.reboot == "never":
        what = f'is needed and the inventory says "never": {"; ".join(reasons)}'
        yield "reboot", what, 'reboot the node yourself, or give it "reboot": "idle" for this run'
    elif todo and busy(state) and want.reboot != "allowed":
        units = " ".join(state.engines)
        drain = f"{STOP} {units}" if units else "end them"
        yield (
            "driver",
            f"would change under {', '.join(busy(state))}: {'; '.join(todo)}",
            f"drain the node and `{drain}` there, or give it "
            '"reboot": "allowed" for this run (--limit NODE --data reboot=allowed)',
        )
