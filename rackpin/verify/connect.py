"""Reaching nodes as their inventory says, one connection each for the whole verify.

Works from threads by pyinfra's own connector, without a deploy: nothing of it changes a node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rackpin import deadlines
from rackpin.checks.base import Command, Output, Runner
from rackpin.checks.batch import remote

IDENTITY = ("_sudo", "_sudo_user", "_use_sudo_login", "_su_user", "_use_su_login", "_doas")
AT_ONCE = 64  # connections; each is a thread that mostly waits


def state_of(inventory: Any) -> Any:
    """pyinfra's state for hosts that are only asked."""
    from pyinfra.api import Config, State

    return State(inventory, Config(CONNECT_TIMEOUT=deadlines.CONNECT_S))


def connect(connector: Any) -> None:
    """The connector's own connect() would begin a run and end it with a report."""
    from pyinfra.connectors.ssh import SSHConnector

    SSHConnector.connect(connector)


def run_script(host: Any, text: str, limit_s: float) -> str:
    """What a script prints on a connected host; ValueError when it fails."""
    from pyinfra.api.command import StringCommand

    given = {key: host.data.get(key) for key in IDENTITY if host.data.get(key)}
    good, output = host.connector.run_once(
        StringCommand("sh", "-s"), _stdin=text, _timeout=limit_s, **given
    )
    if not good:
        raise ValueError(output.stderr.strip() or "the shell failed without a word")
    return str(output.stdout)


class Unreachable(Exception):
    """The node could not be connected to; the text says why."""


class Connections:
    """All nodes of a ``pyinfra.api.Inventory``; ``with`` closes what was opened."""

    def __init__(self, inventory: Any) -> None:
        self.state = state_of(inventory)
        self.opened: dict[str, Any] = {}
        self.unreachable: dict[str, str] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.Lock()

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        for connector in self.opened.values():
            if connector.client is not None:
                connector.client.close()

    def _connected(self, name: str) -> None:
        """See that there is a connection; a node that could not be reached is not tried again."""
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            if name in self.unreachable:
                raise Unreachable(self.unreachable[name])
            if name not in self.opened:
                connector: Any = self.state.inventory.get_host(name).connector
                try:
                    connect(connector)
                except Exception as error:  # whatever ssh raises: this node, not the fleet
                    why = str(error.args[0] if error.args else error) or type(error).__name__
                    self.unreachable[name] = why
                    raise Unreachable(why) from error
                self.opened[name] = connector

    def runner(self, name: str) -> Runner:
        """Runs commands on one node, all in one remote execution."""

        def execute(text: str, limit_s: float) -> str:
            self._connected(name)
            return run_script(self.state.inventory.get_host(name), text, limit_s)

        return remote(execute)

    def executions(self, name: str) -> int:
        return int(getattr(self.state.inventory.get_host(name).connector, "executions", 0))

    def ask(self, asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        """An :data:`rackpin.verify.asking.Asker` over these connections."""

        def one(name: str) -> dict[str, Output]:
            try:
                return self.runner(name)(asked[name])
            except Exception as error:  # a node's trouble is its own answer
                why = f"{type(error).__name__}: {error}"
                return {c.name: Output(rc=None, stderr=why) for c in asked[name]}

        return self.each(list(asked), one)

    @staticmethod
    def each(names: Sequence[str], work: Callable[[str], Any]) -> dict[str, Any]:
        """``work`` for all names at the same time; its results by name."""
        if not names:
            return {}
        pool = ThreadPoolExecutor(max_workers=min(AT_ONCE, len(names)))
        try:
            futures = {name: pool.submit(work, name) for name in names}
            return {name: future.result() for name, future in futures.items()}
        finally:
            # ^C must not wait for nodes that hang; their own deadlines end what runs there
            pool.shutdown(wait=False, cancel_futures=True)
