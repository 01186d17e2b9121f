"""What the GPU checks share: the SKU's facts, the questions to the driver, its answers read once.

``nvidia-smi`` runs beside the other slow commands: one that hangs costs its deadline only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Needs,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.findings import Finding, Level
from rackpin.parse import nvidia_smi
from rackpin.parse.kinds import NotThisKind
from rackpin.parse.nvidia_smi import Smi
from rackpin.parse.nvidia_smi_model import Gpu
from rackpin.skus import Sku, SkuError, load_sku

NO_CARD = "none"  # the model of SKUs without any card
DEADLINE_S = 30.0  # without persistence mode each call first initializes every card
AT_WORK = 5  # percent of utilization: below it, only somebody's look at the card
NVIDIA = "NVIDIA, nvidia-smi documentation"
LOOK = "run nvidia-smi -q on the node; when it says so too, drain the node and hand it to hardware"

# Lists of clocks and of past processes are most of the text and nobody's question here. The
# status is nvidia-smi's own, not the filter's.
SMI = Command(
    "gpu.smi",
    "t=$(nvidia-smi -q -x); r=$?; printf '%s\\n' \"$t\" | sed -e "
    "'/<supported_clocks>$/,/<\\/supported_clocks>/d' -e "
    "'/<accounted_processes>$/,/<\\/accounted_processes>/d'; exit $r",
    DEADLINE_S,
    slow=True,
)


@lru_cache(maxsize=64)
def _sku(name: str) -> Sku | str:
    try:
        return load_sku(name)
    except SkuError as error:
        return str(error)


def sku_of(ctx: Context) -> Sku | str:
    """What the node's hardware should be, or why nobody knows."""
    return _sku(ctx.node.sku)


def has_cards(ctx: Context) -> bool:
    """The inventory says that there are GPUs; a SKU without cards only counts places for Ray."""
    sku = sku_of(ctx)
    return ctx.node.gpus > 0 and (isinstance(sku, str) or sku.gpus.model != NO_CARD)


def unknown_sku(question: Question, why: str) -> Finding:
    """What should be there isn't known, so nothing is judged by it."""
    remedy = (
        "copy the nearest file of skus/, write down what this hardware is and where that stands, "
        "and name it in the inventory"
    )
    return question.not_run(one_line(why), remedy=remedy)


@dataclass
class Told:
    """What one check found: wrong, odd, and not told (which is never right)."""

    faults: list[str] = field(default_factory=list)
    worries: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)


def conclude(
    question: Question,
    good: str,
    told: Told,
    *,
    shown: str,
    remedy: str,
    metrics: Mapping[str, float] | None = None,
) -> Finding:
    """``fail`` with faults, else ``not_run`` where something isn't told, else by the worries."""
    if told.untold and not told.faults:
        return question.not_run("; ".join([*told.untold[:6], *told.worries[:6]]), remedy=remedy)
    faults = [*told.faults, *(f"not told: {what}" for what in told.untold)]
    return question.verdict(good, faults, told.worries, shown=shown, remedy=remedy, metrics=metrics)


@lru_cache(maxsize=2)  # ten checks read one node's answer, then the next node's
def _parsed(text: str) -> Smi | str:
    try:
        return nvidia_smi.read(text)
    except NotThisKind as error:
        return str(error)


def read_smi(outputs: Outputs) -> Smi | str:
    """The whole answer of ``nvidia-smi -q -x`` with its cards, or why there is none.

    Its exit status is judged by gpu.count alone: with a corrupt infoROM it is 14, and all else
    that is in the answer still counts.
    """
    output = outputs.get(SMI.name, NO_ANSWER)
    if why := unseen(SMI, output):
        return f"nvidia-smi: {why}"
    smi = _parsed(output.stdout)
    if isinstance(smi, str):
        return f"nvidia-smi's answer can't be read: {smi} {one_line(output.stderr, 200)}".strip()
    if smi.form != "xml" or not smi.gpus:
        said = "; ".join(smi.errors) or "its answer has no card"
        return f"nvidia-smi: {one_line(said)}"
    if smi.complete is False:
        attached = f" of {smi.attached}" if smi.attached is not None else ""
        return f"nvidia-smi's answer is not whole: {len(smi.gpus)}{attached} cards are in it"
    return smi


def name(card: Gpu) -> str:
    """A card as a person finds it again: its PCI address without the leading zeros."""
    bus = (card.bus_id or "").lower().removeprefix("0000")
    return f"GPU {bus}" if bus else f"GPU {card.index if card.index is not None else '?'}"


def at_work(card: Gpu) -> bool:
    """Whether it surely computes; one that doesn't say may be at rest."""
    return (card.utilization or 0) >= AT_WORK


def said(card: Gpu, *ends: str) -> str | None:
    """The text of the first field whose path ends so; None where there is none."""
    for end in ends:
        for path, text in card.fields.items():
            if path == end or path.endswith(f" / {end}"):
                return text
    return None


def table(cards: Sequence[Gpu], *ends: str) -> str:
    """Evidence: a line a card with the fields that decided."""
    words = (", ".join(f"{end} {said(card, end)}" for end in ends) for card in cards)
    return "\n".join(f"{name(card)}: {line}" for card, line in zip(cards, words, strict=True))


@dataclass(frozen=True)
class CardCheck:
    """A check of what nvidia-smi says of each card.

    ``look`` fills :class:`Told` for all cards and returns what to say when all is well;
    ``ends``: the fields shown as evidence. ``needs_sku``: ``look`` gets one, else None may come.
    """

    id: str
    title: str
    expected: str
    source: str
    remedy: str
    ends: tuple[str, ...]
    look: Callable[[Context, Sku | None, Smi, Told], str]
    needs_sku: bool = False
    level: Level = "quick"
    needs: Needs = NOTHING
    asks: Callable[[Context], bool] = has_cards

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [SMI] if self.asks(ctx) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not self.asks(ctx):
            return []
        output = outputs.get(SMI.name, NO_ANSWER)
        question = Question(ctx, self.id, SMI, output, self.expected, self.source)
        sku, smi = sku_of(ctx), read_smi(outputs)
        if isinstance(smi, str):
            return [question.not_run(one_line(smi, 150), remedy=LOOK)]
        if isinstance(sku, str) and self.needs_sku:
            return [unknown_sku(question, sku)]
        told = Told()
        good = self.look(ctx, None if isinstance(sku, str) else sku, smi, told)
        shown = table(smi.gpus, *self.ends)
        return [conclude(question, good, told, shown=shown, remedy=self.remedy)]
