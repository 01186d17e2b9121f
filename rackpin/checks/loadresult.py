"""What a load gave: the generator's result file, or the answers of the probe's own load."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rackpin.checks.base import one_line
from rackpin.checks.engineprobe import number, part
from rackpin.checks.gpuinfo import Told
from rackpin.checks.servingdata import serving

GENERATOR = "vllm bench serve"


def of_generator(facts: dict[str, Any], told: Told) -> dict[str, float]:
    """Metrics of the generator's result file. Its exit status is 0 with failed requests too."""
    load, result = serving().load, part(facts, "result")
    if facts.get("rc") != 0 or not result:
        last = str(facts.get("said", "")).strip().splitlines()[-1:] or ["nothing was printed"]
        told.untold.append(
            f"the load: {GENERATOR} ended with status {facts.get('rc')}, {one_line(last[0], 200)}"
        )
        return {}
    completed = number(result.get("completed"))
    failed = number(result.get("failed"))
    if completed is None:
        told.untold.append("how many requests were answered")
    elif completed != load.prompts or failed:
        bad = max(failed or 0, load.prompts - completed)  # some that got lost count nowhere
        why = "".join(f": {one_line(str(e), 120)}" for e in (result.get("errors") or [])[:1])
        told.faults.append(f"{bad:g} of {load.prompts} requests failed{why}")
    lengths = result.get("output_lens")
    if not isinstance(lengths, list):
        total = number(result.get("total_output_tokens"))
        lengths = [] if total is None else [total / load.prompts] * load.prompts
    _check_lengths(lengths, completed or 0, told)
    empty = number(result.get("empty_texts"))
    if empty is not None and completed is not None and empty - (load.prompts - completed) > 0:
        told.faults.append(f"{empty:g} of {load.prompts} texts are empty")
    metrics = {}
    for name, key, factor in (
        ("ttft_s", "median_ttft_ms", 1e-3),
        ("ttft_p99_s", "p99_ttft_ms", 1e-3),
        ("itl_s", "median_itl_ms", 1e-3),
        ("tokens_per_s", "output_throughput", 1),
        ("requests_per_s", "request_throughput", 1),
        ("load_s", "duration", 1),
    ):
        value = number(result.get(key))
        if value is not None and value > 0:
            metrics[name] = round(value * factor, 6)
    return _whole(metrics, told)


def _check_lengths(lengths: Sequence[object], completed: float, told: Told) -> None:
    """Answers of another length than was asked for; failed ones are told already."""
    want = serving().load.output_tokens
    wrong = [n for n in lengths if n != want]
    failed = max(len(lengths) - int(completed), 0)
    if not lengths:
        told.untold.append("how many tokens came")
    elif len(wrong) > failed:
        odd = next((n for n in wrong if n), 0)
        told.faults.append(f"{len(wrong) - failed} answers have other than {want} tokens ({odd})")


def _answers(facts: dict[str, Any]) -> list[dict[str, Any]]:
    answers = facts.get("answers")
    return [a for a in answers if isinstance(a, dict)] if isinstance(answers, list) else []


def of_own_load(facts: dict[str, Any], told: Told) -> dict[str, float]:
    """Metrics of the probe's own load: each answer's status, tokens and times of its pieces."""
    load, answers = serving().load, _answers(facts)
    sound: list[tuple[list[float], int]] = []
    faults: list[str] = []
    for answer in answers:
        times = [t for t in map(number, answer.get("times") or ()) if t is not None]
        tokens = answer.get("tokens")
        tokens = len(times) if tokens is None else tokens  # 0.4 counts at the end, or not at all
        if answer.get("status") != 200 or answer.get("error"):
            faults.append(f"status {answer.get('status')} {answer.get('error') or ''}".strip())
        elif not answer.get("done"):
            faults.append("a stream ended without [DONE]")
        elif answer.get("empty") or not times:
            faults.append("an answer is empty")
        elif tokens != load.output_tokens:
            faults.append(f"{tokens} tokens came, not {load.output_tokens}")
        else:
            sound.append((times, tokens))
    if len(answers) != load.prompts:
        told.faults.append(f"{len(answers)} of {load.prompts} requests came back")
    if faults:
        told.faults.append(f"{len(faults)} of {load.prompts} answers are bad: {faults[0]}")
    seconds = number(facts.get("seconds"))
    metrics: dict[str, float] = {}
    if sound and seconds:
        gaps = [(times[-1] - times[0]) / (n - 1) for times, n in sound if n > 1]
        metrics = {
            "ttft_s": round(median(times[0] for times, _ in sound), 6),
            "itl_s": round(median(gaps), 6),
            "tokens_per_s": round(sum(n for _, n in sound) / seconds, 6),
            "requests_per_s": round(len(sound) / seconds, 6),
            "load_s": round(seconds, 6),
        }
    return _whole({k: v for k, v in metrics.items() if v > 0}, told)


def _whole(metrics: dict[str, float], told: Told) -> dict[str, float]:
    for name in serving().earlier_runs.values:
        if name not in metrics:
            told.untold.append(f"no {name} was measured")
    return metrics


def shown(facts: dict[str, Any]) -> str:
    """Evidence: the generator's numbers, or each answer of the own load; and what it printed."""
    result = part(facts, "result")
    lines = [f"{k}: {v}" for k, v in result.items() if number(v) is not None]
    lines += [f"error: {one_line(str(error))}" for error in result.get("errors") or ()]
    lines += [one_line(str({**a, "times": None}), 200) for a in _answers(facts)[:40]]
    if not result or lines == []:
        lines.append(str(facts.get("said", ""))[-2000:])
    return "\n".join(lines)
