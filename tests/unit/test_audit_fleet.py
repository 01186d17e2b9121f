"""All nodes at once, each in one round trip; what doesn't answer could not be looked at."""

from __future__ import annotations

import dataclasses
import subprocess
import threading
import time

import pytest

from rackpin.audit import expect, fleet
from rackpin.audit.document import Document, document, unreachable
from rackpin.audit.expectation import Expectation
from rackpin.desired import Target


@pytest.fixture
def wishes(target: Target) -> list[Expectation]:
    nodes = target.fleet.nodes.values()
    return [expect.for_node(dataclasses.replace(target, node=node)) for node in nodes]


def shell(name: str, text: str, limit_s: float) -> str:
    """The round trip without ssh: what a node's shell does with the script."""
    text = text.replace("/usr/bin/python3", "python3")
    done = subprocess.run(["sh", "-s"], input=text, capture_output=True, text=True, timeout=60)
    return done.stdout


def test_one_round_trip_a_node_and_all_at_once(wishes: list[Expectation]) -> None:
    calls: list[str] = []
    inside = threading.Barrier(len(wishes), timeout=20)  # passes only when all are under way

    def execute(name: str, text: str, limit_s: float) -> str:
        calls.append(name)
        inside.wait()
        return shell(name, text, limit_s)

    found = fleet.audit_nodes(wishes, False, execute)
    assert [t.name for t in found] == ["head1", "worker1", "worker2", "gate1"]
    assert sorted(calls) == sorted(t.name for t in found)
    assert all(t.counts["env.complete"] == 1 for t in found), "this machine is no node"


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (OSError("No route to host"), "No route to host"),
        ("", "no answer from the node"),
        ("Permission denied, please try again.\n", "no answer from the node"),
    ],
)
def test_a_node_that_cant_be_asked(
    wishes: list[Expectation], says: str | Exception, why: str
) -> None:
    def execute(name: str, text: str, limit_s: float) -> str:
        if name != "worker1":
            return shell(name, text, limit_s)
        if isinstance(says, Exception):
            raise says
        return says

    found = {t.name: t for t in fleet.audit_nodes(wishes, False, execute)}
    assert found["worker1"].state == "could_not_look"
    assert why in found["worker1"].unseen[0].why
    assert found["head1"].counts, "the others were audited"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo Segmentation fault >&2; exit 139", "Segmentation fault"),
        ("echo '{}'", "can't be read"),
        ("exec nosuchpython -I -", "a program is missing"),
        ("sleep 30", "no answer within 1 s"),
    ],
)
def test_a_program_that_doesnt_answer(
    wishes: list[Expectation], command: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "QUICK_S", 1.0 if "sleep" in command else 20.0)

    def execute(name: str, text: str, limit_s: float) -> str:
        return shell(name, text.replace("/usr/bin/python3 -I -", command), limit_s)

    (found,) = fleet.audit_nodes(wishes[:1], False, execute)
    assert found.state == "could_not_look" and why in found.unseen[0].why


def test_a_node_that_hangs_for_ever_is_given_up(
    wishes: list[Expectation], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "QUICK_S", 0.2)
    monkeypatch.setattr(fleet, "CONNECT_S", 0.2)
    monkeypatch.setattr(fleet.deadlines, "GRACE_S", 0.1)
    hang = threading.Event()

    def execute(name: str, text: str, limit_s: float) -> str:
        if name == "head1":
            hang.wait(30)
        raise OSError("refused")

    began = time.monotonic()
    found = fleet.audit_nodes(wishes, False, execute)
    hang.set()
    assert time.monotonic() - began < 5
    assert "before the deadline" in found[0].unseen[0].why
    assert [t.state for t in found] == ["could_not_look"] * 4


def test_what_could_not_be_seen_weighs_more_than_drift(wishes: list[Expectation]) -> None:
    (drift,) = fleet.audit_nodes(wishes[:1], False, shell)
    drift = drift.model_copy(update={"state": "drift", "unseen": []})
    same = drift.model_copy(update={"state": "same", "counts": {}, "drift": []})
    gone = unreachable("x", "no route")

    def code(*targets: object) -> Document:
        return document(list(targets), stack="s", lock="l", deep=False)  # type: ignore[arg-type]

    assert (code(same).outcome, code(same).exit_code) == ("same", 0)
    assert (code(same, drift).outcome, code(same, drift).exit_code) == ("drift", 2)
    both = code(same, drift, gone)
    assert (both.outcome, both.exit_code) == ("could_not_look", 3)
    assert both.targets[1].drift, "the drift is still told"
