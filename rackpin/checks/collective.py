"""An all-reduce over all Ray nodes: the data is right, and as fast as the inventory asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rackpin.checks import ray_cluster
from rackpin.checks.base import NO_ANSWER, SERVING, Command, Context, Outputs, Question, one_line
from rackpin.findings import Finding, Level


class Collective:
    id = "collective.all_nodes"
    title = "All-reduce over all Ray nodes"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [ray_cluster.command(ctx)] if ctx.node.is_head else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not ctx.node.is_head:
            return []
        count, floor = len(ctx.fleet.ray_nodes), ctx.fleet.config.collective_min_gb_s
        expected = f"right sums on {count} ranks" + (f", busbw ≥ {floor:g} GB/s" if floor else "")
        asked, source = ray_cluster.command(ctx), "inventory: collective_min_gb_s"
        output = outputs.get(asked.name, NO_ANSWER)
        question = Question(ctx, self.id, asked, output, expected, source)
        if count < 2:
            why = "one Ray node alone has nothing to exchange"
            remedy = "nothing to do; it is asked once there is a second node"
            return [question.not_run(why, remedy=remedy, required=False)]
        answer = ray_cluster.read(question, outputs)
        return [answer if isinstance(answer, Finding) else judge_reduce(question, answer)]


def judge_reduce(question: Question, facts: dict[str, Any]) -> Finding:
    """Wrong data or no end fails. Without a figure to compare with, the summary says so."""
    fleet = question.ctx.fleet
    count, floor = len(fleet.ray_nodes), fleet.config.collective_min_gb_s
    result = facts.get("collective")
    numbers = _numbers(result)
    if numbers is None:
        why = one_line(str(facts.get("error") or "see ray.cluster and ray.placement"), 300)
        if not isinstance(facts.get("members"), list):
            return question.not_run(why, remedy="see ray.cluster and ray.placement")
        return question.verdict(
            "",
            [f"the all-reduce did not end well: {why}"],
            shown=str(facts.get("error", "")),
            remedy="from each node, connect to the others' high ports (a firewall that knows only "
            "Ray's ports stops gloo and NCCL); look at the interface in ray.placement",
        )
    world, wrong, bandwidth = numbers
    faults = []
    if world != count:
        faults.append(f"{world:g} ranks took part, not {count}")
    if wrong:
        faults.append(f"{wrong:g} wrong elements, on ranks {_ranks(result)}")
    if floor is not None and bandwidth < floor:
        faults.append(f"busbw {bandwidth:.3f} GB/s is under {floor:g} GB/s")
    text = f"{count} ranks, data right, busbw {bandwidth:.3f} GB/s (gloo)"
    if floor is None:
        text += "; no bandwidth figure exists for this SKU, so speed is not judged"
    return question.verdict(
        text,
        faults,
        shown=str(result),
        remedy="wrong data: take that rank's node out of service, test its memory and NIC; slow: "
        "compare the nodes' link speed (ethtool, ibstat)",
        metrics={"busbw_gb_s": round(bandwidth, 4), "ranks_count": world},
    )


def _ranks(result: Any) -> str:
    ranks = result.get("wrong_ranks") if isinstance(result, dict) else None
    return ", ".join(map(str, ranks)) if isinstance(ranks, list) else "?"


def _numbers(result: Any) -> tuple[float, float, float] | None:
    """World size, wrong elements, busbw in GB/s; None when any is missing or no number."""
    if not isinstance(result, dict):
        return None
    values = [result.get(key) for key in ("world", "wrong", "busbw_gb_s")]
    if not all(isinstance(v, int | float) and math.isfinite(v) and v >= 0 for v in values):
        return None
    world, wrong, bandwidth = (float(v) for v in values if v is not None)
    return (world, wrong, bandwidth) if bandwidth > 0 else None


CHECK = Collective()
