"""The same report with bounded, safe text: one form to keep, one form to show."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from typing import Any

from rackpin.findings import Finding, Outcome, Report
from rackpin.report.text import clean, cut, encodable, fair_cap, one_line, plural

KEPT_OUTPUT = 64 * 1024  # characters of one evidence output in report.json
KEPT_TOTAL = 24_000_000  # and of all of them together
SHOWN_OUTPUT = 8_000  # characters of one evidence output in the HTML and JUnit files
# Bytes of escaped text in the HTML file: 200 nodes × 20 findings and the pairs of 64 nodes stay
# below 5 MB with these.
SHOWN_BAD, SHOWN_PASS, SHOWN_WORDS, SHOWN_CHANGES = 1_300_000, 450_000, 850_000, 250_000
SHOWN_NOTES = 100
SHOWN_WHY, SHOWN_VALUE = 240, 80  # characters of a collective's reason and of an outlier's words
_BLOCKS = ("output", "command", "remedy")  # keep their line breaks
_MEASURED = ("busbw_gb_s", "expected_gb_s", "warn_below_gb_s", "fail_below_gb_s", "seconds")
_WORDS = ("summary", "expected", "remedy", "source")


def storable(report: Report) -> Report:
    """What ``report.json`` keeps: as it is, but for huge outputs and what JSON can't carry."""
    outputs = [len(f.evidence.output) for f in report.findings]
    cap = min(KEPT_OUTPUT, fair_cap(outputs, KEPT_TOTAL))
    data = report.model_dump(warnings=False)
    notes: list[str] = []
    shortened = 0
    for finding in data["findings"]:
        evidence = finding["evidence"]
        if len(evidence["output"]) > cap:
            evidence["output"] = cut(evidence["output"], cap)
            shortened += 1
    notes += _finite(data)
    if shortened:
        notes.append(f"evidence of {plural(shortened, 'finding')} was cut to {cap} characters")
    data["notes"] += [note for note in notes if note not in data["notes"]]
    return Report.model_validate(_walk(data, encodable))


def presentable(report: Report) -> Report:
    """What people and CI servers are shown: cleaned text, fairly cut so that files stay small."""
    bad = [f for f in report.findings if f.outcome is not Outcome.PASS]
    good = [f for f in report.findings if f.outcome is Outcome.PASS]
    cap_bad = fair_cap((_cost(f.evidence.output) for f in bad), SHOWN_BAD)
    cap_good = fair_cap((_cost(f.evidence.output) for f in good), SHOWN_PASS)
    # What somebody has to act on is cut last.
    acted = [_cost(text) for f in bad for text in _texts(f)]
    words_bad = fair_cap(acted, SHOWN_WORDS * 2 // 3)
    used = sum(min(cost, words_bad) for cost in acted)
    words_good = fair_cap((_cost(text) for f in good for text in _texts(f)), SHOWN_WORDS - used)
    cap_changes = max(3, SHOWN_CHANGES // 100 // max(1, len(report.nodes)))

    data = report.model_dump(warnings=False)
    _finite(data)
    for finding in data["findings"]:
        cap = cap_good if finding["outcome"] == Outcome.PASS else cap_bad
        evidence = finding["evidence"]
        evidence["output"] = _fit(evidence["output"], cap)
        words = words_good if finding["outcome"] == Outcome.PASS else words_bad
        evidence["command"] = _fit(evidence["command"], words)
        for key in _WORDS:
            finding[key] = _fit(finding[key], words)
    for one in data["measurements"]:
        one["why"], one["transport"] = (
            cut(one["why"], SHOWN_WHY),
            cut(one["transport"], SHOWN_VALUE),
        )
    for one in data["outliers"]:
        for key in ("what", "value", "usual"):
            one[key] = cut(one[key], SHOWN_VALUE)
    for node in data["nodes"]:
        node["reason"] = _fit(node["reason"], 600)
        more = len(node["changes"]) - cap_changes
        node["changes"] = [_fit(text, 200) for text in node["changes"][:cap_changes]]
        if more > 0:
            node["changes"].append(f"… {plural(more, 'more change')}, see report.json")
    more = len(data["notes"]) - SHOWN_NOTES
    data["notes"] = [cut(note, 500) for note in data["notes"][:SHOWN_NOTES]]
    if more > 0:
        data["notes"].append(f"… {plural(more, 'more note')}, see report.json")
    return Report.model_validate(_walk(data, lambda text: one_line(cut(text, 2000)), clean))


def _finite(data: dict[str, Any]) -> list[str]:
    """Take out NaN and infinities, which JSON has no word for; say which."""
    notes = []
    holders: list[tuple[str, dict[str, Any]]] = [("stage_seconds", data["stage_seconds"])]
    for finding in data["findings"]:
        holders.append((f"{finding['node']} {finding['check']}", finding["metrics"]))
    for where, numbers in holders:
        for key in [key for key, value in numbers.items() if not math.isfinite(value)]:
            notes.append(f"{where}: {key} was {numbers.pop(key)}, which is no number; left out")
    optional = [(finding["evidence"], "seconds") for finding in data["findings"]]
    optional += [(one, key) for one in data["instances"] for key in ("ttft_s", "tokens_per_s")]
    optional += [(one, key) for one in data["measurements"] for key in _MEASURED]
    optional += [(one, "distance") for one in data["outliers"]]
    for holder, key in optional:
        if holder[key] is not None and not math.isfinite(holder[key]):
            holder[key] = None
    if not math.isfinite(data["seconds"]):
        data["seconds"] = 0.0
        notes.append("the run's duration was no number; 0 was written")
    return notes


def _texts(finding: Finding) -> list[str]:
    return [finding.evidence.command, *(getattr(finding, key) for key in _WORDS)]


def _cost(text: str) -> int:
    """Bytes that a text takes in an HTML file once it is cut, cleaned and escaped."""
    return len(html.escape(clean(cut(text, SHOWN_OUTPUT))).encode())


def _fit(text: str, cap: int) -> str:
    text = cut(text, SHOWN_OUTPUT)
    cost = _cost(text)
    return text if cost <= cap else cut(text, cap * len(text) // cost)


def _walk(
    value: Any, change: Callable[[str], str], block: Callable[[str], str] | None = None
) -> Any:
    """Plain data with ``change`` applied to each string, ``block`` to those of many lines."""
    if isinstance(value, Outcome):
        return value
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            change(key): _walk(item, block if block and key in _BLOCKS else change, block)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_walk(item, change, block) for item in value]
    return value
