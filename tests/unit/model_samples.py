"""A node with two of the stack's models, and what it answers about them."""

from __future__ import annotations

from dataclasses import replace

from rackpin.checks import models
from rackpin.checks.base import Context, Output
from rackpin.stack.items import ModelFile

FILES = {"first": ("config.json", "a.safetensors"), "second": ("config.json",)}


def context(ctx: Context) -> Context:
    """Its first engine twice: each serves one of the two."""
    pinned = {
        name: [ModelFile(path=path, sha256=f"{len(name):064x}", size=7) for path in sorted(files)]
        for name, files in FILES.items()
    }
    (engine, *_) = ctx.fleet.instances_over(ctx.node)
    engines = [
        engine.model_copy(
            update={"name": f"e{n}", "model": f"/srv/{name}", "model_pin": name, "port": 8100 + n}
        )
        for n, name in enumerate(FILES)
    ]
    config = ctx.fleet.config.model_copy(update={"instances": engines})
    fleet = ctx.fleet.model_copy(update={"config": config})
    return replace(ctx, fleet=fleet, lock=ctx.lock.but(models=pinned))


def answers(ctx: Context) -> dict[str, Output]:
    rows = "free 1000\nfile 7 config.json\nfile 200 .rackpin-model\nend\n"
    return {
        command.name: Output(rc=0, stdout=f"mark {model.digest}\nsame\n{rows}", seconds=0.01)
        for model, command in zip(models.placed(ctx), models.CHECK.commands(ctx), strict=True)
    }
