"""Limits that the serving processes really have, whatever a file says (F066-F068)."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks import procinfo, unitinfo
from rackpin.checks.base import NO_ANSWER, SERVING, Command, Context, Outputs, Question, unseen
from rackpin.findings import Finding, Level
from rackpin.inventory import Limits

INFINITY = float("inf")
_SOURCE = "inventory: limits"


class LimitsCheck:
    id = "limits"
    title = "memlock, open files and tasks of the running processes"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        show = unitinfo.show_command(ctx)
        return [] if show is None else [procinfo.COMMAND, show]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [
            found
            for unit in unitinfo.expected_units(ctx)
            for found in (judge_processes(ctx, unit, outputs), judge_tasks(ctx, unit, outputs))
        ]


def wanted(limits: Limits) -> dict[str, tuple[float, float]]:
    """Asked, and enough on this machine, by limit (a clamped host states what it can give)."""
    memlock, seen = _number(limits.memlock), limits.observed_memlock_min
    nofile, files = float(limits.nofile), limits.observed_nofile_min
    return {
        "memlock": (memlock, memlock if seen is None else min(memlock, _number(seen))),
        "nofile": (nofile, nofile if files is None else min(nofile, float(files))),
    }


def judge_processes(ctx: Context, unit: unitinfo.Expected, outputs: Outputs) -> Finding:
    """``limits.UNIT``: the lowest limit of all its processes decides; it names who has it."""
    limits = wanted(ctx.fleet.config.limits)
    expected = ", ".join(f"{name} ≥ {amount(enough)}" for name, (_, enough) in limits.items())
    asked = procinfo.COMMAND
    output = outputs.get(asked.name, NO_ANSWER)
    question = Question(ctx, f"limits.{unit.short}", asked, output, expected, _SOURCE)
    procs, why = procinfo.read(outputs)
    if procs is None:
        return question.not_run(why)
    mine = procinfo.of_unit(procs, unit.unit)
    if not mine:
        remedy = f"see units.{unit.short}; verify again when it runs"
        return question.not_run(f"{unit.unit} has no process", remedy=remedy)
    faults, clamped, metrics = [], [], {}
    for name, (ask, enough) in limits.items():
        # A process that ended while we looked has no limits; the others speak.
        have = [(float(getattr(p, name)), p) for p in mine if getattr(p, name) is not None]
        if not have:
            return question.not_run(f"{name} of {unit.unit}'s processes can't be read")
        low, who = min(have, key=lambda pair: pair[0])
        below = sum(value < enough for value, _ in have)
        if below:
            faults.append(f"{who} has {name} {amount(low)} ({below} of {len(have)} processes)")
        elif low < ask:
            clamped.append(f"{name}: asked {amount(ask)}, has {amount(low)}")
        if low < INFINITY:
            metrics["memlock_bytes" if name == "memlock" else "nofile_count"] = low
    good = f"{len(mine)} processes have enough"
    if clamped:
        good += f" for this machine, which clamps: {'; '.join(clamped)}"
    return question.verdict(
        good,
        faults,
        shown="\n".join(
            f"{p}: memlock {_shown(p.memlock)}, nofile {_shown(p.nofile)}" for p in mine
        ),
        remedy=f"systemctl cat {unit.unit}: a drop-in lowers it, or it runs since before its file; "
        "limits.conf doesn't count for services. Restart it in a wave",
        metrics=metrics,
    )


def judge_tasks(ctx: Context, unit: unitinfo.Expected, outputs: Outputs) -> Finding:
    """``limits.UNIT.tasks``: TasksMax as systemd holds it for the unit's cgroup."""
    asked = unitinfo.show_command(ctx) or procinfo.COMMAND
    output = outputs.get(asked.name, NO_ANSWER)
    ask = _number(ctx.fleet.config.limits.tasks_max)
    question = Question(
        ctx, f"limits.{unit.short}.tasks", asked, output, f"TasksMax ≥ {amount(ask)}", _SOURCE
    )
    if why := unseen(asked, output):
        return question.not_run(why)
    text = unitinfo.parse_show(output.stdout).get(unit.unit, {}).get("TasksMax", "")
    if text in ("infinity", unitinfo.UINT64_MAX):
        value = INFINITY
    elif text.isdigit():
        value = float(text)
    else:
        return question.not_run(f"systemctl gives no TasksMax for {unit.unit}")
    faults = [f"TasksMax {amount(value)}"] if value < ask else []
    return question.verdict(
        f"TasksMax {amount(value)}",
        faults,
        shown=f"{unit.unit}: TasksMax={text}",
        remedy=f"systemctl cat {unit.unit}: find what sets TasksMax; run the deploy",
    )


def amount(value: float) -> str:
    return "unlimited" if value == INFINITY else f"{value:.0f}"


def _shown(value: float | None) -> str:
    return "?" if value is None else amount(value)


def _number(limit: str | int) -> float:
    return INFINITY if limit == "infinity" else float(limit)


CHECK = LimitsCheck()
