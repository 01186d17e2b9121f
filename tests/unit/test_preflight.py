"""Every refusal has its case, and a sound node has none."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyinfra.context import ctx_host

from rackpin import deploy
from rackpin.facts import NodeSurvey, parse_survey
from rackpin.inventory import Fleet
from rackpin.inventory_problems import Problem
from rackpin.preflight import check_node
from rackpin.stack.hostpins import DriverPin
from rackpin.stack.items import Host, Reason, Unresolved
from rackpin.stack.lock import Lock
from rackpin.stack.share import Transfers
from tests.unit.test_facts import SURVEY


@pytest.fixture
def survey() -> NodeSurvey:
    return replace(parse_survey(SURVEY.splitlines()), listeners=())


def problems(fleet: Fleet, lock: Lock, survey: NodeSurvey, node: str = "head1") -> list[Problem]:
    when = (1800000000.0, 1800000001.0)
    return check_node(fleet, fleet.nodes[node], lock, survey, environment_exists=False, clock=when)


def keys(found: list[Problem]) -> list[str]:
    return [problem.key for problem in found]


def test_a_sound_node_has_no_problem(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    assert problems(fleet, lock, survey) == []


def test_an_os_without_a_lock(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    found = problems(fleet, lock, replace(survey, os={"ID": "ubuntu", "VERSION_ID": "24.04"}))
    assert keys(found) == ["os"] and "ubuntu 24.04" in found[0].message


def test_a_driver_without_its_debs_and_another_python(
    fleet: Fleet, lock: Lock, survey: NodeSurvey
) -> None:
    driver = DriverPin(version="535.261.03", branch="535", flavour="closed", source="debian")
    lacking = Unresolved(wanted="debian-12", unresolved=Reason(reason="nobody has looked"))
    gpu = lock.but(host=Host(driver=driver), debs_closure={"debian-12": lacking})
    found = problems(fleet, gpu, survey)
    assert keys(found) == ["stack"]
    assert "debs_closure.debian-12: unresolved" in found[0].message
    fleet.nodes["head1"] = fleet.nodes["head1"].model_copy(update={"gpus": 0})
    assert problems(fleet, gpu, survey) == [], "a node without a card needs no driver"
    other = lock.but(os=[lock.os[0].model_copy(update={"python": "3.12"})])
    assert keys(problems(fleet, other, survey)) == ["python"]


@pytest.mark.parametrize("offset", [-61, 75, 86400 * 365])
def test_a_clock_that_is_off(fleet: Fleet, lock: Lock, survey: NodeSurvey, offset: float) -> None:
    found = problems(fleet, lock, replace(survey, epoch=survey.epoch + offset))
    assert keys(found) == ["clock"] and "limit 60 s" in found[0].message


def test_a_clock_within_the_limit(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    assert problems(fleet, lock, replace(survey, epoch=survey.epoch + 59)) == []


def test_a_disk_too_small(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    found = problems(fleet, lock, replace(survey, space={"/": 10**12, "/opt": 19 * 10**9}))
    assert keys(found) == ["disk"] and "19.0 GB" in found[0].message


def test_wheels_for_neighbours_need_room_too(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    tight = replace(survey, space={"/opt": int(20.1e9)})
    assert problems(fleet, lock, tight) == []
    config = fleet.config.model_copy(update={"transfers": Transfers(neighbours=True)})
    big = lock.but(wheels=[w.model_copy(update={"size": 10**9}) for w in lock.wheels])
    (found,) = problems(fleet.model_copy(update={"config": config}), big, tight)
    assert found.key == "disk" and "wheels for neighbours" in found.message


def test_a_port_in_use_names_its_owner(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    taken = ("0.0.0.0", 8000, "python3", "/system.slice/other.service")
    found = problems(fleet, lock, replace(survey, listeners=(taken,)))
    assert keys(found) == ["port 8000"] and "python3" in found[0].message


def test_our_own_unit_may_hold_its_port(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    ours = ("10.9.0.11", 8000, "python", "/system.slice/system-vllm.slice/vllm@two.service")
    assert problems(fleet, lock, replace(survey, listeners=(ours,))) == []
    other = (*ours[:3], "/system.slice/vllm@two.service.d")
    assert keys(problems(fleet, lock, replace(survey, listeners=(other,)))) == ["port 8000"]


def test_an_address_the_node_does_not_have(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    assert keys(problems(fleet, lock, survey, "worker1")) == ["address"]


def test_a_route_that_leaves_by_another_address(
    fleet: Fleet, lock: Lock, survey: NodeSurvey
) -> None:
    found = problems(fleet, lock, replace(survey, route_source="192.168.0.4"))
    assert keys(found) == ["address"] and "192.168.0.4" in found[0].message


def test_all_problems_at_once(fleet: Fleet, lock: Lock, survey: NodeSurvey) -> None:
    bad = replace(survey, arch="aarch64", epoch=0.0, space={"/": 1}, os={"ID": "arch"})
    assert keys(problems(fleet, lock, bad)) == ["os", "arch", "clock", "disk"]


def test_a_refused_fleet_is_surveyed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts load their deploy file beside each other: those that wait hear the same refusal."""
    asked: list[bool] = []

    def survey(run: object, refuse: bool) -> None:
        asked.append(refuse)
        raise deploy.PreflightError([Problem("n1", "clock", "is off", "set it")], ["n1", "n2"])

    run = SimpleNamespace(refused=None, surveys=None)
    monkeypatch.setattr(deploy.runlog, "begin", lambda state: run)
    monkeypatch.setattr(deploy, "survey_fleet", survey)
    for _ in range(2):
        with (
            ctx_host.use(SimpleNamespace(state=None)),
            pytest.raises(deploy.PreflightError, match="clock"),
        ):
            deploy.here()
    assert asked == [True]
