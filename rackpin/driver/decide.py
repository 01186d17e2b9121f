"""Comparing a node's driver with the wish: refusals, what is missing, when a reboot is due. Pure.

A reboot is only ever a consequence of :func:`reboot_reasons`, and never happens while
:func:`reboot_faults` has something to say.
"""

from __future__ import annotations

from rackpin.audit.node.boot import version_key
from rackpin.driver.state import DriverState
from rackpin.driver.want import Want

STOP = "systemctl stop"


def absent(state: DriverState) -> str:
    """Why the stage leaves a node alone; "" when there are GPUs to drive."""
    return "" if state.gpus else "no NVIDIA GPU is on its PCI bus"


def target_kernel(want: Want, state: DriverState) -> str:
    """The kernel that the node should run."""
    return want.kernel or state.running


def required_kernels(want: Want, state: DriverState) -> list[str]:
    """Kernels that must have the modules: the one that stays running, and that of the next boot."""
    target = target_kernel(want, state)
    return list(dict.fromkeys([target, state.next or target]))


def option_differences(want: Want, state: DriverState) -> list[str]:
    """Options that the loaded module doesn't have; what it doesn't list can't be told."""
    found = []
    for name, value in want.options.items():
        now = state.params.get(name.removeprefix("NVreg_"))
        if state.loaded and now is not None and _plain(now) != _plain(value):
            found.append(f"{name} is {now}, not {value}")
    return found


def _plain(value: str) -> str:
    text = value.strip().strip('"')
    try:
        return str(int(text, 0))
    except ValueError:
        return text


def reboot_reasons(want: Want, state: DriverState) -> list[str]:
    """Everything that only a reboot brings about; empty: none is needed."""
    reasons = []
    if state.running != target_kernel(want, state):
        reasons.append(f"kernel {state.running} runs, {want.kernel} is pinned")
    if "nouveau" in state.modules:
        reasons.append("nouveau is loaded and holds the cards")
    if state.loaded and state.loaded != want.version:
        reasons.append(f"the loaded module is {state.loaded}, {want.version} is pinned")
    if state.flavour and state.loaded and state.flavour != want.flavour:
        reasons.append(f"the loaded module is the {state.flavour} one, {want.flavour} is pinned")
    return reasons + option_differences(want, state)


def busy(state: DriverState) -> list[str]:
    """What would lose its card or its host by a change."""
    others = [f"process {holder}" for holder in state.holders] if not state.engines else []
    return [*state.engines, *others]


def module_faults(want: Want, state: DriverState, kernel: str) -> list[str]:
    """Why this kernel would not have the pinned driver."""
    entries = [m for m in state.dkms if m.kernel == kernel]
    mine = [m for m in entries if m.module == want.module and m.version == want.version]
    faults = [
        f"DKMS has {m.module}/{m.version} for {kernel} too"
        for m in entries
        if m not in mine and m.state in ("installed", "built")
    ]
    if not any(m.state == "installed" for m in mine):
        now = next((m.state for m in mine), "not built")
        why = "" if kernel in state.headers else ", its headers are missing"
        said = f" ({'; '.join(state.errors[:2])})" if state.errors else ""
        faults.append(f"{want.module}/{want.version} for {kernel} is {now}{why}{said}")
    elif any(m.differs for m in mine):
        faults.append(f"modules of {kernel} are not the ones that DKMS built")
    files = state.built.get(kernel, {})
    for part in want.parts:
        version = files.get(part)
        if version is None:
            faults.append(f"/lib/modules/{kernel}/updates/dkms has no {part}.ko")
        elif version != want.version:
            faults.append(f"{part}.ko of {kernel} is {version or 'not readable'}")
    return faults


def next_faults(want: Want, state: DriverState) -> list[str]:
    """Why the next boot would not be into the wanted kernel."""
    target = target_kernel(want, state)
    if state.next_fault:
        return [f"which kernel the next boot takes can't be told: {state.next_fault}"]
    if not state.next:
        return ["no kernel is in /boot"]
    if want.kernel and state.next != target:
        return [f"the next boot takes {state.next}, not {target}"]
    return []


def proof_faults(want: Want, state: DriverState) -> list[str]:
    """Why the driver isn't proven for the running and the next kernel."""
    faults = next_faults(want, state) if state.kernels or state.next_fault else []
    for kernel in required_kernels(want, state):
        faults += module_faults(want, state, kernel)
    return faults


def reboot_faults(want: Want, state: DriverState) -> list[str]:
    """Why the node must not be rebooted now."""
    faults = next_faults(want, state)
    after = state.next or target_kernel(want, state)
    faults += module_faults(want, state, after)
    if after in state.kernels and after not in state.initrds:
        faults.append(f"/boot has no initrd.img-{after}")
    if state.dpkg_broken:
        faults.append("dpkg is not whole")
    if want.reboot == "never":
        faults.append('the inventory says "reboot": "never"')
    elif busy(state) and want.reboot != "allowed":
        faults.append(f"{', '.join(busy(state))} would be stopped")
    return faults


def to_build(want: Want, state: DriverState) -> list[str]:
    """Kernels whose modules have to be built first."""
    return [k for k in required_kernels(want, state) if module_faults(want, state, k)]


def loaded_faults(want: Want, state: DriverState) -> list[str]:
    """Why what runs now isn't what was wanted: after a reboot or a load nothing may be left."""
    faults = reboot_reasons(want, state)
    if not state.loaded:
        faults.append("no NVIDIA module is loaded")
    return faults


def newer_kernels(want: Want, state: DriverState) -> list[str]:
    """Installed kernels that a boot would take before the pinned one."""
    if not want.kernel or state.next in ("", want.kernel):
        return []
    pinned = version_key(want.kernel)
    return [k for k in state.kernels if version_key(k) > pinned]


def notes(want: Want, state: DriverState) -> list[str]:
    """What a person should know; nothing is done about it."""
    found = []
    if want.nvswitch and not state.nvswitches:
        found.append("no NVSwitch is on the PCI bus, the inventory says that there are some")
    if state.gpus != want.gpus:
        found.append(f"{state.gpus} GPUs are on the PCI bus, the inventory says {want.gpus}")
    unknown = [
        n for n in want.options if state.params and n.removeprefix("NVreg_") not in state.params
    ]
    if unknown:
        found.append(f"the loaded module lists no {', '.join(unknown)}: whether set can't be told")
    return found
