"""GPUs by number and model: what the bus has, and what the driver gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rackpin.checks import base, gpuinfo
from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Outputs, Question, unseen
from rackpin.checks.gpuinfo import SMI, Told
from rackpin.findings import Finding, Level, Outcome
from rackpin.parse.lspci import lspci
from rackpin.parse.nvidia_smi import Smi
from rackpin.skus import Sku

PCI = Command("gpu.bus", "lspci -Dnn -d 10de:")
CARDS = ("3D controller", "VGA compatible controller", "Display controller")
DEAD = "(rev ff)"  # what lspci reads of a device that doesn't answer any more
SEAT = "power the node off and on; if the card stays away, check its seat and power, or replace it"


class Count:
    id = "gpu.count"
    title = "As many GPUs as the inventory says, on the bus and in the driver"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [PCI, SMI] if gpuinfo.has_cards(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [on_bus(ctx, outputs), in_driver(ctx, outputs)] if self.commands(ctx) else []


def on_bus(ctx: Context, outputs: Outputs) -> Finding:
    """``gpu.bus``: cards on the PCI bus, whatever any driver says of them."""
    output = outputs.get(PCI.name, NO_ANSWER)
    expected = f"{ctx.node.gpus} cards, each answering"
    question = Question(ctx, "gpu.bus", PCI, output, expected, "inventory: gpus")
    if why := unseen(PCI, output):
        return question.not_run(why, remedy="install pciutils; verify again")
    seen = lspci(output.stdout.splitlines())
    if not output.ok or (output.stdout.strip() and not seen.devices):
        return question.not_run("this is no answer of lspci")
    listed = [one for one in seen.devices if one.kind in CARDS and one.slot]
    told = Told()
    if len(listed) != ctx.node.gpus:
        told.faults.append(f"{len(listed)} of {ctx.node.gpus} cards are on the PCI bus")
    dead = [one.slot for one in listed if DEAD in one.name]
    told.faults += [f"the card at {slot} does not answer on the bus (rev ff)" for slot in dead]
    return question.verdict(f"{len(listed)} cards on the bus", told.faults, remedy=SEAT)


def in_driver(ctx: Context, outputs: Outputs) -> Finding:
    """``gpu.count``: cards that nvidia-smi lists; its own refusal to list them is a fault."""
    output = outputs.get(SMI.name, NO_ANSWER)
    expected = f"nvidia-smi lists {ctx.node.gpus} cards without an error"
    question = Question(ctx, "gpu.count", SMI, output, expected, "inventory: gpus")
    smi = gpuinfo.read_smi(outputs)
    if isinstance(smi, str):
        if unseen(SMI, output) or not smi.startswith("nvidia-smi: "):
            return question.not_run(smi, remedy=gpuinfo.LOOK)
        remedy = "see gpu.bus, gpu.modules and gpu.xid for the cause; " + gpuinfo.LOOK
        return question.answer(Outcome.FAIL, smi, remedy=remedy)
    faults = []
    if output.rc != 0:
        said = base.one_line(f"{'; '.join(smi.errors)} {output.stderr}") or "without a word"
        faults.append(f"nvidia-smi ended with status {output.rc}: {said}")
    if len(smi.gpus) != ctx.node.gpus:
        faults.append(f"nvidia-smi lists {len(smi.gpus)} of {ctx.node.gpus} cards")
    for key, values in (
        ("UUID", [card.uuid for card in smi.gpus]),
        ("address", [card.bus_id for card in smi.gpus]),
    ):
        faults += [
            f"{key} {value} is listed {count} times" if value else f"{count} cards tell no {key}"
            for value, count in Counter(values).items()
            if count > 1 or not value
        ]
    for card in smi.gpus:
        if card.bad:
            first = card.bad[0]
            what = f"{len(card.bad)} fields, {first} first: {card.fields.get(first, '')}"
            faults.append(f"{gpuinfo.name(card)} answers with errors ({what})")
    shown = gpuinfo.table(smi.gpus, "product_name", "uuid", "serial")
    return question.verdict(f"{len(smi.gpus)} cards", faults, shown=shown, remedy=SEAT)


def _model(ctx: Context, sku: Sku | None, smi: Smi, told: Told) -> str:
    want = sku.gpus.model if sku else ""
    for card in smi.gpus:
        if card.name is None:
            told.untold.append(f"{gpuinfo.name(card)}: its model")
        elif card.name != want:
            told.faults.append(f"{gpuinfo.name(card)} is {card.name}")
    if sku and sku.gpus.count != ctx.node.gpus:
        told.worries.append(
            f"the inventory says {ctx.node.gpus} GPUs, the SKU {sku.name} has {sku.gpus.count}"
        )
    return f"all are {want}"


CHECK = Count()
MODEL = gpuinfo.CardCheck(
    id="gpu.model",
    title="The GPUs are of the SKU's model",
    expected="every card is the SKU's model",
    source="skus/: gpus",
    remedy="correct the node's sku in the inventory, or the card that doesn't belong there",
    ends=("product_name", "serial"),
    look=_model,
    needs_sku=True,
)
