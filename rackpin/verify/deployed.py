"""Nodes of a running deploy asked together, over the connections that the deploy has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gevent
from pyinfra import logger
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.context import ctx_host

from rackpin.checks.base import Command, Output
from rackpin.checks.batch import remote
from rackpin.findings import Finding
from rackpin.verify.asking import Asker


def asker(state: Any) -> Asker:
    """Asks hosts of pyinfra's state at the same time; one that fails has no answer."""

    def one(host: Any, commands: Sequence[Command]) -> dict[str, Output]:
        given = {key: host.data.get(key) for key in CONNECTOR_ARGUMENT_KEYS if host.data.get(key)}

        def execute(text: str, limit_s: float) -> str:
            return str(host.connector.feed(text, **{**given, "_timeout": limit_s}))

        with ctx_host.use(host):
            try:
                return remote(execute)(commands)
            except Exception as error:  # a node's trouble is its own answer
                why = f"{type(error).__name__}: {error}"
                return {c.name: Output(rc=None, stderr=why) for c in commands}

    def ask(asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        jobs = {
            name: gevent.spawn(one, state.inventory.get_host(name), commands)
            for name, commands in asked.items()
        }
        gevent.joinall(list(jobs.values()), raise_error=True)
        return {name: job.value for name, job in jobs.items()}

    return ask


class LogWatch:
    """Tells what goes on in pyinfra's own log."""

    def phase(self, name: str, total: int) -> None:
        logger.info(f"verify: {name}" + (f" ({total})" if total else ""))

    def node_done(self, name: str, findings: Sequence[Finding]) -> None:
        logger.info(f"verify: {name} is done")

    def tell(self, text: str) -> None:
        logger.info(f"verify: {text}")
