"""One self-contained HTML page of the results, in the report's style: bars, ratios, a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import rackpin.report

STYLE = Path(rackpin.report.__file__).parent / "report.css"
Run = Mapping[str, Any]
# Rackpin's two runs of a comparison: the stages that put what the others look after on the nodes,
# with the survey of the fleet; and all of site.py, verify included, with one node more, the head.
SAME, WHOLE = "no-op, the same stages", "no-op, all stages and verify"
# What the project wants of each ratio of the same stages, by tool and number of nodes.
WANTED = {("ansible", 8): 30.0, ("stock", 32): 4.0}


def ratios(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """How many times longer the others take than rackpin, over the same nodes."""
    found = []
    compared = [run for run in runs if run["step"] == "compare"]
    others = [run for run in compared if run["tool"] != "rackpin"]
    for kind, more in ((SAME, 0), (WHOLE, 1)):
        ours = {
            r["nodes"] - more: r for r in compared if (r["tool"], r["kind"]) == ("rackpin", kind)
        }
        for run in others:
            if (own := ours.get(run["nodes"])) is None:
                continue
            found.append(
                {
                    "tool": run["tool"],
                    "nodes": run["nodes"],
                    "kind": kind.partition(", ")[2],
                    "wall": run["wall_s"] / own["wall_s"],
                    "cpu": run["cpu_s"] / own["cpu_s"],
                    "operations": run["more"]["operations"],
                    "wanted": WANTED.get((run["tool"], run["nodes"])) if kind == SAME else None,
                }
            )
    return found


def bars(runs: Sequence[Run], key: str) -> list[dict[str, Any]]:
    """A bar for each run: its value, and its length in percent of the longest."""
    most = max((run[key] for run in runs), default=0) or 1
    return [
        {
            "label": f"{run['nodes']} × {run['tool']}, {run['kind']}",
            "value": run[key],
            "share": 100 * run[key] / most,
        }
        for run in sorted(runs, key=lambda r: (r["nodes"], r["kind"], r["tool"]))
    ]


def render(document: Mapping[str, Any]) -> str:
    runs = document["measurements"]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    steps = {
        step: [run for run in runs if run["step"] == step]
        for step in ("compare", "scale", "latency", "build", "verify")
    }
    return environment.get_template("page.html.j2").render(
        document=document,
        style=Markup(STYLE.read_text()),
        steps={step: found for step, found in steps.items() if found},
        ratios=ratios(runs),
        bars=bars,
    )
