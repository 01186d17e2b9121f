"""NVLinks of each card: as many up as the SKU has."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import gpuinfo
from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.checks.gpuinfo import Told
from rackpin.findings import Finding, Level
from rackpin.parse import nvlink
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nvlink_model import STATUS, NvlinkGpu
from rackpin.skus import Sku

STATE = Command("fabric.nvlink", "nvidia-smi nvlink -s", gpuinfo.DEADLINE_S, slow=True)
FIX = (
    "nvidia-smi nvlink -e for the link's errors; drain the node, reset all its cards or reboot; "
    "a link that stays down is a bridge, a baseboard or a card to replace"
)


def _wanted(ctx: Context) -> Sku | str | None:
    """The SKU, or why it isn't known; None where the cards have no NVLink."""
    sku = gpuinfo.sku_of(ctx)
    if not gpuinfo.has_cards(ctx) or (isinstance(sku, Sku) and sku.nvlink is None):
        return None
    return sku


class Links:
    id = "fabric.nvlink"
    title = "All NVLinks are up"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [STATE] if isinstance(_wanted(ctx), Sku) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        sku = _wanted(ctx)
        if sku is None:
            return []
        question = Question(ctx, self.id, STATE, source="skus/: nvlink")
        if isinstance(sku, str):
            return [gpuinfo.unknown_sku(question, sku)]
        output = outputs.get(STATE.name, NO_ANSWER)
        count = sku.nvlink.links if sku.nvlink else 0
        expected = f"{count} links up on each of {ctx.node.gpus} cards"
        question = Question(ctx, self.id, STATE, output, expected, question.source)
        if why := unseen(STATE, output):
            return [question.not_run(f"nvidia-smi: {why}", remedy=gpuinfo.LOOK)]
        try:
            seen = nvlink.read(output.stdout)
        except NotThisKind as error:
            return [question.not_run(f"the answer can't be read: {error}", remedy=gpuinfo.LOOK)]
        if not seen.gpus or seen.tool != STATUS:
            said = one_line("; ".join(seen.errors)) or "no card is in the answer"
            return [question.not_run(f"nvidia-smi: {said}", remedy=gpuinfo.LOOK)]
        return [_judge(question, ctx.node.gpus, count, seen.gpus, seen.errors, output.rc)]


def _judge(
    question: Question,
    gpus: int,
    count: int,
    cards: Sequence[NvlinkGpu],
    errors: Sequence[str],
    rc: int | None,
) -> Finding:
    told = Told()
    if len(cards) != gpus:
        told.faults.append(f"links of {len(cards)} of {gpus} cards are listed")
    for card in cards:
        who = f"GPU {card.index if card.index is not None else '?'}"
        if card.active is None:
            told.untold.append(f"{who}: its links{f' ({card.message})' if card.message else ''}")
        elif card.active < count:
            down = [str(link.link) for link in card.links if link.active is False]
            which = f" (down: {', '.join(down)})" if down and card.active else ""
            told.faults.append(f"{who} has {card.active} of {count} NVLinks up{which}")
        elif card.active > count:
            told.worries.append(f"{who} has {card.active} NVLinks up, the SKU says {count}")
    said = [f"GPU {card.index}: {card.message}" for card in cards]
    told.untold += [one_line(error) for error in errors if error not in said]
    if rc != 0 and not errors:
        told.untold.append(f"nvidia-smi ended with status {rc}")
    speeds = sorted({link.speed for card in cards for link in card.links if link.speed is not None})
    if len(speeds) > 1:
        told.worries.append(f"links have several speeds: {speeds} GB/s")
    return gpuinfo.conclude(
        question,
        f"{count} NVLinks up on each of {len(cards)} cards",
        told,
        shown=question.output.stdout if question.output else "",
        remedy=FIX,
    )


CHECK = Links()
