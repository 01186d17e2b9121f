"""The stack's models lie at their paths just as they were proved."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks.base import (
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    unseen,
)
from rackpin.findings import Finding, Level
from rackpin.stack.placed import PlacedModel, models_at, parse_state, state_script


def placed(ctx: Context) -> list[PlacedModel]:
    return models_at(ctx.lock, ctx.fleet.models_on(ctx.node))


class Models:
    id = "models"
    title = "Models of the stack"
    level: Level = "quick"
    needs = SERVING  # before it serves, stage serve has yet to fetch them

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [
            Command(f"models.{number}", state_script(model.path), together=True)
            for number, model in enumerate(placed(ctx))
        ]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        asked = zip(placed(ctx), self.commands(ctx), strict=True)
        return [judge(ctx, model, command, outputs) for model, command in asked]


def judge(ctx: Context, model: PlacedModel, command: Command, outputs: Outputs) -> Finding:
    """``model.NAME``: its mark is of the lock's list, its files are as when they were proved."""
    output = outputs.get(command.name, NO_ANSWER)
    expected = f"{model.mark} of {model.digest[:12]}, {len(model.files)} files as it says"
    source = f"lock {ctx.lock.stack}: models.{model.name}"
    question = Question(ctx, f"model.{model.name}", command, output, expected, source)
    if why := unseen(command, output):
        return question.not_run(why)
    try:
        state = parse_state(output.stdout.splitlines())
    except ValueError as error:
        return question.not_run(str(error))
    if not output.ok:
        return question.not_run(f"the script ended with status {output.rc}")
    faults = []
    if not state.digest:
        faults.append(f"{model.path} was never proved to be {model.name}")
    elif state.digest != model.digest:
        faults.append(f"{model.path} is another {model.name} than the lock's")
    elif not state.same:
        faults.append(f"{model.path}: a file has another size or time than when it was proved")
    remedy = "run site.py: it reads all files again and fetches those that differ"
    good = f"{len(model.files)} files, {model.size / 1e9:.1f} GB, as proved"
    return question.verdict(good, faults, remedy=remedy)


CHECK = Models()
