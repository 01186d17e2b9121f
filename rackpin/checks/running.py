"""The environment that the running processes use, not the one that the next start would."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin import layout
from rackpin.checks import procinfo, unitinfo
from rackpin.checks.base import NO_ANSWER, SERVING, Command, Context, Outputs, Question
from rackpin.checks.procinfo import Proc
from rackpin.checks.versions import env_dir
from rackpin.findings import Finding, Level


class Running:
    id = "versions.running"
    title = "Running processes use the environment of the lock"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        show = unitinfo.show_command(ctx)
        return [] if show is None else [procinfo.COMMAND, show]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not unitinfo.expected_units(ctx):
            return []
        expected = f"every Ray and engine process has its files from {env_dir(ctx)}"
        asked, source = procinfo.COMMAND, f"lock {ctx.lock.stack}"
        output = outputs.get(asked.name, NO_ANSWER)
        question = Question(ctx, self.id, asked, output, expected, source)
        procs, why = procinfo.read(outputs)
        if procs is None:
            return [question.not_run(why)]
        show = unitinfo.show_command(ctx)
        states = outputs.get(show.name, NO_ANSWER).stdout if show else ""
        return [judge_running(ctx, question, procs, unitinfo.parse_show(states))]


def judge_running(
    ctx: Context, question: Question, procs: dict[int, Proc], units: dict[str, dict[str, str]]
) -> Finding:
    """A process of our units that maps files of another environment runs an older lock."""
    want = env_dir(ctx)
    old: list[Proc] = []
    idle, right = [], 0
    faults, remedies = [], []
    for unit in unitinfo.expected_units(ctx):
        mine = procinfo.of_unit(procs, unit.unit)
        users = [proc for proc in mine if proc.envs]
        active = units.get(unit.unit, {}).get("ActiveState") == "active"
        if not mine or (not users and not active):  # the gates before a start use no library
            idle.append(unit.short)
        elif not users:
            faults.append(f"no process of {unit.short} uses an environment of rackpin")
            remedies.append(f"systemctl cat {unit.unit}: it starts another program")
        old += [proc for proc in users if proc.envs - {want}]
        right += sum(proc.envs == {want} for proc in users)
    if old:
        names = sorted(
            {env.removeprefix(f"{layout.ENV_DIR}/") for proc in old for env in proc.envs}
        )
        whose = ", ".join(sorted({proc.unit for proc in old}))
        faults.insert(
            0,
            f"restart pending, roll needed: {len(old)} processes of {whose} use "
            f"{', '.join(names)}, the lock is {ctx.lock.env_name}",
        )
        remedies.insert(0, f"restart {whose} in a wave; a deploy never restarts what serves")
    if idle and not faults:
        return question.not_run(
            f"{', '.join(idle)} is not running",
            remedy="see the finding of the unit; verify again when it runs",
        )
    shown = "\n".join(
        f"{proc.unit} {proc}: {', '.join(sorted(proc.envs))}"
        for proc in procs.values()
        if proc.envs
    )
    good = f"{right} processes, all of {ctx.lock.env_name}"
    return question.verdict(good, faults, shown=shown, remedy="; ".join(remedies))


CHECK = Running()
