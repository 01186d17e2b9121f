"""The node's clock against the controller's, bounded by the way there and back."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rackpin.checks.base import NO_ANSWER, NOTHING, Command, Context, Output, Outputs, Question
from rackpin.checks.batch import CLOCK
from rackpin.findings import Finding, Level

SYNC = Command("clock.sync", "timedatectl show -p NTPSynchronized -p NTP")
_ASKED = Command(CLOCK, "date +%s%N at the start and the end of the checks")


class Clock:
    id = "clock"
    title = "Clock offset to the controller"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [SYNC]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        sync = synchronized(outputs.get(SYNC.name, NO_ANSWER))
        return [judge_offset(ctx, outputs.get(CLOCK, NO_ANSWER), sync)]


def synchronized(output: Output) -> str:
    """What timedatectl says; a report, not a verdict (it is silent about chrony in places)."""
    words = dict(line.split("=", 1) for line in output.stdout.splitlines() if "=" in line)
    return words.get("NTPSynchronized", "unknown") if output.ok else "unknown"


def bounds(text: str) -> tuple[float, float]:
    """Least and greatest possible offset of the node in seconds, from SENT RECEIVED START END.

    The node read its first stamp after SENT and its last before RECEIVED. ValueError otherwise.
    """
    sent, received, start, end = (float(word) for word in text.split())
    if not all(map(math.isfinite, (sent, received, start, end))):
        raise ValueError("a stamp is no time")
    if received < sent or end < start:
        raise ValueError("a clock went backwards while the checks ran")
    low, high = end - received, start - sent
    if low > high:
        # The node's clock ran faster than the controller's in between: both bounds are guesses.
        low, high = high, low
    return low, high


def judge_offset(ctx: Context, output: Output, sync: str) -> Finding:
    """``clock``: by the offset that is certain at least, never by the network's delay."""
    config = ctx.fleet.config
    fail, warn = config.max_clock_offset_s, config.max_offset_warn_s
    expected = f"offset under {fail:g} s, better under {warn:g} s"
    source = "inventory: max_clock_offset_s, max_offset_warn_s"
    question = Question(ctx, "clock", _ASKED, output, expected, source)
    try:
        low, high = bounds(output.stdout)
    except ValueError as error:
        why = f"no usable time stamps ({error})" if output.stdout else "no time stamps came back"
        return question.not_run(why)
    least = max(low, -high, 0.0)
    middle, slack = (low + high) / 2, (high - low) / 2
    shown = f"offset {middle:+.3f} s ± {slack:.3f} s, NTPSynchronized={sync}"
    if least <= warn and max(abs(low), abs(high)) > fail:
        return question.not_run(f"the answer took too long to tell: {shown}")
    return question.verdict(
        shown,
        [shown] if least > fail else [],
        [shown] if warn < least <= fail else [],
        shown=shown,
        metrics={"offset_s": round(middle, 4), "uncertainty_s": round(slack, 4)},
        remedy="chronyc tracking, chronyc makestep; when all nodes differ, the controller is wrong",
    )


CHECK = Clock()
