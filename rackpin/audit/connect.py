"""Reaching nodes as their inventory says, by pyinfra's own connector, without a deploy's log."""

from __future__ import annotations

from typing import Any

from rackpin import deadlines
from rackpin.audit.fleet import Execute

IDENTITY = ("_sudo", "_sudo_user", "_use_sudo_login", "_su_user", "_use_su_login", "_doas")


def execute_over(inventory: Any) -> Execute:
    """A function that runs a script on a host of a ``pyinfra.api.Inventory``; one connection each.

    Works from threads: nothing in it needs gevent's patches. Raises what the connection raises,
    and ValueError when the script itself failed.
    """
    from pyinfra.api import Config, State
    from pyinfra.api.command import StringCommand
    from pyinfra.connectors.ssh import SSHConnector

    state = State(inventory, Config(CONNECT_TIMEOUT=deadlines.CONNECT_S))

    def execute(name: str, text: str, limit_s: float) -> str:
        host = state.inventory.get_host(name)
        connector: Any = host.connector
        # The connector's own connect() would begin a run and end it with a report.
        SSHConnector.connect(connector)
        try:
            given = {key: host.data.get(key) for key in IDENTITY if host.data.get(key)}
            good, output = connector.run_once(
                StringCommand("sh", "-s"), _stdin=text, _timeout=limit_s, **given
            )
        finally:
            if connector.client is not None:
                connector.client.close()
        if not good:
            raise ValueError(output.stderr.strip() or "the shell failed without a word")
        return str(output.stdout)

    return execute
