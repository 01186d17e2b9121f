"""Prompts near the model's limit: answered whole, and no memory that grows from one to the next.

A short smoke generation uses a hundredth of the KV cache: what breaks at the limit (activations
that don't fit, preemption, a leak) shows only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rackpin import layout
from rackpin.checks import engineprobe, engineprocs, gpuinfo
from rackpin.checks.base import SERVING, Command, Context, Outputs, Question, one_line
from rackpin.checks.engineprobe import number, part
from rackpin.checks.gpuinfo import Told
from rackpin.checks.servingdata import SOURCE, serving
from rackpin.findings import Finding, Level
from rackpin.inventory import Instance

# 128 k tokens of prefill on one card take half a minute; a hundred times that is a fault.
REQUEST_S, TOTAL_S = 180, 900
AFTER_S, WAIT_S = 3, 240  # lets the baseline of the same run go first, and waits for its end
DEADLINE_S = TOTAL_S + 30
MIB = 2**20


def command(ctx: Context, instance: Instance) -> Command:
    data = serving().long_prompts
    params = {
        "prompts": data.prompts,
        "output_tokens": data.output_tokens,
        "seed": data.seed,
        "max_model_len": instance.max_model_len,
        "unit": layout.vllm_unit(instance.name),
        "workers": engineprocs.RAY_WORKER if instance.executor == "ray" else "",
        "cards": engineprocs.on_cards(ctx),
        "request_s": REQUEST_S,
        "total_s": TOTAL_S,
        "wait_s": WAIT_S,
        "after_s": AFTER_S,
    }
    probes = ("client", "prompts", "long_prompts")
    return engineprobe.command(ctx, instance, "long_prompts", probes, params, DEADLINE_S)


class LongPrompts:
    id = "long_prompts"
    title = "Prompts near the model's limit, and memory that stays"
    level: Level = "burnin"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx, instance) for instance in ctx.fleet.instances_on(ctx.node)]

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        return [judge_instance(ctx, one, outputs) for one in ctx.fleet.instances_on(ctx.node)]


def judge_instance(ctx: Context, instance: Instance, outputs: Outputs) -> Finding:
    """``long_prompts.NAME``."""
    data, asked = serving().long_prompts, command(ctx, instance)
    expected = (
        f"{data.prompts} prompts of all but {data.output_tokens} tokens of the limit answered "
        f"whole; memory as after number {data.settled}"
    )
    question = Question(ctx, asked.name, asked, outputs.get(asked.name), expected, SOURCE)
    facts = engineprobe.facts(question, instance, outputs)
    if isinstance(facts, Finding):
        return facts
    if "unasked" in facts:
        return question.not_run(one_line(str(facts["unasked"]), 200))
    told, metrics = Told(), dict[str, float]()
    limit = judge_limit(instance, facts, told)
    judge_answers(facts, limit, told, metrics)
    if "error" in facts:
        told.faults.append(f"at {facts.get('step')}: {one_line(str(facts['error']), 200)}")
    judge_journal(facts, told)
    if "error" not in facts:
        judge_after(facts, told)
        for kind in data.growth:
            if kind != "cards" or engineprocs.on_cards(ctx):
                judge_memory(facts, kind, told, metrics)
    unit = layout.vllm_unit(instance.name)
    return gpuinfo.conclude(
        question,
        f"{data.prompts} prompts of {(limit or 0) - data.output_tokens} tokens answered whole, "
        f"memory stayed (processes grew by {metrics.get('rss_growth_bytes', 0) / MIB:.0f} MiB)",
        told,
        shown=shown(facts),
        remedy=f"journalctl -u {unit} -n 200 and rackpin diagnose on it; less max_model_len or "
        "gpu_memory_utilization leaves room; a leak goes to the engine's maker with this evidence",
        metrics=metrics,
    )


def judge_limit(instance: Instance, facts: dict[str, Any], told: Told) -> int | None:
    limit = facts.get("limit")
    limit = limit if isinstance(limit, int) else None
    want = instance.max_model_len
    if limit is not None and want is not None and limit != want:
        told.faults.append(f"the engine's limit is {limit} tokens, the inventory's {want}")
    return limit or want


def judge_answers(
    facts: dict[str, Any], limit: int | None, told: Told, metrics: dict[str, float]
) -> None:
    """Every prompt answered whole, and counted right."""
    data = serving().long_prompts
    answers = _rows(facts, "answers")
    faults: dict[str, list[int]] = {}
    for count, answer in enumerate(answers, start=1):
        for fault in _answer_faults(answer, limit):
            faults.setdefault(fault, []).append(count)
    told.faults += [
        f"prompt {', '.join(map(str, which))}: {fault}" for fault, which in faults.items()
    ]
    if len(answers) != data.prompts and "error" not in facts:
        told.untold.append(f"{len(answers)} of {data.prompts} prompts were recorded")
    seconds = [s for s in (number(a.get("seconds")) for a in answers) if s is not None]
    if seconds:
        metrics["slowest_s"] = round(max(seconds), 3)
    if limit:
        metrics["prompt_tokens"] = limit - data.output_tokens


def _answer_faults(answer: dict[str, Any], limit: int | None) -> list[str]:
    data = serving().long_prompts
    if answer.get("status") != 200:
        return [f"status {answer.get('status')} {one_line(str(answer.get('body', '')), 120)}"]
    if "tokens" not in answer:
        return [f"not a completion: {one_line(str(answer.get('body', '')), 120)}"]
    faults = ["the text is empty"] if answer.get("empty") else []
    asked, has = answer.get("asked"), answer.get("prompt_tokens")
    if has != asked or (limit and asked != limit - data.output_tokens):
        faults.append(f"usage says {has} tokens of prompt, {asked} were sent")
    if answer.get("tokens") != data.output_tokens:
        faults.append(f"usage says {answer.get('tokens')} tokens came, not {data.output_tokens}")
    total = answer.get("total_tokens")
    if isinstance(has, int) and total != has + data.output_tokens and not faults:
        faults.append(f"usage says {total} tokens in all")
    if answer.get("finish") != "length":
        faults.append(f"ended by {answer.get('finish')}, not by its length")
    return faults


def judge_after(facts: dict[str, Any], told: Told) -> None:
    """The short completion is what it was before, and the engine was not restarted."""
    texts = []
    for name in ("before", "after"):
        answer = part(facts, name)
        if not answer:
            told.untold.append(f"the short prompt {name}")
        elif answer.get("status") != 200 or not answer.get("text"):
            body = one_line(str(answer.get("body", "empty text")), 120)
            told.faults.append(f"the short prompt {name}: status {answer.get('status')}, {body}")
        texts.append(answer.get("text"))
    if texts[0] and texts[1] and texts[0] != texts[1]:
        told.faults.append("the short prompt's text at temperature 0 is another afterwards")
    states = facts.get("state")
    if not isinstance(states, list) or len(states) != 2 or not all(states):
        told.untold.append("whether its unit was restarted meanwhile")
    elif states[0] != states[1]:
        told.faults.append(f"the unit changed meanwhile: {one_line(str(states[1]), 120)}")
    counts = facts.get("preemptions")
    pair = [number(c) for c in counts] if isinstance(counts, list) else []
    if len(pair) == 2 and pair[0] is not None and pair[1] is not None and pair[1] > pair[0]:
        told.faults.append(f"{pair[1] - pair[0]:g} requests were preempted: the KV cache is short")


def judge_journal(facts: dict[str, Any], told: Told) -> None:
    """What engine and kernel said of memory meanwhile."""
    said = facts.get("journal")
    if not isinstance(said, list):
        told.untold.append("the journal of that time")
    elif said:
        more = f" and {len(said) - 1} more lines" if len(said) > 1 else ""
        told.faults.append(f"the journal says: {one_line(str(said[0]), 160)}{more}")


def judge_memory(
    facts: dict[str, Any],
    kind: Literal["rss", "cards", "shm"],
    told: Told,
    metrics: dict[str, float],
) -> None:
    """Growth from the answer after which it should stay to the last."""
    data = serving().long_prompts
    rows = _rows(facts, "memory")
    name = {"rss": "memory of its processes", "shm": "/dev/shm", "cards": "memory of cards"}[kind]
    if len(rows) <= data.settled:
        told.untold.append(f"{name}: {len(rows)} samples")
        return
    start, end = rows[data.settled - 1].get(kind), rows[-1].get(kind)
    pairs = {"": (start, end)}
    if kind == "cards":
        if not isinstance(start, dict) or not isinstance(end, dict) or start.keys() != end.keys():
            told.untold.append(name)
            return
        pairs = {f"{card[:12]} ": (start[card], end[card]) for card in start}
    grown: list[float] = []
    for who, (before, after) in pairs.items():
        first, last = number(before), number(after)
        if first is None or last is None:
            told.untold.append(name)
            return
        grown.append(last - first)
        if last - first > data.growth[kind].allowed(first):
            told.faults.append(
                f"{who}{name} grew by {(last - first) / MIB:.0f} MiB from {first / MIB:.0f} MiB "
                f"over {data.prompts - data.settled} prompts"
            )
    metrics[f"{kind}_growth_bytes"] = max(0.0, *grown)


def _rows(facts: dict[str, Any], name: str) -> list[dict[str, Any]]:
    rows = facts.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def shown(facts: dict[str, Any]) -> str:
    """Evidence: a line an answer with the memory after it."""
    lines = []
    memory = _rows(facts, "memory")
    for count, answer in enumerate(_rows(facts, "answers")):
        after = memory[count] if count < len(memory) else {}
        seconds = number(answer.get("seconds")) or 0
        lines.append(
            f"{count + 1}: status {answer.get('status')}, {answer.get('prompt_tokens')} + "
            f"{answer.get('tokens')} tokens, {seconds:.2f} s; after it {one_line(str(after), 300)}"
        )
    lines += [f"journal: {one_line(str(line))}" for line in facts.get("journal") or ()]
    return "\n".join(lines)


CHECK = LongPrompts()
