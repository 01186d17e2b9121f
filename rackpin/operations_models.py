"""The operation that brings a model's files to a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from rackpin import layout
from rackpin.facts_models import ModelFact
from rackpin.isolated import operation
from rackpin.stack.placed import PlacedModel, place_script
from rackpin.stack.share import Share, Transfers


class Shown(StringCommand):
    """A long command whose lines are shown as they come, whatever -v says."""

    def execute(self, state: Any, host: Any, connector_arguments: Any) -> Any:
        connector_arguments.update(self.connector_arguments)
        return host.run_shell_command(
            self, print_output=True, print_input=state.print_input, **connector_arguments
        )


@operation()
def placed_model(
    model: PlacedModel, bundle_url: str, transfers: Transfers, share: Share | None = None
) -> Iterator[Any]:
    """
    Have a model's files at their path, each proved by sha256, from neighbours and the bundle.

    + model: its name in the stack, path and files
    + bundle_url: where the bundle is served
    + transfers: how many files at once
    + share: how the node takes files from its neighbours too; None: it doesn't
    """
    now = host.get_fact(ModelFact, path=model.path)
    if now is not None and model.settled(now):
        host.noop(f"{model.path} is {model.name}, as it was proved")
        return
    script = place_script(model, bundle_url, layout.ROOT, transfers, share)
    yield Shown("sh", "-s", _stdin=script, _timeout=model.deadline_s)
