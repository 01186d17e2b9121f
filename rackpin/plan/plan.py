"""A request in, an answer out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rackpin.plan.answer import answer
from rackpin.plan.choose import Judged, Wanted, judge, ranked
from rackpin.plan.request import Request, start_of
from rackpin.plan.split import Split, Start


@dataclass(frozen=True)
class Plan:
    """A planned start: what was chosen, what else was looked at, and all of it as data."""

    start: Start
    chosen: Judged
    others: list[Judged]
    data: dict[str, Any]


def plan(asked: Request) -> Plan:
    """Plan a start. Raises PlanError for input that can't be planned with."""
    return plan_start(start_of(asked), Wanted(asked.tp, asked.pp, asked.dp, asked.ep, asked.cp))


def plan_start(start: Start, wanted: Wanted) -> Plan:
    """The same for a start that is made already."""
    if wanted.tp and wanted.pp:
        inside = start.engine == "sglang"
        filled = 1 if inside else max(1, start.gpus // (wanted.tp * wanted.pp))
        split = Split(wanted.tp, wanted.pp, wanted.dp or filled, wanted.ep or 1, wanted.cp or 1)
        chosen = judge(start, split)
        others = [one for one in ranked(start, Wanted()) if one.split != split]
    else:
        chosen, *others = ranked(start, wanted)
    asked = bool(wanted.tp and wanted.pp)
    return Plan(start, chosen, others, answer(start, chosen, others, asked))
