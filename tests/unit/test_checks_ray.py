"""The Ray cluster and the all-reduce: judgements, and the parts of the probes that need no Ray."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rackpin.checks import collective, ray_cluster
from rackpin.checks.base import INACTIVE, Context, Output
from rackpin.desired import Target
from rackpin.findings import Finding, Outcome
from rackpin.probes.collective import figures, interface_of
from tests.unit import checks_samples as samples
from tests.unit.checks_samples import found, ok, probe_text


@pytest.fixture
def ctx(target: Target) -> Context:
    return samples.context(target)


def judged(ctx: Context, facts: dict[str, Any]) -> dict[str, Finding]:
    answer = ok(probe_text(facts))
    return {
        **found(ctx, ray_cluster.CHECK, ray_probe=answer),
        **found(ctx, collective.CHECK, ray_probe=answer),
    }


def facts_with(ctx: Context, path: str, value: Any) -> dict[str, Any]:
    """The good facts with one value replaced: ``nodes.1.alive``; None removes it."""
    facts = copy.deepcopy(samples.ray_facts(ctx))
    *parents, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    place: Any = facts
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return facts


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("nodes.1.alive", False, "worker1 (10.9.0.12) is not in the cluster"),
        ("nodes.1.address", "192.168.50.12", "192.168.50.12 (worker1) is no node of this fleet"),
        ("nodes.1.resources", {"CPU": 4.0}, "worker1 offers 0 GPUs, not 1"),
        ("nodes.1.resources", {"GPU": 8.0}, "worker1 offers 8 GPUs, not 1"),
        ("nodes.2.resources", {"GPU": 1.0}, "worker2 offers 1 GPUs, not 0"),
        ("nodes.1.resources", {"GPU": "many"}, "worker1 offers -1 GPUs"),
        ("nodes.2", None, "worker2 (10.9.0.13) is not in the cluster"),
    ],
)
def test_a_wrong_cluster_fails(ctx: Context, path: str, value: Any, words: str) -> None:
    finding = judged(ctx, facts_with(ctx, path, value))["ray.cluster"]
    assert finding.outcome is Outcome.FAIL and words in finding.summary


def test_dead_entries_are_only_reported_and_twins_fail(ctx: Context) -> None:
    facts = samples.ray_facts(ctx)
    dead = {**facts["nodes"][1], "alive": False, "death": "missed too many heartbeats"}
    finding = judged(ctx, {**facts, "nodes": [dead, *facts["nodes"]]})["ray.cluster"]
    assert finding.outcome is Outcome.PASS and "1 entries" in finding.summary
    assert finding.metrics == {"alive_count": 3, "dead_count": 1}
    twin = {**facts["nodes"][1], "id": "other"}
    finding = judged(ctx, {**facts, "nodes": [*facts["nodes"], twin]})["ray.cluster"]
    assert finding.outcome is Outcome.FAIL and "2 times" in finding.summary
    alone = [facts["nodes"][0], dead, facts["nodes"][2]]
    finding = judged(ctx, {**facts, "nodes": alone})["ray.cluster"]
    assert "missed too many heartbeats" in finding.summary


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("placement.placed", False, "no bundle on each node"),
        ("placement.removed", False, "not removed"),
        ("placement.removed", None, "not removed"),
        ("placement", None, "not tried"),
        ("members.1.ray_address", "10.9.0.11", "worker1's bundle ran on 10.9.0.11"),
        ("members.1.ray", "2.9.0", "worker1 has ray 2.9.0"),
        ("members.1.torch", "2.3.0", "worker1 has torch 2.3.0"),
        ("members.1.python", "3.11.9", "Python differs between nodes: 3.11.2, 3.11.9"),
        ("members.1.prefix", "/opt/other", "worker1's Ray runs from /opt/other"),
        ("members.1.interface", "", "worker1 has no interface with its address"),
        ("members.1", None, "actors did not start on every node"),
        ("members", None, "actors did not start on every node"),
        ("members.1", "nonsense", "actors did not start on every node"),
    ],
)
def test_a_failed_placement_fails(ctx: Context, path: str, value: Any, words: str) -> None:
    finding = judged(ctx, facts_with(ctx, path, value))["ray.placement"]
    assert finding.outcome is Outcome.FAIL and words in finding.summary


@pytest.mark.parametrize(
    ("path", "value", "outcome", "words"),
    [
        ("collective.wrong", 4, Outcome.FAIL, "4 wrong elements"),
        ("collective.world", 2, Outcome.FAIL, "2 ranks took part, not 3"),
        ("collective.busbw_gb_s", 0, Outcome.FAIL, "did not end well"),
        ("collective.busbw_gb_s", float("nan"), Outcome.FAIL, "did not end well"),
        ("collective.busbw_gb_s", "fast", Outcome.FAIL, "did not end well"),
        ("collective.wrong", None, Outcome.FAIL, "did not end well"),
        ("collective", None, Outcome.FAIL, "did not end well"),
        ("collective", [], Outcome.FAIL, "did not end well"),
        ("collective.wrong_ranks", None, Outcome.PASS, "data right"),
    ],
)
def test_the_all_reduce_is_judged_by_its_data(
    ctx: Context, path: str, value: Any, outcome: Outcome, words: str
) -> None:
    finding = judged(ctx, facts_with(ctx, path, value))["collective.all_nodes"]
    assert finding.outcome is outcome and words in finding.summary


def test_an_all_reduce_that_was_never_tried_is_not_run(ctx: Context) -> None:
    facts = samples.ray_facts(ctx)
    del facts["collective"], facts["members"]
    assert judged(ctx, facts)["collective.all_nodes"].outcome is Outcome.NOT_RUN


def test_speed_is_judged_only_by_a_figure(ctx: Context) -> None:
    facts = samples.ray_facts(ctx)
    finding = judged(ctx, facts)["collective.all_nodes"]
    assert finding.outcome is Outcome.PASS and "no bandwidth figure exists" in finding.summary
    assert finding.metrics == {"busbw_gb_s": 0.36, "ranks_count": 3}
    slow = judged(samples.with_config(ctx, collective_min_gb_s=0.5), facts)
    assert slow["collective.all_nodes"].outcome is Outcome.FAIL
    assert "0.360 GB/s is under 0.5" in slow["collective.all_nodes"].summary
    fast = judged(samples.with_config(ctx, collective_min_gb_s=0.3), facts)
    assert fast["collective.all_nodes"].outcome is Outcome.PASS
    assert "no bandwidth figure" not in fast["collective.all_nodes"].summary


def test_one_ray_node_alone_has_nothing_to_reduce(ctx: Context) -> None:
    alone = ctx.fleet.model_copy(update={"nodes": {"head1": ctx.node}})
    single = Context(alone, ctx.node, ctx.lock)
    finding = found(single, collective.CHECK)["collective.all_nodes"]
    assert finding.outcome is Outcome.NOT_RUN and not finding.required


@pytest.mark.parametrize(
    ("output", "outcome", "words"),
    [
        (Output(rc=INACTIVE), Outcome.NOT_RUN, "ray-head.service is not running"),
        (Output(rc=124, seconds=50), Outcome.FAIL, "a node or the GCS hangs"),
        (Output(rc=1, stderr="ModuleNotFoundError: No module named 'ray'"), Outcome.NOT_RUN, "ray"),
        (ok('RACKPIN_JSON {"failed": "ConnectionError: no GCS"}'), Outcome.FAIL, "no GCS"),
        (ok('RACKPIN_JSON {"nodes": {}}'), Outcome.NOT_RUN, "lacks the list"),
        (ok('RACKPIN_JSON {"nodes": [{"alive": true}]}'), Outcome.NOT_RUN, "lacks the list"),
        (ok("RACKPIN_JSON [1]"), Outcome.NOT_RUN, "no answer"),
    ],
)
def test_without_facts_nothing_passes(
    ctx: Context, output: Output, outcome: Outcome, words: str
) -> None:
    findings = {
        **found(ctx, ray_cluster.CHECK, ray_probe=output),
        **found(ctx, collective.CHECK, ray_probe=output),
    }
    assert set(findings) == {"ray.cluster", "ray.placement", "collective.all_nodes"}
    for finding in findings.values():
        assert finding.outcome is outcome and words in finding.summary


def test_only_the_head_is_asked(target: Target) -> None:
    worker = samples.context(target, "worker1")
    assert not ray_cluster.CHECK.commands(worker) and not collective.CHECK.commands(worker)


def test_busbw_goes_by_the_slowest_rank() -> None:
    ranks = [
        {"rank": 0, "seconds": [0.1, 0.2], "wrong": 0},
        {"rank": 1, "seconds": [0.4, 0.1], "wrong": 3},
    ]
    result = figures(ranks, 600_000_000)
    assert result["seconds"] == [0.4, 0.2]
    assert result["algbw_gb_s"] == pytest.approx(2.0)
    assert result["busbw_gb_s"] == pytest.approx(2.0 * 2 * 1 / 2)
    assert result["wrong"] == 3 and result["wrong_ranks"] == [1]


def test_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.77") == ""
