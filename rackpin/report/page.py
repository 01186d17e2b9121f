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
from rackpin.report.heat import BANDS, share_of
from rackpin.report.nodes import group_of, mark
from rackpin.report.slow import KIND
from rackpin.report.text import duration, fold, plural
from rackpin.report.verdict import EARLY, KINDS, NO_REASON, QUARANTINE_SIGN, SYMBOL, WORD, kind_of
from rackpin.report.view import View, build

HERE = Path(__file__).parent
STATE_KIND = {
    "ready": "pass",
    "not_ready": "fail",
    "failed": "fail",
    "unreachable": "fail",
    "skipped": "blocked",
    "quarantined": "kept_out",
}
STATE_SIGN = {kind: SYMBOL.get(kind, QUARANTINE_SIGN) for kind in STATE_KIND.values()}

# What each colour of a heat map stands for, the highest first.
BAND_WORDS = [
    f"{low:.0%} and more" if place == 0 else f"from {low:.0%}" if low else f"below {BANDS[-2]:.0%}"
    for place, low in enumerate(BANDS)
]


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
        KINDS=KINDS,
        SYMBOL=SYMBOL,
        WORD=WORD,
        STATE_KIND=STATE_KIND,
        mark=mark,
        kind_of=kind_of,
        STATE_SIGN=STATE_SIGN,
        EARLY=EARLY,
        NO_REASON=NO_REASON,
        BANDS=BAND_WORDS,
        OUTCOME_KIND=KIND,
        share_of=share_of,
    )
    environment.filters.update(
        duration=duration,
        fold=fold,
        group=group_of,
        number=_number,
        count=plural,
        percent=_percent,
        tenths=_tenths,
        short=_short,
        share=_share,
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


def _tenths(value: float) -> str:
    """Bandwidths that are compared with each other have the same number of digits."""
    return f"{value:.1f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _short(name: str, limit: int) -> str:
    """The end of a name: where names of one fleet differ."""
    return name if len(name) <= limit else f"…{name[1 - limit :]}"


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
    }
