"""What a run that changes nothing asks of a node: two scripts of bounded size."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from pyinfra.api.state import StateStage
from pyinfra.connectors.util import CommandOutput

from rackpin.checks.base import Command, Output
from rackpin.checks.batch import script
from rackpin.desired import Target
from rackpin.requests import requests
from rackpin.verify.session import Session
from tests import bounds
from tests.unit.test_connector import Host, LocalFleet


class Recorder(LocalFleet):
    """The connector, but what is sent is only kept."""

    def __init__(self) -> None:
        super().__init__(StateStage.Prepare)
        self.sent: list[str] = []
        self.host = Asking(self)

    def run_once(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        self.sent.append(arguments["_stdin"])
        return False, CommandOutput([])


class Asking(Host):
    def get_fact(self, cls: Any, **kwargs: Any) -> None:
        self.connector.run_shell_command(cls().command(**kwargs))


def is_shell(text: str) -> bool:
    return subprocess.run(["sh", "-n"], input=text, text=True, timeout=30).returncode == 0


def test_the_survey_is_one_script_of_bounded_size(target: Target) -> None:
    connector = Recorder()
    connector.survey(requests(target))
    assert len(connector.sent) == 1 and is_shell(connector.sent[0])
    assert len(connector.sent[0].encode()) <= bounds.SURVEY_SENT, "see tests/bounds.py"


def test_verify_is_one_script_of_bounded_size(target: Target) -> None:
    sent: list[str] = []

    def runner(commands: Sequence[Command]) -> Mapping[str, Output]:
        sent.append(script(commands, "0" * 32))
        return {}

    Session(target.fleet, target.lock).node(target.node.name, runner)
    assert len(sent) == 1 and is_shell(sent[0])
    assert len(sent[0].encode()) <= bounds.VERIFY_SENT, "see tests/bounds.py"
