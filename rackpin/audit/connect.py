"""Reaching nodes as their inventory says, by pyinfra's own connector, without a deploy's log."""

from __future__ import annotations

from typing import Any

from rackpin.audit.fleet import Execute
from rackpin.verify.connect import connect, run_script, state_of


def execute_over(inventory: Any) -> Execute:
    """A function that runs a script on a host of a ``pyinfra.api.Inventory``; one connection each.

    Works from threads: nothing in it needs gevent's patches. Raises what the connection raises,
    and ValueError when the script itself failed.
    """
    state = state_of(inventory)

    def execute(name: str, text: str, limit_s: float) -> str:
        host = state.inventory.get_host(name)
        connect(host.connector)
        try:
            return run_script(host, text, limit_s)
        finally:
            if host.connector.client is not None:
                host.connector.client.close()

    return execute
