"""Engines as the smoke generation saw them, for the report's own table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rackpin.findings import Finding, InstanceResult, Outcome
from rackpin.inventory import Fleet


def instance_results(fleet: Fleet, findings: Sequence[Finding]) -> list[InstanceResult]:
    """One row for each engine of the inventory. Not asked, or not answered: ``unknown``."""
    return [_result(fleet, index, findings) for index in range(len(fleet.config.instances))]


def _result(fleet: Fleet, index: int, findings: Sequence[Finding]) -> InstanceResult:
    instance = fleet.config.instances[index]
    node = instance.nodes[0]
    mine = [f for f in findings if f.node == node and f.check == f"smoke.{instance.name}"]
    outcome = mine[-1].outcome if mine else None
    state: Literal["serving", "not_serving", "unknown"] = "unknown"
    if outcome in (Outcome.PASS, Outcome.WARN):
        state = "serving"
    elif outcome is Outcome.FAIL:
        state = "not_serving"
    metrics = mine[-1].metrics if mine else {}
    address = fleet.nodes[node].address if node in fleet.nodes else node
    return InstanceResult(
        name=instance.name,
        nodes=instance.nodes,
        state=state,
        tp=instance.tp,
        pp=instance.pp,
        url=f"http://{address}:{instance.port}/v1",
        ttft_s=metrics.get("ttft_s"),
        tokens_per_s=metrics.get("tokens_per_s"),
    )
