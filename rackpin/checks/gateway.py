"""The gateway, seen from its own node: the configuration in force, the key, the engines behind it.

Without the key nobody gets past it, and with the key nothing but /v1: an engine itself answers
``/invocations`` and ``/tokenize`` to everybody (F117).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rackpin import layout
from rackpin.checks import probe
from rackpin.checks.base import (
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.desired import Target
from rackpin.findings import Finding, Level
from rackpin.gateway.routes import Route, routes
from rackpin.stages import gateway as stage

PYTHON = "/usr/bin/python3"  # the OS's: a gateway needs no environment
REQUEST_S = 5
ANSWER_S, ANSWERS_S = 20, 45
CLOSED = ("invocations", "tokenize", "metrics", "load", "v1/../invocations", "v1/%2e%2e/tokenize")
PROMPT, MAX_TOKENS = "A gateway is", 4
RUN = "pyinfra INVENTORY deploys/gateway.py -y"
SOURCE = "inventory: gateway, instances; failures F117"


def target(ctx: Context) -> Target:
    return Target(ctx.fleet, ctx.node, ctx.lock)


def closed(found: Sequence[Route]) -> list[str]:
    """Paths that must not lead to an engine, below each path that does."""
    return [f"{path}{rest}" for route in found for path in route.paths for rest in CLOSED]


def command(ctx: Context, ask: str) -> Command:
    """One of the three questions: ``gate``, ``upstreams``, ``answers``."""
    config, found = ctx.fleet.config.gateway, routes(ctx.fleet)
    active = [(n, (r.name, r.paths[0])) for n, r in enumerate(found) if r.active]
    params = {
        "ask": ask,
        "host": ctx.node.address,
        "port": config.port,
        "tls": bool(config.tls_cert),
        "request_s": ANSWER_S if ask == "answers" else REQUEST_S,
        "unit": layout.GATEWAY_UNIT,
        "keys": f"{layout.GATEWAY}/keys.conf",
        "files": [file.path for file in stage.config_files(target(ctx))],
        "paths": [path for route in found for path in route.paths],
        "closed": closed(found),
        "upstreams": {s.instance: s.address for route in found for s in route.active},
        "answers": active,
        "wish": {"prompt": PROMPT, "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True},
    }
    script = probe.text("client", "gateway", params=params)
    deadline = ANSWERS_S if ask == "answers" else 30
    return Command(
        f"gateway.{ask}", f"exec {PYTHON} -I -", deadline, stdin=script, slow=ask == "answers"
    )


def read(asked: Command, outputs: Outputs) -> tuple[dict[str, Any], str]:
    """The probe's facts, or why there are none."""
    output = outputs.get(asked.name, NO_ANSWER)
    if why := unseen(asked, output):
        return {}, why
    try:
        return probe.answer(output.stdout), ""
    except ValueError as error:
        return {}, f"{error} (exit status {output.rc}): {one_line(output.stderr, 200)}"


class Gate:
    id = "gateway"
    title = "The gateway runs, as configured, and lets nobody past without the key"
    level: Level = "quick"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx, "gate")] if stage.serves(target(ctx)) else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not stage.serves(target(ctx)):
            return []
        asked = command(ctx, "gate")
        facts, why = read(asked, outputs)
        output = outputs.get(asked.name, NO_ANSWER)
        unit = Question(ctx, "gateway.unit", asked, output, "active, enabled", SOURCE)
        config = Question(
            ctx, "gateway.config", asked, output, "nginx works with the files as wished", SOURCE
        )
        key = Question(
            ctx, "gateway.key", asked, output, "401 without the key, 404 beside /v1", SOURCE
        )
        questions = [unit, config, key]
        if why:
            return [q.not_run(why, remedy=f"systemctl status {layout.GATEWAY_UNIT}; {RUN}")
                    for q in questions]  # fmt: skip
        return [judge_unit(unit, facts), judge_config(config, facts), judge_key(key, facts)]


def part(facts: dict[str, Any], name: str) -> dict[str, Any]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def judge_unit(question: Question, facts: dict[str, Any]) -> Finding:
    unit, name = part(facts, "unit"), layout.GATEWAY_UNIT
    if not {"LoadState", "ActiveState"} <= unit.keys():
        return question.not_run(f"systemctl says nothing of {name}")
    faults = []
    if unit["LoadState"] != "loaded":
        faults.append(f"{name} is {unit['LoadState']}")
    elif unit["ActiveState"] != "active":
        faults.append(f"is {unit['ActiveState']}, not active")
    if unit.get("UnitFileState") != "enabled":
        faults.append(f"is {unit.get('UnitFileState') or 'not enabled'}: a reboot won't start it")
    if unit.get("NeedDaemonReload") != "no":
        faults.append("its file changed since systemd read it")
    shown = "\n".join(f"{key}={value}" for key, value in unit.items())
    return question.verdict(
        "active and enabled", faults, shown=shown, remedy=f"journalctl -u {name} -n 50; {RUN}"
    )


def judge_config(question: Question, facts: dict[str, Any]) -> Finding:
    """Files and what nginx itself says it works with. Digests of secret files are not shown."""
    ctx = question.ctx
    files, faults, shown = part(facts, "files"), [], []
    for file in stage.config_files(target(ctx)):
        wish, found = f"{file.sha256} {file.mode} {file.owner}", files.get(file.path)
        if found is None:
            return question.not_run(f"{file.path} was not looked at")
        if found == wish:
            shown.append(f"{file.path}: as wished")
            continue
        said = str(found).split()
        if len(said) != 3:
            text = f"{file.path} can't be read ({one_line(str(found), 60)})"
        elif said[1:] != wish.split()[1:]:
            text = f"{file.path} has mode and owner {' '.join(said[1:])}"
        else:
            text = f"{file.path} is not as wished"
        faults.append(text)
    digest = stage.digest_of(stage.configuration(ctx.fleet, ctx.node))
    answer = facts.get("healthz")
    if not isinstance(answer, list) or len(answer) != 2:
        return question.not_run("no answer to /healthz was recorded")
    status, text = answer[0], one_line(str(answer[1]), 200)
    shown.append(f"/healthz: {status} {text}")
    if status != 200 or not text.endswith(f"configuration {digest}"):
        faults.append(f"configuration {digest} is not in force; /healthz: {status} {text}")
    return question.verdict(
        f"configuration {digest} is in force",
        faults,
        shown="\n".join([*faults, *shown]),
        remedy=RUN,
    )


def judge_key(question: Question, facts: dict[str, Any]) -> Finding:
    found = routes(question.ctx.fleet)
    doors, shut = part(facts, "doors"), part(facts, "closed")
    faults = []
    for path in (path for route in found for path in route.paths):
        answers = doors.get(path)
        if not isinstance(answers, dict) or not {"none", "wrong"} <= answers.keys():
            return question.not_run(f"{path}v1 was not asked without the key")
        for kind, text in (("none", "without the key"), ("wrong", "with a wrong key")):
            if answers[kind] != 401:
                faults.append(f"{path}v1/models answers {answers[kind]} {text}")
    for path in closed(found):
        if path not in shut:
            return question.not_run(f"{path} was not asked")
        if shut[path] != 404:
            faults.append(f"{path} answers {shut[path]}, not 404")
    return question.verdict(
        "key enforced, /v1 only", faults, shown=json.dumps({"doors": doors, "closed": shut}),
        remedy=f"{RUN}; who listens on its port: ss -ltnp",
    )  # fmt: skip


CHECK = Gate()
