"""Swap off, and transparent huge pages only where a program asks for them (F152)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rackpin.checks.base import (
    NO_ANSWER,
    NOTHING,
    Command,
    Context,
    Output,
    Outputs,
    Question,
    unseen,
)
from rackpin.findings import Finding, Level

SWAPS = Command("swap", "cat /proc/swaps && echo '## end'")
THP_DIR = "/sys/kernel/mm/transparent_hugepage"
THP = Command("thp", f'for f in enabled defrag; do echo "$f $(cat {THP_DIR}/$f)"; done')
THP_WISH = "madvise"
SKIP_WORD = "transparent_hugepage"  # in sysctl_skip, for hosts that share a foreign kernel


class Kernel:
    id = "kernel"
    title = "Swap and huge pages"
    level: Level = "quick"
    needs = NOTHING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [SWAPS, THP]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [
            judge_swap(ctx, outputs.get(SWAPS.name, NO_ANSWER)),
            judge_thp(ctx, outputs.get(THP.name, NO_ANSWER)),
        ]


def judge_swap(ctx: Context, output: Output) -> Finding:
    """``swap.off``: /proc/swaps has its heading and nothing else."""
    question = Question(ctx, "swap.off", SWAPS, output, "no swap in use", "failures F152")
    why = unseen(SWAPS, output)
    *lines, end = output.stdout.splitlines() or [""]
    whole = output.ok and end == "## end" and lines and lines[0].startswith("Filename")
    if why is None and not whole:
        why = "this is not the text of /proc/swaps"
    if why is not None:
        return question.not_run(why)
    areas = [f"swap on {line.split()[0]}" for line in lines[1:] if line.split()]
    remedy = "swapoff -a, and take it out of /etc/fstab; the deploy masks swap.target"
    return question.verdict("no swap", areas, remedy=remedy)


def parse_thp(text: str) -> dict[str, str]:
    """The chosen word by file: ``enabled always [madvise] never`` gives ``madvise``."""
    matches = (re.match(r"(enabled|defrag) .*\[([a-z+]+)\]", line) for line in text.splitlines())
    return {match[1]: match[2] for match in matches if match}


def judge_thp(ctx: Context, output: Output) -> Finding:
    """``thp``: khugepaged stalls show as latency spikes, so only on request."""
    expected = f"enabled and defrag: {THP_WISH}"
    question = Question(ctx, "thp", THP, output, expected, "templates/etc/tmpfiles.d")
    skipped = SKIP_WORD in ctx.fleet.config.sysctl_skip
    why = unseen(THP, output)
    chosen = parse_thp(output.stdout)
    text = ", ".join(f"{name} is {word}" for name, word in chosen.items())
    if why is None and not {"enabled", "defrag"} <= chosen.keys():
        why = f"no chosen word in the files of {THP_DIR}"
    elif skipped:
        why = f"sysctl_skip of the inventory leaves out {SKIP_WORD} ({text})"
    if why is not None:
        remedy = f"set it on the host's own kernel if it matters; to leave it out: {SKIP_WORD}"
        remedy += " in sysctl_skip"
        return question.not_run(why, remedy=remedy, required=not skipped)
    # "always" gives the stalls; anything else that isn't asked for only gives speed away.
    faults = ["enabled is always"] if chosen["enabled"] == "always" else []
    worries = [f"{name} is {word}" for name, word in chosen.items() if word != THP_WISH]
    worries = [worry for worry in worries if worry not in faults]
    remedy = "systemd-tmpfiles --create, or run the deploy; then find what sets it at boot"
    return question.verdict(text, faults, worries, remedy=remedy)


CHECK = Kernel()
