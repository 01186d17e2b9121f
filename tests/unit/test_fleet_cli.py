"""``rackpin quarantine``: what is noted, and which gateways hear of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rackpin.fleet import cli, quarantine
from rackpin.gateway import drain
from rackpin.gateway.drain import Told
from rackpin.inventory import Fleet
from rackpin.inventory_open import Opened


class Teller:
    """Stands for the runs of the gateway stage."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.seen: list[set[str]] = []  # who was kept out when it was told
        self.answer = Told(True, "")
        self.fleet: Fleet | None = None

    def __call__(
        self, file: str, data: Any, group_data: Any, gateways: list[str], turn: Path
    ) -> Told:
        assert file == "inv.py" and self.fleet is not None
        assert turn == quarantine.state_of(self.fleet).turn
        self.asked.append(list(gateways))
        self.seen.append(set(quarantine.applied(self.fleet).kept_out))
        return self.answer


@pytest.fixture
def teller(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Teller:
    """The command over a fleet with one gateway, without a host to connect to."""
    config = fleet.config.model_copy(update={"state_dir": str(tmp_path)})
    teller = Teller()
    teller.fleet = fleet.model_copy(update={"config": config})
    monkeypatch.setattr(drain, "tell", teller)
    monkeypatch.setattr(cli, "mark", lambda *_: "The mark is as it should be.")
    monkeypatch.setattr(
        cli,
        "opened",
        lambda *_, raw=False: Opened(None, teller.fleet, None, "inv.py"),  # type: ignore[arg-type]
    )
    return teller


def call(*words: str) -> Result:
    return CliRunner().invoke(cli.quarantine_command, [*words, "--owner", "ada"])


def out(node: str) -> Result:
    return call(node, "--reason", "XID 79")


def kept_out(teller: Teller) -> set[str]:
    assert teller.fleet is not None
    return set(quarantine.state_of(teller.fleet).quarantined())


def test_gateways_hear_of_it_after_it_is_noted_and_of_its_end(teller: Teller) -> None:
    result = out("worker1")
    assert result.exit_code == 0 and "gate1: told, for two" in result.output, result.output
    result = call("worker1", "--lift")
    assert result.exit_code == 0 and "gate1: told, for two" in result.output, result.output
    assert teller.asked == [["gate1"], ["gate1"]] and teller.seen == [{"worker1"}, set()]


def test_a_gateway_that_was_not_told_is_said_and_the_quarantine_stands(teller: Teller) -> None:
    teller.answer = Told(False, "gate1: no route to host")
    result = out("worker1")
    assert result.exit_code == 1, result.output
    assert "no route to host" in result.output and "not every gateway (gate1)" in result.output
    assert "pyinfra inv.py deploys/gateway.py" in result.output
    assert kept_out(teller) == {"worker1"}
    result = call("worker1", "--lift")
    assert result.exit_code == 1 and kept_out(teller) == set(), result.output


def test_nobody_is_told_where_nobody_needs_to_know(teller: Teller) -> None:
    assert teller.fleet is not None
    assert out("gate1").exit_code == 0 and teller.asked == [], "no engine needs the gateway's node"
    assert out("worker1").exit_code == 0 and teller.asked == [], "no gateway is left to tell"
    call("gate1", "--lift")
    call("worker1", "--lift")
    nodes = {n: node for n, node in teller.fleet.nodes.items() if not node.is_gateway}
    teller.fleet = teller.fleet.model_copy(update={"nodes": nodes})
    teller.asked.clear()
    assert out("worker2").exit_code == 0 and teller.asked == [], "no gateway in the fleet"


def test_what_is_refused_is_told_to_nobody(teller: Teller) -> None:
    assert out("head1").exit_code == 1 and out("nobody").exit_code == 2
    assert call("worker1", "--lift").exit_code == 0, "not quarantined"
    assert teller.asked == [] and kept_out(teller) == set()
