"""A generation as a client gets it: right model, right count, same text again, key enforced.

``/health`` and ``/v1/models`` answer while the engine behind them is dead (F128), and another
program's port answers too (F127): only the whole way proves that it serves.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rackpin import layout
from rackpin.checks import probe, sockets
from rackpin.checks.base import (
    INACTIVE,
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.findings import Finding, Level
from rackpin.inventory import Instance

REQUEST_S, TOTAL_S, DEADLINE_S = 30, 40, 45
PROMPT = "The first three things to check on a new server are"
MAX_TOKENS = 16
EXPECTED = (
    f"{MAX_TOKENS} tokens of text, equal three times (once as a stream), from the unit's own port"
)


def command(ctx: Context, instance: Instance) -> Command:
    params = {
        "env_file": f"{layout.INSTANCE_DIR}/{instance.name}.env",
        "host": ctx.node.address,
        "port": instance.port,
        "model": instance.served_name,
        "prompt": PROMPT,
        "max_tokens": MAX_TOKENS,
        "request_s": REQUEST_S,
        "total_s": TOTAL_S,
    }
    unit = layout.vllm_unit(instance.name)
    shell = f"systemctl is-active -q {unit} || exit {INACTIVE}\nexec {layout.PYTHON} -I -"
    script = probe.text("client", "smoke", params=params)
    return Command(f"smoke.{instance.name}", shell, deadline_s=DEADLINE_S, stdin=script, slow=True)


class Smoke:
    id = "smoke"
    title = "A generation from each engine on this node"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        mine = [command(ctx, instance) for instance in ctx.fleet.instances_on(ctx.node)]
        return [*mine, sockets.COMMAND] if mine else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [
            found
            for instance in ctx.fleet.instances_on(ctx.node)
            for found in judge_instance(ctx, instance, outputs)
        ]


def judge_instance(ctx: Context, instance: Instance, outputs: Outputs) -> list[Finding]:
    """``smoke.NAME`` (everything about the generation) and ``smoke.NAME.auth``."""
    asked = command(ctx, instance)
    output = outputs.get(asked.name, NO_ANSWER)
    generation = Question(ctx, asked.name, asked, output, EXPECTED, "failures F127, F128")
    wish = "401 without the key and with a wrong one"
    auth = Question(ctx, f"{asked.name}.auth", asked, output, wish, "failures F117")
    why = unseen(asked, output)
    facts: dict[str, Any] = {}
    if output.timed_out:  # the unit is active and its engine is mute: that is an answer
        facts = {"error": {"step": "engine", "text": why}}
        why = None
    elif output.rc == INACTIVE:
        why = "engine is not running"
    elif why is None:
        try:
            facts = probe.answer(output.stdout)
        except ValueError as error:
            why = f"{error} (exit status {output.rc}): {one_line(output.stderr, 200)}"
    if why is not None:
        remedy = f"see units.vllm@{instance.name}; verify again when it is active"
        return [question.not_run(why, remedy=remedy) for question in (generation, auth)]
    return [
        judge_generation(generation, instance, facts, outputs),
        judge_auth(auth, instance, facts),
    ]


def judge_generation(
    question: Question, instance: Instance, facts: dict[str, Any], outputs: Outputs
) -> Finding:
    port_fault, port_unseen = judge_port(instance, outputs)
    faults = [port_fault] if port_fault else []
    faults += judge_answers(instance, facts)
    repeat_fault, worry = judge_repeat(facts)
    faults += [repeat_fault] if repeat_fault else []
    speed = metrics(facts)
    good = f"{MAX_TOKENS} tokens, three times the same text"
    if "ttft_s" in speed:
        good += f"; first token after {speed['ttft_s']:.3f} s"
    if "tokens_per_s" in speed:
        good += f", {speed['tokens_per_s']:.1f} tokens/s"
    if port_unseen and not faults:
        return question.not_run(f"it answers, but {port_unseen}", remedy="see listeners")
    return question.verdict(
        good,
        faults,
        [worry] if worry else [],
        shown=json.dumps(facts, ensure_ascii=False, indent=1),
        remedy=f"journalctl -u {layout.vllm_unit(instance.name)} -n 100; restart it in a wave",
        metrics=speed,
    )


def judge_port(instance: Instance, outputs: Outputs) -> tuple[str, str]:
    """Fault, or why it couldn't be seen: the port is held by a process of the engine's unit."""
    listening, why = sockets.read(outputs)
    if listening is None:
        return "", f"whose port it is was not seen: {why}"
    found = [listener for listener in listening if listener.port == instance.port]
    wanted = layout.vllm_unit(instance.name)
    if not found:
        return f"nobody listens on port {instance.port}", ""
    for listener in found:
        if wanted not in listener.units:
            return f"{listener} holds the port, not {wanted}", ""
    return "", ""


def judge_answers(instance: Instance, facts: dict[str, Any]) -> list[str]:
    """What is wrong with the generation, in the order in which it was asked."""
    faults = []
    error = facts.get("error")
    models = _part(facts, "models")
    if models and instance.served_name not in models.get("names", []):
        names = ", ".join(models.get("names", [])) or f"status {models.get('status')}"
        faults.append(f"/v1/models names {names}, not {instance.served_name}")
    for step, label in (("completion", "completion"), ("stream", "stream"), ("repeat", "repeat")):
        answer = _part(facts, step)
        if answer:
            faults += _answer_faults(label, answer)
        elif not error:
            faults.append(f"no answer to the {label} was recorded")
    if isinstance(error, dict):
        faults.append(f"at {error.get('step')}: {one_line(str(error.get('text')), 200)}")
    elif error:
        faults.append(one_line(str(error), 200))
    if not models and not error:
        faults.append("no answer to /v1/models was recorded")
    return faults


def _answer_faults(label: str, answer: dict[str, Any]) -> list[str]:
    if answer.get("status") != 200:
        return [
            f"{label}: status {answer.get('status')} {one_line(str(answer.get('body', '')), 150)}"
        ]
    if "text" not in answer:
        return [f"{label}: not a completion: {one_line(str(answer.get('body', '')), 150)}"]
    faults = []
    if not answer["text"]:
        faults.append(f"{label}: the text is empty")
    if answer.get("tokens") != MAX_TOKENS:
        faults.append(f"{label}: usage says {answer.get('tokens')} tokens, not {MAX_TOKENS}")
    if label == "stream":
        if answer.get("error"):
            faults.append(f"stream: {one_line(str(answer['error']), 150)}")
        if not answer.get("done"):
            faults.append("stream: ended without [DONE]")
    return faults


def judge_repeat(facts: dict[str, Any]) -> tuple[str, str]:
    """Fault and worry when one prompt at temperature 0 gives different texts.

    One that deviates among five is a worry: in a batch with other requests the rounding is
    another. More than that is a fault of the engine, or of the stream when it is always the stream.
    """
    steps = ("completion", "stream", "repeat", "again", "third")
    told = {step: _part(facts, step).get("text") for step in steps}
    texts = {step: str(text) for step, text in told.items() if text is not None}
    if len(set(texts.values())) <= 1:
        return "", ""
    usual, count = Counter(texts.values()).most_common(1)[0]
    others = [step for step, text in texts.items() if text != usual]
    summary = f"{len(set(texts.values()))} different texts in {len(texts)} answers to one prompt"
    summary += f" at temperature 0 ({', '.join(others)} differ)"
    return ("", summary) if count >= 4 and len(others) == 1 else (summary, "")


def judge_auth(question: Question, instance: Instance, facts: dict[str, Any]) -> Finding:
    """``smoke.NAME.auth``: nobody without the key gets an answer."""
    answers = _part(facts, "auth")
    remedy = f"VLLM_API_KEY in {layout.INSTANCE_DIR}/{instance.name}.env: run the deploy, restart"
    faults = []
    if facts.get("key") is False:
        faults.append("the engine's env file has no VLLM_API_KEY")
    elif not {"models", "completion", "wrong_key"} <= answers.keys():
        why = "the engine didn't come that far"
        return question.not_run(why, remedy=f"see smoke.{instance.name}")
    for name in ("models", "completion", "wrong_key"):
        if name in answers and answers[name] not in (401, 403):
            text = f"{name.replace('_', ' ')}: status {answers[name]} without the right key"
            faults.append(text)
    others = answers.get("open")
    worries = []
    if isinstance(others, list) and others:
        worries.append(f"/v1 wants the key, but without it also answer: {', '.join(others)}")
        if not faults:
            remedy = "let only the gateway reach this port; it must pass /v1 and nothing else"
    return question.verdict("key enforced", faults, worries, shown=str(answers), remedy=remedy)


def metrics(facts: dict[str, Any]) -> dict[str, float]:
    """Time to the first token and speed of the stream, where they were measured."""
    stream = _part(facts, "stream")
    found = {}
    for key in ("ttft_s", "tokens_per_s"):
        value = stream.get(key)
        if isinstance(value, int | float) and math.isfinite(value):
            found[key] = round(float(value), 4)
    return found


def _part(facts: dict[str, Any], name: str) -> dict[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, dict) else {}


CHECK = Smoke()
