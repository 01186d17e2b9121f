"""A fleet of 64: one bad node, link, leaf switch, hung node or set is found in few more rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from rackpin.checks.base import Output
from rackpin.findings import Finding, Level, Outcome
from rackpin.inventory import Fleet
from rackpin.parse import nccl_log, nccl_tests
from rackpin.stack.lock import Lock
from rackpin.verify.asking import quiet
from rackpin.verify.campaign import Campaign, run_campaign
from tests.unit.nccl_fabric import Fabric, fleet_of

PASS, WARN, FAIL, NOT_RUN = Outcome.PASS, Outcome.WARN, Outcome.FAIL, Outcome.NOT_RUN
MANY = 64
MORE = 6  # what a fault may cost


def clean_rounds(count: int) -> int:
    """The loop, every pair, all together."""
    return 1 + (count - 1) + 1


@pytest.fixture(autouse=True)
def _like_texts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of runs print the same here."""
    for module in (nccl_log, nccl_tests):
        monkeypatch.setattr(module, "read", cache(module.read))


LEAF = {f"gpu{n:02d}" for n in range(17, 25)}


def run(fabric: Fabric, lock: Lock, level: Level = "fleet", **options: object) -> Campaign:
    nodes = list(fabric.fleet.nodes)
    return run_campaign(fabric.fleet, lock, nodes, fabric, level, quiet, **options)  # type: ignore[arg-type]


def by_id(found: Campaign) -> dict[tuple[str, str], Finding]:
    made = {(one.node, one.check): one for one in found.findings}
    assert len(made) == len(found.findings), "a finding stands twice"
    assert all(one.remedy for one in found.findings if one.outcome is not PASS)
    return made


def bad(found: Campaign, check: str) -> dict[str, Outcome]:
    return {
        node: one.outcome
        for (node, name), one in by_id(found).items()
        if name == check and one.outcome is not PASS
    }


def between(one: str, other: str, factor: float) -> Callable[[Sequence[str]], float]:
    return lambda nodes: factor if {one, other} <= set(nodes) else 1.0


def test_a_clean_fleet_takes_a_round_less_than_it_has_nodes(fleet: Fleet, lock: Lock) -> None:
    fabric = Fabric(fleet_of(fleet, MANY))
    found = run(fabric, lock)
    assert {one.outcome for one in found.findings} == {PASS}
    assert len(fabric.runs) == clean_rounds(MANY)
    pairs = [frozenset(nodes) for some in fabric.runs for nodes in some if len(nodes) == 2]
    assert len(set(pairs)) == len(pairs) == MANY * (MANY - 1) // 2
    for some in fabric.runs:
        taking = [node for nodes in some for node in nodes]
        assert len(taking) == len(set(taking)), "a node twice in a round"
    assert len(found.measurements) == MANY + len(pairs) + 1
    assert by_id(found)["gpu01", "nccl.pairs"].metrics["busbw_gb_s"] > 370


@pytest.mark.parametrize(
    ("factor", "faults", "pairs", "words", "count"),
    [
        (lambda nodes: 0.5 if "gpu07" in nodes else 1, {}, {"gpu07"}, "slow with every", MANY),
        (between("gpu03", "gpu09", 0.5), {}, {"gpu03", "gpu09"}, "only gpu03–gpu09 is slow", MANY),
        (between("gpu03", "gpu09", 0), {}, {"gpu03", "gpu09"}, "only gpu03–gpu09 is hung", 16),
        (
            lambda nodes: 0.5 if set(nodes) & LEAF and set(nodes) - LEAF else 1,
            {},
            LEAF,
            "the leaf switch",
            MANY,
        ),
        (lambda nodes: 0 if "gpu07" in nodes else 1, {}, {"gpu07"}, "gpu07 is hung with", MANY),
        (lambda nodes: 1, {"gpu07": ["wrong-data"]}, {"gpu07"}, "damaged data", MANY),
        (lambda nodes: 1, {"gpu07": ["sockets"]}, {"gpu07"}, "gpu07 goes by sockets", MANY),
        (lambda nodes: 1, {"gpu07": ["hca-down"]}, {"gpu07"}, "gpu07 uses 7 of 8 HCAs", 16),
        (lambda nodes: 1, {"gpu07": ["no-gdr"]}, {"gpu07"}, "without GPUDirect RDMA", 16),
        (lambda nodes: 1, {"gpu07": ["fm-off"]}, {"gpu07"}, "system not yet initialized", 16),
        (lambda nodes: 0.93 if "gpu07" in nodes else 1, {}, {"gpu07"}, "something is amiss", 16),
    ],
    ids=[
        *("slow node", "slow pair", "hung pair", "leaf", "hung node", "wrong data", "sockets"),
        *("HCA down", "no GDR", "broken node", "below usual"),
    ],
)  # fmt: skip
def test_one_fault_is_found_in_few_more_rounds(
    fleet: Fleet,
    lock: Lock,
    factor: Callable[[Sequence[str]], float],
    faults: dict[str, list[str]],
    pairs: set[str],
    words: str,
    count: int,
) -> None:
    fabric = Fabric(fleet_of(fleet, count), faults=faults, factor=factor)
    found = run(fabric, lock)
    wrong = bad(found, "nccl.pairs")
    assert wrong.keys() == pairs
    assert set(wrong.values()) == {WARN if "amiss" in words else FAIL}
    assert all(words in by_id(found)[node, "nccl.pairs"].summary for node in pairs)
    assert len(fabric.runs) <= clean_rounds(count) + MORE
    assert bad(found, "nccl.loop").keys() == faults.keys()
    assert bad(found, "nccl.fleet") == {"fleet": WARN}, "the rest is sound, but not all took part"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ({"gpu40"}, "gpu40 is slow"),
        ({"gpu33", "gpu34"}, "only gpu33–gpu34 fails"),
        (LEAF, "it takes all"),
    ],
    ids=["node", "pair", "set"],
)
def test_what_only_shows_when_many_run_is_bisected(
    fleet: Fleet, lock: Lock, nodes: set[str], words: str
) -> None:
    """The pairs ran one after another and were well; then ``nodes`` spoil every set they are in."""
    fabric = Fabric(fleet_of(fleet, MANY))
    whole: list[bool] = []

    def factor(taking: Sequence[str]) -> float:
        whole.append(len(taking) == MANY)
        return 0.5 if any(whole) and nodes <= set(taking) else 1.0

    fabric.factor = factor
    found = run(fabric, lock)
    assert not bad(found, "nccl.pairs")
    named = set() if nodes == LEAF else nodes
    assert bad(found, "nccl.fleet") == dict.fromkeys({"fleet", *named}, FAIL)
    assert words in by_id(found)["fleet", "nccl.fleet"].summary
    assert len(fabric.runs) <= clean_rounds(MANY) + MORE


def test_two_faults_hide_neither(fleet: Fleet, lock: Lock) -> None:
    fabric = Fabric(
        fleet_of(fleet, 16),
        faults={"gpu07": ["rank-hang"], "gpu02": ["wrong-data"]},
        factor=between("gpu03", "gpu09", 0.5),
    )
    found = run(fabric, lock)
    assert bad(found, "nccl.pairs") == {
        "gpu07": NOT_RUN, "gpu02": FAIL, "gpu03": FAIL, "gpu09": FAIL,
    }  # fmt: skip
    assert bad(found, "nccl.loop") == {"gpu07": FAIL, "gpu02": FAIL}


def test_a_hung_node_costs_its_deadline_twice_and_no_more(fleet: Fleet, lock: Lock) -> None:
    fabric = Fabric(fleet_of(fleet, 16), factor=lambda nodes: 0 if "gpu07" in nodes else 1)
    run(fabric, lock, "pair")
    assert sum("gpu07" in nodes for some in fabric.runs for nodes in some if len(nodes) > 1) == 2
    cleared = [some for some in fabric.asked if ["nccl.clear"] in some.values()]
    assert len(cleared) == 2 and all("gpu07" in some for some in cleared)


def test_a_launcher_that_is_gone_is_named_and_the_rest_goes_on(fleet: Fleet, lock: Lock) -> None:
    dead = {(f"gpu{n:02d}", "nccl.run"): Output(rc=None) for n in (4,)}
    fabric = Fabric(fleet_of(fleet, 8), replace=dead)
    found = run(fabric, lock)
    assert bad(found, "nccl.loop") == {"gpu04": FAIL}
    assert bad(found, "nccl.pairs") == {"gpu04": NOT_RUN}
    assert bad(found, "nccl.fleet") == {"fleet": WARN}


def test_two_nodes_alone_are_not_told_apart(fleet: Fleet, lock: Lock) -> None:
    for factor in (0.5, 0):
        found = run(Fabric(fleet_of(fleet, 2), factor=lambda nodes, f=factor: f), lock)
        assert bad(found, "nccl.pairs") == {"gpu01": FAIL, "gpu02": FAIL}
        assert "tell" in by_id(found)["gpu01", "nccl.pairs"].summary


def test_a_sample_of_rounds_says_that_it_is_one(fleet: Fleet, lock: Lock) -> None:
    fabric = Fabric(fleet_of(fleet, MANY), factor=between("gpu01", "gpu64", 0.5))
    found = run(fabric, lock, "pair", rounds=3)
    assert bad(found, "nccl.pairs").keys() == {"gpu01", "gpu64"}
    assert "3 of 63 rounds" in by_id(found)["gpu20", "nccl.pairs"].summary
    assert len(fabric.runs) <= 1 + 3 + 2


def test_hardware_without_a_figure_still_shows_who_is_odd(fleet: Fleet, lock: Lock) -> None:
    fabric = Fabric(
        fleet_of(fleet, 8, "l40s-8"), factor=lambda nodes: 0.6 if "gpu05" in nodes else 1
    )
    found = run(fabric, lock)
    wrong = bad(found, "nccl.pairs")
    assert wrong.pop("gpu05") is WARN
    assert set(wrong.values()) == {NOT_RUN} and len(wrong) == 7
    assert "far slower than the others" in by_id(found)["gpu05", "nccl.pairs"].summary
    assert "no figure is recorded" in by_id(found)["gpu01", "nccl.pairs"].summary
    assert bad(found, "nccl.fleet") == {"fleet": NOT_RUN}


def test_only_nodes_of_one_sku_meet(fleet: Fleet, lock: Lock) -> None:
    mixed = fleet_of(fleet, 6)
    other = {
        name: node.model_copy(update={"sku": "a100-sxm-8"})
        for name, node in mixed.nodes.items()
        if name in ("gpu02", "gpu05", "gpu06")
    }
    alone = fleet.nodes["gate1"]
    nodes = {**mixed.nodes, **other, "gate1": alone}
    fabric = Fabric(mixed.model_copy(update={"nodes": nodes}))
    found = run(fabric, lock)
    for some in fabric.runs:
        for taking in some:
            assert len({nodes[name].sku for name in taking}) == 1
    assert bad(found, "nccl.pairs") == {"gate1": NOT_RUN}
    assert not by_id(found)["gate1", "nccl.pairs"].required
    assert ("fleet", "nccl.fleet.a100-sxm-8") in by_id(found)


def test_a_level_runs_no_more_than_it_says(fleet: Fleet, lock: Lock) -> None:
    quick, node = Fabric(fleet_of(fleet, 4)), Fabric(fleet_of(fleet, 4))
    assert run(quick, lock, "quick") == Campaign() and not quick.asked
    found = run(node, lock, "node")
    assert {one.check for one in found.findings} == {"nccl.loop"} and len(node.runs) == 1
    assert not any("nccl.prepare" in names for some in node.asked for names in some.values())


@pytest.mark.parametrize(
    ("command", "said", "words"),
    [
        ("nccl.prepare", "lacks mpirun\nlacks /usr/sbin/sshd\n", "lacks mpirun, /usr/sbin/sshd"),
        ("nccl.prepare", "taken LISTEN 0 128 10.8.0.2:22122\n", "port 22122"),
        ("nccl.prepare", "failed Missing privilege separation directory\n", "privilege"),
        ("nccl.prepare", "", "no keys"),
        ("nccl.trust", "", "did not get its keys"),
    ],
)
def test_a_node_that_can_t_take_part_says_why(
    fleet: Fleet, lock: Lock, command: str, said: str, words: str
) -> None:
    fabric = Fabric(fleet_of(fleet, 4), replace={("gpu02", command): Output(rc=0, stdout=said)})
    found = run(fabric, lock)
    assert bad(found, "nccl.pairs") == {"gpu02": NOT_RUN}
    assert words in by_id(found)["gpu02", "nccl.pairs"].summary
    assert not any("gpu02" in nodes for some in fabric.runs[1:] for nodes in some)
    assert bad(found, "nccl.fleet") == {"fleet": WARN}


def test_no_mpi_is_not_run_with_the_way_out(fleet: Fleet, lock: Lock) -> None:
    def alone(nodes: Sequence[str], text: str) -> str:
        if len(nodes) < 2:
            return text
        lines = [x for x in text.splitlines(True) if " Rank " not in x or int(x.split()[2]) < 8]
        return "".join(lines) * len(nodes)

    fabric = Fabric(fleet_of(fleet, 6), alter=alone)
    found = run(fabric, lock)
    assert set(bad(found, "nccl.pairs").values()) == {NOT_RUN}
    one = by_id(found)["gpu01", "nccl.pairs"]
    assert "without MPI" in one.summary and "libopenmpi-dev" in one.remedy
    assert bad(found, "nccl.fleet") == {"fleet": NOT_RUN}
    assert len(fabric.runs) == 2, "no further round would say more"


def test_what_is_left_behind_is_told(fleet: Fleet, lock: Lock) -> None:
    left = Output(rc=0, stdout="left unit rackpin-nccl-x.service\nclean\n")
    found = run(Fabric(fleet_of(fleet, 2), replace={("gpu02", "nccl.clean"): left}), lock, "pair")
    assert bad(found, "nccl.cleanup") == {"gpu02": WARN}
    found = run(Fabric(fleet_of(fleet, 2), replace={("gpu02", "nccl.clean"): Output(None)}), lock)
    assert "not known" in by_id(found)["gpu02", "nccl.cleanup"].summary


def test_an_interrupted_run_cleans_up_and_keeps_what_it_has(fleet: Fleet, lock: Lock) -> None:
    fabric, so_far = Fabric(fleet_of(fleet, 4)), Campaign()

    def stop(nodes: Sequence[str]) -> float:
        if len(fabric.runs) == 3:
            raise KeyboardInterrupt
        return 1.0

    fabric.factor = stop
    with pytest.raises(KeyboardInterrupt):
        run(fabric, lock, into=so_far)
    assert fabric.asked[-1] == {name: ["nccl.clean"] for name in fabric.fleet.nodes}
    assert len(so_far.measurements) == 4 + 2


@pytest.mark.parametrize(
    ("speeds", "outcome"),
    [([1.0], PASS), ([1.0, 1.0, 0.99, 0.97, 0.96, 0.955], WARN), ([1.0, 1.0, 0.5], FAIL)],
)
def test_a_burn_in_tells_drift(
    fleet: Fleet, lock: Lock, speeds: list[float], outcome: Outcome
) -> None:
    fabric, now = Fabric(fleet_of(fleet, 4)), iter(range(0, 10_000, 10))
    taken: list[float] = []

    def factor(nodes: Sequence[str]) -> float:
        if len(nodes) < 4:
            return 1.0
        taken.append(speeds[min(max(len(taken) - 1, 0), len(speeds) - 1)])
        return taken[-1]

    fabric.factor = factor
    found = run(fabric, lock, "burnin", burnin_s=50.0, clock=lambda: float(next(now)))
    assert by_id(found)["fleet", "nccl.burnin"].outcome is outcome
