"""Fabric manager, where NVSwitches join the cards: it runs, at the driver's version."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.checks import gpu_driver, gpuinfo
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
from rackpin.checks.gpu_driver import KERNEL
from rackpin.checks.gpuinfo import Told
from rackpin.findings import Finding, Level
from rackpin.parse.fabric_manager import fabric_manager
from rackpin.parse.loglines import lines
from rackpin.parse.nvidia_smi import Smi
from rackpin.skus import Sku

UNIT = "nvidia-fabricmanager.service"
SHOW = ("LoadState", "ActiveState", "SubState", "Result")
MANAGER = Command(
    "fabric.manager",
    f"""echo '## unit'; systemctl show {UNIT} {" ".join(f"-p {key}" for key in SHOW)}
echo '## version'; timeout 5 nv-fabricmanager --version 2>&1
echo '## journal'; journalctl -u {UNIT} -b -q --no-pager -n 60 -o cat 2>/dev/null
echo '## end'
""",
)
_VERSION = re.compile(r"Fabric Manager version is\s*:\s*(\d{3}\.\d{2,3}(?:\.\d{2})?)", re.I)
FIX = (
    f"install fabric manager at the driver's version (deploys/site.py), then systemctl restart "
    f"{UNIT}; journalctl -u {UNIT} says why it fails"
)


def switched(ctx: Context) -> bool:
    return gpuinfo.has_cards(ctx) and ctx.node.nvswitch


class Manager:
    id = "fabric.manager"
    title = "Fabric manager runs, at the driver's version"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [MANAGER, KERNEL] if switched(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not switched(ctx):
            return []
        output = outputs.get(MANAGER.name, NO_ANSWER)
        expected = f"{UNIT} active, its version that of the loaded driver"
        source = "NVIDIA, fabric manager user guide: version must match the driver's"
        question = Question(ctx, self.id, MANAGER, output, expected, source)
        if why := unseen(MANAGER, output):
            return [question.not_run(why)]
        found = sections(output.stdout)
        unit = dict(
            line.split("=", 1) for line in found.get("unit", "").splitlines() if "=" in line
        )
        if not output.ok or "end" not in found or "ActiveState" not in unit:
            return [question.not_run("systemctl said nothing of the unit")]
        told = Told()
        version = _judge(found, unit, outputs, told)
        return [
            gpuinfo.conclude(
                question,
                f"fabric manager {version} runs",
                told,
                shown=output.stdout,
                remedy=FIX,
            )
        ]


def _judge(found: dict[str, str], unit: dict[str, str], outputs: Outputs, told: Told) -> str:
    if unit.get("LoadState") == "not-found":
        told.faults.append("fabric manager is not installed")
    elif unit["ActiveState"] != "active":
        state = f"{unit['ActiveState']} ({unit.get('SubState', '')}, {unit.get('Result', '')})"
        told.faults.append(f"fabric manager is {state}")
    match = _VERSION.search(found.get("version", ""))
    said = fabric_manager(lines(found.get("version", "") + found.get("journal", "")))
    version = match[1] if match else (said.version if said else None)
    kernel = gpu_driver.kernel_answer(outputs)
    driver = None if isinstance(kernel, str) else gpu_driver.driver_state(kernel)[0]
    if version is None or driver is None:
        told.untold.append(f"versions: fabric manager {version}, loaded driver {driver}")
    elif version != driver:
        told.faults.append(f"fabric manager is {version}, the loaded driver {driver}")
    if said and said.errors:
        told.worries.append(f"it logged: {said.errors[-1]}")
    return version or ""


def _fabric(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    for card in smi.gpus:
        who, state, status = gpuinfo.name(card), card.fabric_state, card.fabric_status
        if state is None:
            told.untold.append(f"{who}: its state in the fabric")
        elif state != "Completed":
            told.faults.append(f"{who} is not in the fabric: {state} {status or ''}".strip())
        elif status is None:
            told.untold.append(f"{who}: how joining the fabric ended")
        elif status != "Success":
            told.faults.append(f"{who} joined the fabric with {status}")
    return "every card is in the fabric"


def _tells_state(ctx: Context) -> bool:
    """Before Hopper nvidia-smi has no state of the fabric, though there are NVSwitches."""
    sku = gpuinfo.sku_of(ctx)
    return switched(ctx) and (isinstance(sku, str) or sku.gpus.fabric_state)


CHECK = Manager()
GPUS = gpuinfo.CardCheck(
    id="fabric.gpus",
    title="Every card has joined the NVSwitch fabric",
    expected="state Completed, status Success on every card",
    source=f"skus/: gpus.fabric_state; {gpuinfo.NVIDIA}",
    remedy=FIX,
    ends=("fabric / state", "fabric / status"),
    look=_fabric,
    needs_sku=True,
    asks=_tells_state,
)
