"""The engines behind the gateway, reached from it and asked through it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rackpin.checks.base import (
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
)
from rackpin.checks.gateway import MAX_TOKENS, SOURCE, command, part, read, target
from rackpin.findings import Finding, Level
from rackpin.gateway.routes import Route, routes
from rackpin.stages import gateway as stage


class Upstreams:
    id = "gateway.upstreams"
    title = "The gateway reaches the engines behind it"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx, "upstreams")] if stage.serves(target(ctx)) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not stage.serves(target(ctx)):
            return []
        asked = command(ctx, "upstreams")
        facts, why = read(asked, outputs)
        output = outputs.get(asked.name, NO_ANSWER)
        wish = "200 from each engine's /health, asked from here; one of each name at least"
        question = Question(ctx, self.id, asked, output, wish, SOURCE)
        if why:
            return [question.not_run(why)]
        return [judge_upstreams(question, part(facts, "upstreams"))]


def judge_upstreams(question: Question, answers: dict[str, Any]) -> Finding:
    """A name without any engine is a fault; one that misses some of them still serves."""
    faults: list[str] = []
    worries: list[str] = []
    good = 0
    for route in routes(question.ctx.fleet):
        bad = []
        for server in route.active:
            answer = answers.get(server.instance)
            if not isinstance(answer, list) or len(answer) != 2:
                return question.not_run(f"{server.instance} was not asked")
            if answer[0] == 200:
                good += 1
            else:
                said = answer[0] or one_line(str(answer[1]), 80)
                bad.append(f"{server.instance} ({server.address}): {said}")
        alone = len(bad) == len(route.active)
        (faults if alone else worries).extend(f"{route.name}: {text}" for text in bad)
        if not route.active:
            worries.append(f"{route.name}: every engine is drained or kept out, clients get 502")
    return question.verdict(
        f"{good} engines answer",
        faults,
        worries,
        shown=json.dumps(answers),
        remedy="see the engine's own node first; then routes and firewalls between the two",
        metrics={"reachable_count": float(good)},
    )


class Answers:
    id = "gateway.answers"
    title = "A completion through the gateway for each model"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx, "answers")] if stage.serves(target(ctx)) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not stage.serves(target(ctx)):
            return []
        asked = command(ctx, "answers")
        facts, why = read(asked, outputs)
        output = outputs.get(asked.name, NO_ANSWER)
        found = []
        for route in routes(ctx.fleet):
            wish = f"{MAX_TOKENS} tokens of {route.name} from {route.paths[0]}v1/completions"
            question = Question(ctx, f"{self.id}.{route.name}", asked, output, wish, SOURCE)
            if why:
                found.append(question.not_run(why))
            elif not route.active:
                why_not = "every engine of it is drained or kept out"
                found.append(question.not_run(why_not, remedy="rackpin drain; rackpin quarantine"))
            else:
                found.append(judge_answer(question, route, part(facts, route.name)))
        return found


def judge_answer(question: Question, route: Route, answer: dict[str, Any]) -> Finding:
    if "status" not in answer:
        return question.not_run("no completion was recorded")
    faults = []
    if answer["status"] != 200 or "text" not in answer:
        body = one_line(str(answer.get("body", "")), 150)
        faults.append(f"status {answer['status']}, no completion: {body}")
    else:
        if answer.get("model") != route.name:
            faults.append(f"{answer.get('model')} answers, not {route.name}")
        if answer.get("tokens") != MAX_TOKENS:
            faults.append(f"usage says {answer.get('tokens')} tokens, not {MAX_TOKENS}")
    seconds = answer.get("seconds")
    metrics = {"seconds": round(float(seconds), 3)} if isinstance(seconds, int | float) else {}
    return question.verdict(
        f"answers in {metrics.get('seconds', '?')} s",
        faults,
        shown=json.dumps(answer),
        remedy=f"smoke of its engines ({', '.join(s.instance for s in route.active)}); "
        f"journalctl -t rackpin_gateway -n 20",
        metrics=metrics,
    )


UPSTREAMS = Upstreams()
ANSWERS = Answers()
