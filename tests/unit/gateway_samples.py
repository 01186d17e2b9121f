"""What a sound gateway answers to its checks; tests change one part of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rackpin.checks import gateway
from rackpin.checks.base import Context, Output
from rackpin.gateway.routes import routes
from rackpin.stages import gateway as stage
from tests.unit import checks_samples


def context(ctx: Context) -> Context:
    """The same fleet, on its gateway."""
    return replace(ctx, node=ctx.fleet.nodes["gate1"])


def facts(ctx: Context) -> dict[str, dict[str, Any]]:
    """Facts by question."""
    digest = stage.digest_of(stage.configuration(ctx.fleet, ctx.node))
    found = routes(ctx.fleet)
    gate = {
        "unit": {
            "LoadState": "loaded",
            "ActiveState": "active",
            "UnitFileState": "enabled",
            "NeedDaemonReload": "no",
        },
        "files": {
            file.path: f"{file.sha256} {file.mode} {file.owner}"
            for file in stage.config_files(gateway.target(ctx))
        },
        "healthz": [200, f"rackpin gateway test, configuration {digest}\n"],
        "doors": {path: {"none": 401, "wrong": 401} for r in found for path in r.paths},
        "closed": dict.fromkeys(gateway.closed(found), 404),
    }
    upstreams = {s.instance: [200, "0.003 s"] for r in found for s in r.active}
    answer = {"status": 200, "seconds": 0.5, "tokens": gateway.MAX_TOKENS, "text": " a door"}
    answers = {r.name: {**answer, "model": r.name} for r in found}
    return {"gate": gate, "upstreams": {"upstreams": upstreams}, "answers": answers}


def answers(ctx: Context) -> dict[str, Output]:
    """Outputs by command name."""
    return {
        f"gateway.{ask}": checks_samples.ok(checks_samples.probe_text(found))
        for ask, found in facts(ctx).items()
    }
