"""How verify reaches nodes: it is given one function, so simulated fleets test all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rackpin.checks.base import Command, Output
from rackpin.findings import Finding

# Asks several nodes at the same time, each its own commands, as root; gives outputs by node and
# command name. A node that doesn't answer has an empty mapping: read with NO_ANSWER. Never raises
# for what a node does. The longest deadline among a node's commands bounds it.
Asker = Callable[[Mapping[str, Sequence[Command]]], dict[str, dict[str, Output]]]

# Tells the person who waits what goes on, one line each.
Tell = Callable[[str], None]


def quiet(_: str) -> None:
    """Nobody waits."""


class Watch(Protocol):
    """Who is told while it goes on (:class:`rackpin.report.progress.Progress`)."""

    def phase(self, name: str, total: int) -> None: ...

    def node_done(self, name: str, findings: Sequence[Finding]) -> None: ...

    def tell(self, text: str) -> None: ...
