"""One self-contained HTML file from a report: no network, no script needed to read it."""

from __future__ import annotations

import base64
import hashlib
import statistics
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rackpin.findings import Report
from rackpin.report.nodes import group_of, mark
from rackpin.report.text import duration, fold, plural
from rackpin.report.verdict import KINDS, SYMBOL, WORD, kind_of
from rackpin.report.view import View, build

HERE = Path(__file__).parent
STATE_KIND = {
    "ready": "pass",
    "not_ready": "fail",
    "failed": "fail",
    "unreachable": "fail",
    "skipped": "blocked",
}


def render(report: Report) -> str:
    """The page of a cleaned report (:func:`shape.presentable`)."""
    view = build(report)
    script, style = _asset("report.js"), _asset("report.css")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            report=report,
            facts=_facts(view),
            policy=policy,
            # Our own files, not evidence: the only text that goes in unescaped.
            script=Markup(script),
            style=Markup(style),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        KINDS=KINDS, SYMBOL=SYMBOL, WORD=WORD, STATE_KIND=STATE_KIND, mark=mark, kind_of=kind_of
    )
    environment.filters.update(
        duration=duration, fold=fold, group=group_of, number=_number, count=plural, percent=_percent
    )
    return environment


@cache
def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    """A CSP source for exactly this inline text, so that nothing from evidence can run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _number(value: float) -> str:
    """Three significant digits for people, whole numbers from 100 on."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(value: float, most: float) -> str:
    """A bar's length in a 0..100 box; never negative, never longer than the box."""
    return f"{min(100.0, max(0.0, 100 * value / most)) if most > 0 else 0.0:.2f}"


def _facts(view: View) -> dict[str, Any]:
    """Figures over all nodes: operations that changed something and remote executions."""
    results = view.report.nodes
    executions = [node.remote_executions for node in results]
    most = max(results, key=lambda node: node.remote_executions, default=None)
    return {
        "changed": [node for node in results if node.changes],
        "changes": sum(len(node.changes) for node in results),
        "executions": sum(executions),
        "median": statistics.median(executions) if executions else 0,
        "most": most,
        "longest": max(view.report.stage_seconds.values(), default=0.0),
        "scale": max(
            (max(g.value, g.minimum or 0, g.expected or 0) for g in view.gauges), default=0.0
        )
        * 1.05,
    }
