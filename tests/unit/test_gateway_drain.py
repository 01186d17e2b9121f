"""Draining: what is noted, who may, and when an engine counts as quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rackpin.checks.base import Command, Output
from rackpin.fleet import quarantine
from rackpin.fleet.state import Drain, FleetState, FleetStateError
from rackpin.gateway import cli, drain
from rackpin.inventory import Fleet
from rackpin.inventory_open import Opened
from rackpin.probes import inflight
from tests.unit.checks_samples import probe_text

BUSY = {"status": 200, "running": 1, "waiting": 2, "connections": 3}
QUIET = {"status": 200, "running": 0, "waiting": 0, "connections": 0}


@pytest.fixture
def found(fleet: Fleet, tmp_path: Path) -> Opened:
    config = fleet.config.model_copy(update={"state_dir": str(tmp_path)})
    return Opened(None, fleet.model_copy(update={"config": config}), None, "inv.py")  # type: ignore[arg-type]


def wish(owner: str = "ada", reason: str = "") -> Drain:
    return Drain(owner=owner, reason=reason, since="2026-11-30T03:00:00+00:00")


def note(found: Opened, name: str, undo: bool = False, force: bool = False, **who: str) -> Opened:
    """What the command notes; the fleet as the next command sees it."""
    state = quarantine.state_of(found.fleet)
    cli.change(found, state, name, undo, wish(**who), force)
    return Opened(None, quarantine.applied(found.fleet), None, "inv.py")  # type: ignore[arg-type]


def refused(found: Opened, *words: Any, capsys: pytest.CaptureFixture[str], **more: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        note(found, *words, **more)
    assert caught.value.code in (1, 2)
    return capsys.readouterr().err


def twins(found: Opened) -> Opened:
    instances = [i.model_copy(update={"served_name": "m"}) for i in found.fleet.config.instances]
    config = found.fleet.config.model_copy(update={"instances": instances})
    return Opened(None, found.fleet.model_copy(update={"config": config}), None, "inv.py")  # type: ignore[arg-type]


def test_a_drained_engine_is_seen_by_every_command(found: Opened) -> None:
    after = note(twins(found), "one", reason="a new card")
    assert after.fleet.drained == {"one": "ada since 2026-11-30T03:00: a new card"}
    (finding,) = quarantine.findings(after.fleet)
    assert "one is drained by ada" in finding.summary and "--undo" in finding.remedy
    again = note(after, "one")
    assert again.fleet.drained == after.fleet.drained, "the reason stays"
    assert note(again, "one", undo=True).fleet.drained == {}


def test_who_may(found: Opened, capsys: pytest.CaptureFixture[str]) -> None:
    both = twins(found)
    assert "last engine of one" in refused(found, "one", capsys=capsys)
    after = note(both, "one")
    assert "last engine of m" in refused(after, "two", capsys=capsys)
    assert "only ada changes" in refused(after, "one", True, owner="bob", capsys=capsys)
    assert "only ada changes" in refused(after, "one", owner="bob", capsys=capsys)
    assert "it has two, one" in refused(after, "three", capsys=capsys)
    assert set(note(after, "two", force=True).fleet.drained) == {"one", "two"}
    assert set(note(after, "one", undo=True, force=True, owner="bob").fleet.drained) == {"two"}


def test_without_a_gateway_nothing_is_noted(
    found: Opened, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {n: node for n, node in found.fleet.nodes.items() if not node.is_gateway}
    bare = Opened(None, found.fleet.model_copy(update={"nodes": nodes}), None, "inv.py")  # type: ignore[arg-type]
    assert "group `gateway`" in refused(bare, "one", capsys=capsys)
    assert quarantine.state_of(found.fleet).drained() == {}


def test_an_engine_that_is_gone_from_the_inventory_can_be_undone(found: Opened) -> None:
    quarantine.state_of(found.fleet).drain("gone", wish())
    assert quarantine.applied(found.fleet).drained == {}
    note(found, "gone", undo=True)
    assert quarantine.state_of(found.fleet).drained() == {}


def test_an_unreadable_list_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "drained.json").write_text('{"one": {"owner": ')
    with pytest.raises(FleetStateError, match=r"drained\.json: can't be read"):
        FleetState(tmp_path).drained()


def asker(*facts: Any) -> Callable[[Mapping[str, Sequence[Command]]], dict[str, dict[str, Output]]]:
    """Answers one after the other, the last one for ever."""
    left: Iterator[Any] = iter(facts)
    last: list[Any] = [None]

    def ask(asked: Mapping[str, Sequence[Command]]) -> dict[str, dict[str, Output]]:
        last[0] = next(left, last[0])
        answer = last[0]
        output = answer if isinstance(answer, Output) else Output(0, probe_text(answer))
        return {node: {c.name: output for c in commands} for node, commands in asked.items()}

    return ask


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "POLL_S", 0.001)


def waited(fleet: Fleet, *facts: Any, limit: float = 0.05) -> tuple[bool, str]:
    return drain.wait_quiet(asker(*facts), fleet, fleet.config.instances[1], limit, print)


def test_quiet_is_zero_twice(fleet: Fleet) -> None:
    assert waited(fleet, BUSY, QUIET, BUSY, QUIET, QUIET)[0]
    assert not waited(fleet, QUIET, BUSY)[0]
    assert waited(fleet, {"down": True, "connections": 0}) == (True, "the engine is not running")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (BUSY, "1 running, 2 waiting, 3 connections"),
        ({**QUIET, "connections": 1}, "1 connections"),
        ({"status": 200, "connections": 0}, "metrics don't say"),
        ({"error": "TimeoutError: timed out"}, "timed out"),
        (Output(0, "no JSON"), "the probe printed no answer"),
        (Output(None, stderr="Unreachable: no route"), "no route"),
        (Output(124), "no answer within"),
    ],
)
def test_what_is_not_seen_to_be_zero_is_not_quiet(fleet: Fleet, answer: Any, said: str) -> None:
    good, text = waited(fleet, answer)
    assert not good and said in text


METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""


class Answer:
    status = 200

    def read(self, size: int) -> bytes:
        return METRICS.encode()


def test_gauges_of_all_its_engine_cores_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = inflight.http.client.HTTPConnection
    monkeypatch.setattr(connection, "request", lambda *_: None)
    monkeypatch.setattr(connection, "getresponse", lambda _: Answer())
    assert inflight.metrics("x", 1, 1.0) == {"status": 200, "running": 3, "waiting": 4}
    monkeypatch.setattr(connection, "request", _refuse)
    assert inflight.metrics("x", 1, 1.0) == {"down": True}


def _refuse(*_: object) -> None:
    raise ConnectionRefusedError
