"""Every kind of drift, put into a healthy machine, is seen, and nothing else with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackpin.audit.node.sheet import KINDS
from rackpin.desired import Target
from tests.unit.audit_samples import INJECTIONS, Machine, healthy

ELSEWHERE = {"image.label"}  # test_audit_image


@pytest.fixture
def machine(target: Target, tmp_path: Path) -> Machine:
    return healthy(target, tmp_path / "root")


def test_a_healthy_machine_is_the_same(machine: Machine) -> None:
    for deep in (False, True):
        found = machine.audit(deep)
        assert (found["drift"], found["unseen"]) == ([], [])
        assert found["state"] == "same"
    areas = {item["area"] for item in found["same"]}
    assert areas == {kind.split(".")[0] for kind in KINDS} - {"image", "kernel"} | {"kernel"}


def test_every_kind_has_an_injection() -> None:
    assert set(INJECTIONS) | ELSEWHERE == set(KINDS)


@pytest.mark.parametrize("kind", sorted(INJECTIONS))
def test_drift_is_seen(machine: Machine, kind: str) -> None:
    INJECTIONS[kind](machine)
    found = machine.audit(deep=kind == "deb.files")
    assert found["counts"] == {kind: 1}, found["drift"]
    assert found["unseen"] == []
    assert found["state"] == "drift"
    drift = found["drift"][0]
    assert drift["kind"] == kind and drift["subject"] and drift["remedy"]
    assert drift["expected"] != drift["found"]
