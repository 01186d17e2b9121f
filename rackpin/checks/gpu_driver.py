"""The driver: one version in the kernel, on disk, in the libraries and in the lock; its modules."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Outputs,
    Question,
    sections,
    unseen,
)
from rackpin.checks.gpuinfo import SMI, Told
from rackpin.findings import Finding, Level
from rackpin.parse.nvidia_smi_list import kernel_module

# Each section has the answer of one question; a file that isn't there leaves it empty.
KERNEL = Command(
    "gpu.kernel",
    """echo '## loaded'; cat /proc/driver/nvidia/version 2>/dev/null
echo '## disk'; modinfo -F version nvidia 2>/dev/null
echo '## libraries'
for l in libnvidia-ml.so.1 libcuda.so.1; do
  p=$(ldconfig -p 2>/dev/null | awk -v l="$l" '$1 == l && /x86-64|AArch64/ {print $NF; exit}')
  [ -n "$p" ] && readlink -f "$p"; done
echo '## modules'; cat /proc/modules
echo '## nodes'; ls -d /dev/nvidia* 2>/dev/null
echo '## release'; uname -r
echo '## end'
""",
)
_VERSION = re.compile(r"\d{3}\.\d{2,3}(?:\.\d{2})?")
_MODULE = re.compile(r"^([a-z0-9_]+) \d+ \d+ ", re.MULTILINE)
AGAIN = (
    "install the lock's driver (deploys/site.py), then reboot so that module and libraries agree"
)


def kernel_answer(outputs: Outputs) -> dict[str, str] | str:
    """Sections of :data:`KERNEL`, or why they can't be had."""
    output = outputs.get(KERNEL.name, NO_ANSWER)
    if why := unseen(KERNEL, output):
        return why
    found = sections(output.stdout)
    if not output.ok or "end" not in found or not _MODULE.search(found.get("modules", "")):
        return "its answer is not whole: no list of loaded modules"
    return found


def loaded_modules(found: dict[str, str]) -> set[str]:
    return set(_MODULE.findall(found.get("modules", "")))


def driver_state(found: dict[str, str]) -> tuple[str | None, str | None]:
    """Version and flavour (open, proprietary) of the module that is loaded."""
    module = kernel_module(found.get("loaded", "").splitlines())
    return (module.version, module.flavour) if module else (None, None)


class Driver:
    id = "gpu.driver"
    title = "The driver is one, and the lock's"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [KERNEL, SMI] if gpuinfo.has_cards(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [versions(ctx, outputs), modules(ctx, outputs)] if self.commands(ctx) else []


def versions(ctx: Context, outputs: Outputs) -> Finding:
    """``gpu.driver``: loaded module = module on disk = what nvidia-smi says = libraries = lock."""
    pin = ctx.lock.host.driver
    expected = f"{pin.version} everywhere" if pin else "one version everywhere"
    output = outputs.get(KERNEL.name, NO_ANSWER)
    source = f"lock {ctx.lock.stack}: host.driver"
    question = Question(ctx, "gpu.driver", KERNEL, output, expected, source)
    found = kernel_answer(outputs)
    if isinstance(found, str):
        return question.not_run(found)
    smi = gpuinfo.read_smi(outputs)
    told = Told()
    seen = _seen(found, told)
    if isinstance(smi, str):
        told.untold.append(f"the version that programs meet: {smi}")
        if "version mismatch" in smi:
            told.faults.append("the libraries are of another version than the loaded module")
    elif smi.driver is None:
        told.untold.append("nvidia-smi: the driver's version")
    else:
        seen["nvidia-smi"] = smi.driver
    want = pin.version if pin else seen.get("loaded module", "")
    told.faults += [f"{what}: {version}, not {want}" for what, version in seen.items() if want]
    told.faults = [fault for fault in told.faults if not fault.endswith(f": {want}, not {want}")]
    if pin is None:
        told.worries.append("the lock pins no driver: compared only among themselves")
    shown = "\n".join(f"{what}: {version}" for what, version in seen.items())
    return gpuinfo.conclude(question, f"driver {want}", told, shown=shown, remedy=AGAIN)


def _seen(found: dict[str, str], told: Told) -> dict[str, str]:
    loaded, _ = driver_state(found)
    disk = _VERSION.fullmatch(found.get("disk", "").strip())
    seen: dict[str, str] = {}
    if loaded is None:
        told.faults.append("the NVIDIA module is not loaded")
    else:
        seen["loaded module"] = loaded
    if disk is None:
        told.faults.append("modinfo knows no NVIDIA module for this kernel: after a reboot none")
    else:
        seen["module on disk"] = disk[0]
    for path in found.get("libraries", "").split():
        if match := re.search(r"/(lib[\w-]+)\.so\.(" + _VERSION.pattern + r")$", path):
            seen[match[1]] = match[2]
    return seen


def modules(ctx: Context, outputs: Outputs) -> Finding:
    """``gpu.modules``: NVIDIA's module and not nouveau, uvm, and a device node for each card."""
    output = outputs.get(KERNEL.name, NO_ANSWER)
    expected = f"nvidia and nvidia_uvm loaded, no nouveau, nodes of {ctx.node.gpus} cards in /dev"
    source = "NVIDIA, Linux driver README: modules and device files"
    question = Question(ctx, "gpu.modules", KERNEL, output, expected, source)
    found = kernel_answer(outputs)
    if isinstance(found, str):
        return question.not_run(found)
    loaded, nodes = loaded_modules(found), set(found.get("nodes", "").split())
    told, remedies = Told(), []
    if "nouveau" in loaded:
        told.faults.append("nouveau is loaded and owns the cards")
        remedies.append("blacklist nouveau, rebuild the initramfs (deploys/site.py does), reboot")
    if "nvidia" not in loaded:
        told.faults.append("the module nvidia is not loaded")
        remedies.append("modprobe nvidia, and see what it says; dkms status for the kernel")
    else:
        cards = [node for node in nodes if re.fullmatch(r"/dev/nvidia\d+", node)]
        if len(cards) < ctx.node.gpus:
            told.faults.append(f"{len(cards)} of {ctx.node.gpus} cards have a node in /dev")
        if "/dev/nvidiactl" not in nodes:
            told.faults.append("/dev/nvidiactl is missing")
        if "nvidia_uvm" not in loaded or "/dev/nvidia-uvm" not in nodes:
            told.worries.append("nvidia_uvm is not there: the first CUDA program must load it")
        remedies.append("nvidia-modprobe -u -c 0; nvidia-persistenced keeps the nodes")
    shown = "\n".join([*sorted(loaded & _OURS), *sorted(nodes)])
    return question.verdict(
        "nvidia and nvidia_uvm are loaded, every card has its node",
        told.faults,
        told.worries,
        shown=shown,
        remedy="; ".join(remedies),
    )


_OURS = {"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nouveau"}
CHECK = Driver()
