"""The survey: one execution answers all facts, until something changes. Commands run here by sh."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api import StringCommand
from pyinfra.api.state import StateStage
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import CommandOutput, OutputLine

from rackpin.connector import FEW_CHANGES, FleetConnector, tcp_bytes, with_deadline
from rackpin.facts import Paths, Text


@dataclass
class Host:
    """Asks the connector as pyinfra does: the fact says its command, the connector answers."""

    connector: Any = None
    answers: dict[str, Any] = field(default_factory=dict)

    def get_fact(self, cls: Any, **kwargs: Any) -> Any:
        fact = cls()
        ok, output = self.connector.run_shell_command(fact.command(**kwargs))
        assert ok
        return fact.process(output.stdout_lines)


class LocalFleet(FleetConnector):
    """The connector with a local shell in the place of ssh."""

    def __init__(self, stage: StateStage) -> None:
        self.state = type("State", (), {"current_stage": stage})()
        self.host = Host(self)
        self._answers, self._recorded, self.executions, self.misses = {}, None, 0, 0
        self._again, self._changes, self._since = {}, 0, 0
        self.stage, self.working = "test", {}

    def run_once(self, command: Any, *_: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        self.executions += 1
        text = command if isinstance(command, str) else command.get_raw_value()
        done = subprocess.run(
            ["sh", "-c", text],
            input=arguments.get("_stdin") or "",
            text=True,
            capture_output=True,
            timeout=60,
        )
        lines = [OutputLine("stdout", line) for line in done.stdout.splitlines()]
        return done.returncode == 0, CommandOutput(lines)


@pytest.fixture
def connector() -> LocalFleet:
    return LocalFleet(StateStage.Prepare)


def test_one_execution_answers_all_facts(connector: LocalFleet, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("hello\n")
    facts = [(Text, {"path": str(tmp_path / "a")}), (Paths, {"paths": (str(tmp_path),)})]
    connector.survey(facts)
    assert connector.executions == 1
    asked = [connector.host.get_fact(cls, **kwargs) for cls, kwargs in facts]
    assert asked[0] == "hello\n" and asked[1][str(tmp_path)].kind == "directory"
    assert connector.executions == 1 and connector.misses == 0


def test_survey_and_live_answers_are_the_same(connector: LocalFleet, tmp_path: Path) -> None:
    (tmp_path / "odd\\name").write_bytes(b"\xff\x00 text |\n")
    fact = (Paths, {"paths": (str(tmp_path / "odd\\name"), "/none", "/bin")})
    live = connector.host.get_fact(fact[0], **fact[1])
    connector.survey([fact])
    assert connector.host.get_fact(fact[0], **fact[1]) == live


def test_a_fact_outside_the_survey_is_counted_and_asked(
    connector: LocalFleet, tmp_path: Path
) -> None:
    connector.survey([(Text, {"path": str(tmp_path / "a")})])
    connector.host.get_fact(Text, path=str(tmp_path / "b"))
    assert connector.misses == 1 and connector.executions == 2


def test_after_a_change_facts_are_live(tmp_path: Path) -> None:
    connector = LocalFleet(StateStage.Execute)
    path = tmp_path / "a"
    connector.survey([(Text, {"path": str(path)})])
    assert connector.host.get_fact(Text, path=str(path)) == ""
    connector.run_shell_command(StringCommand("echo new >", str(path)))
    assert connector.host.get_fact(Text, path=str(path)) == "new\n"


def test_after_a_change_one_execution_answers_all_facts_again(tmp_path: Path) -> None:
    class OfThePlan(Text):
        of_the_plan = True

        def command(self, path: str) -> str:
            return f"echo planned >>{path}"

    connector = LocalFleet(StateStage.Execute)
    path, planned = tmp_path / "a", tmp_path / "planned"
    facts = [(Text, {"path": str(path)}), (Paths, {"paths": (str(path),)})]
    connector.survey([*facts, (OfThePlan, {"path": str(planned)})])
    for number in (1, 2):
        connector.run_shell_command(StringCommand("echo new >", str(path)))
        asked = [connector.host.get_fact(cls, **kwargs) for cls, kwargs in facts * 2]
        assert asked[0] == asked[2] == "new\n" and asked[1][str(path)].kind == "file"
        assert connector.executions == 1 + 2 * number and connector.misses == 0
    assert planned.read_text() == "planned\n", "asked once, before any change"


def test_where_much_is_changed_only_what_is_needed_is_asked(tmp_path: Path) -> None:
    """A node that is built has a change and a fact in turn: all facts each time cost minutes."""
    connector = LocalFleet(StateStage.Execute)
    path = tmp_path / "a"
    facts = [(Text, {"path": str(path)}), (Paths, {"paths": (str(path),)})]
    connector.survey(facts)
    for _ in range(FEW_CHANGES + 1):
        connector.run_shell_command(StringCommand("echo new >>", str(path)))
    before, lines = connector.executions, FEW_CHANGES + 1
    assert connector.host.get_fact(Text, path=str(path)) == "new\n" * lines
    assert not connector._answers and connector.executions == before + 1, "asked alone"
    for _ in range(3):  # the second brings all
        assert connector.host.get_fact(Paths, paths=(str(path),))[str(path)].kind == "file"
        assert connector.host.get_fact(Text, path=str(path)) == "new\n" * lines
    assert connector.executions == before + 2


def test_facts_that_have_no_answer_are_not_fetched_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connector = LocalFleet(StateStage.Execute)
    fact = (Text, {"path": str(tmp_path / "a")})
    connector.survey([fact])
    connector.run_shell_command(StringCommand("true"))
    asked: list[str] = []
    monkeypatch.setattr(connector, "feed", lambda text, **_: asked.append(text) or "half a li")
    for _ in range(3):
        assert connector.host.get_fact(fact[0], **fact[1]) == ""
    assert len(asked) == 1


def test_an_answer_that_failed_is_not_kept(connector: LocalFleet) -> None:
    class Fails(Text):
        def command(self, path: str) -> str:
            return f"echo {path}; exit 3"

    connector.survey([(Fails, {"path": "x"})])
    assert not connector._answers


def test_a_cut_answer_leaves_facts_to_be_asked_alone(
    connector: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "feed", lambda text, **arguments: "half a li")
    connector.survey([(Text, {"path": "/etc/hostname"})])
    assert not connector._answers


def test_the_node_itself_ends_a_command_that_hangs() -> None:
    command = with_deadline(StringCommand("trap '' TERM; sleep 60"), 0.2)
    # the kill comes after KILL_AFTER_S; shortened here so that the test is quick
    text = command.get_raw_value().replace("-k 10", "-k 0.2")
    done = subprocess.run(["sh", "-c", text], timeout=10)
    assert done.returncode in (124, 137)


def test_a_connection_that_is_given_up_is_closed(
    connector: LocalFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that reboots is asked again and again: no old connection may be left."""
    closed: list[str] = []
    monkeypatch.setattr(SSHConnector, "disconnect", lambda self: closed.append("transfer"))
    connector.client = type("Client", (), {"close": lambda self: closed.append("client")})()
    connector.disconnect()
    assert closed == ["transfer", "client"]
    connector.client = None
    connector.disconnect()


def test_bytes_are_counted_over_all_connections_of_a_run(connector: LocalFleet) -> None:
    connector.client = None
    with socket.create_server(("127.0.0.1", 0)) as server:
        for _ in range(2):  # a node that reboots is connected to again
            ours = socket.create_connection(server.getsockname(), timeout=10)
            theirs = server.accept()[0]
            ours.settimeout(10)
            with ours, theirs:
                connector._sock = ours
                ours.sendall(b"x" * 1000)
                assert len(theirs.recv(1000, socket.MSG_WAITALL)) == 1000
                theirs.sendall(b"y" * 300)
                assert len(ours.recv(300, socket.MSG_WAITALL)) == 300
                connector.disconnect()
    sent, received = connector.traffic
    assert 2000 <= sent <= 2010 and received == 600  # Linux counts the handshake as a byte
    assert tcp_bytes(None) == (0, 0)
