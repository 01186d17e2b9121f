"""The measured values of one run: all that a history reads, in a small file beside the report."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from rackpin.findings import Outcome, Report

NAME = "metrics.json"
FORMAT = 1  # grows with every change of its keys; another one is made anew from the report
_COUNTS = (Outcome.PASS, Outcome.WARN)  # a value of a failing check is no measure of what is usual


def values_of(report: Report) -> dict[str, dict[str, float]]:
    """Node → ``"CHECK METRIC"`` → value, of findings that passed or warn; finite only.

    A check that answered twice on a node has no single value there: it is left out.
    """
    asked = Counter((finding.node, finding.check) for finding in report.findings)
    values: dict[str, dict[str, float]] = {}
    for finding in report.findings:
        if finding.outcome not in _COUNTS or asked[finding.node, finding.check] > 1:
            continue
        for name, value in finding.metrics.items():
            if not math.isfinite(value):
                continue
            values.setdefault(finding.node, {})[f"{finding.check} {name}"] = value
    return values


def dumped(report: Report) -> bytes:
    """The file's content. Expects text that JSON can carry (:func:`shape.storable`)."""
    data = {"format": FORMAT, "run": report.run, "lock": report.lock, "values": values_of(report)}
    return (json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n").encode()


def read(text: bytes, run: str) -> dict[str, Any] | None:
    """``{"lock", "values"}`` of a file of this format and run; None for anything else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or (data.get("format"), data.get("run")) != (FORMAT, run):
        return None
    values = data.get("values")
    whole = isinstance(values, dict) and all(
        isinstance(named, dict) and all(isinstance(value, int | float) for value in named.values())
        for named in values.values()
    )
    return data if whole and isinstance(data.get("lock"), str) else None
