"""The Ray cluster as its head sees it: members, resources, versions, and room for a bundle each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rackpin import layout
from rackpin.checks import probe
from rackpin.checks.base import (
    INACTIVE,
    NO_ANSWER,
    SERVING,
    Command,
    Context,
    Outputs,
    Question,
    one_line,
    unseen,
)
from rackpin.checks.versions import env_dir
from rackpin.findings import Finding, Level

NAME = "ray.probe"
PLACE_S, TOTAL_S, DEADLINE_S = 8, 40, 50
# A unit is active once `ray start` runs; its raylet was seen to join 2 to 5 s later on busy cores.
JOIN_S = 10
# The all-reduce: 64 MiB of float32, as large as an engine's prefill exchanges.
WORK = {"bytes": 64 * 1024 * 1024, "warmup": 1, "rounds": 3, "timeout_s": 20}
_SOURCE = "inventory: groups, address, gpus, instances"


def command(ctx: Context) -> Command:
    """The driver on the head, as the service user: Ray's session files are that user's."""
    config = ctx.fleet.config
    params = {
        "address": f"{ctx.fleet.head.address}:{config.ray.ports.gcs}",
        "nodes": [node.address for node in ctx.fleet.ray_nodes],
        "join_s": JOIN_S,
        "place_s": PLACE_S,
        "total_s": TOTAL_S,
        "work": WORK,
    }
    user = layout.USER
    shell = (
        f"systemctl is-active -q {layout.RAY_HEAD_UNIT} || exit {INACTIVE}\n"
        f"exec setpriv --reuid={user} --regid={user} --init-groups env -i HOME={layout.STATE} "
        f"PATH=/usr/bin:/bin LC_ALL=C RAY_USAGE_STATS_ENABLED=0 {layout.PYTHON} -I -"
    )
    script = probe.text("collective", "ray_cluster", params=params)
    return Command(NAME, shell, deadline_s=DEADLINE_S, stdin=script, slow=True)


class RayCluster:
    id = "ray.cluster"
    title = "Ray's nodes, resources, versions and placement"
    level: Level = "node"
    needs = SERVING

    def commands(self, ctx: Context) -> Sequence[Command]:
        return [command(ctx)] if ctx.node.is_head else []

    def judge(self, ctx: Context, outputs: Outputs) -> list[Finding]:
        if not ctx.node.is_head:
            return []
        nodes = ctx.fleet.ray_nodes
        expected = ", ".join(f"{n.name} {n.address} GPU {ctx.fleet.ray_gpus(n)}" for n in nodes)
        asked, output = command(ctx), outputs.get(NAME, NO_ANSWER)
        members = Question(ctx, "ray.cluster", asked, output, expected, _SOURCE)
        expected = f"a bundle on each of {len(nodes)} nodes within {PLACE_S} s, equal versions"
        placement = Question(ctx, "ray.placement", asked, output, expected, _SOURCE)
        answer = read(members, outputs)
        if isinstance(answer, Finding):
            return [answer, answer.model_copy(update={"check": "ray.placement"})]
        return [judge_members(members, answer), judge_placement(placement, answer)]


def read(question: Question, outputs: Outputs) -> dict[str, Any] | Finding:
    """The probe's facts, or the finding that says why there are none."""
    asked, output = command(question.ctx), outputs.get(NAME, NO_ANSWER)
    remedy = f"journalctl -u {layout.RAY_HEAD_UNIT} -n 50 on the head, then verify again"
    why = unseen(asked, output)
    if output.timed_out:
        fault = f"the cluster gave {why}: a node or the GCS hangs"
        return question.verdict("", [fault], remedy=remedy)
    if output.rc == INACTIVE:
        why = f"{layout.RAY_HEAD_UNIT} is not running"
    if why is None:
        try:
            facts = probe.answer(output.stdout)
        except ValueError as error:
            why = f"{error} (exit status {output.rc}): {one_line(output.stderr, 200)}"
    if why is not None:
        return question.not_run(why, remedy=remedy)
    if "failed" in facts:
        fault = f"the head can't work with its own cluster: {facts['failed']}"
        return question.verdict("", [fault], remedy=remedy)
    if not _wellformed(facts):
        return question.not_run("the probe's answer lacks the list of nodes")
    return facts


def _wellformed(facts: dict[str, Any]) -> bool:
    nodes = facts.get("nodes")
    return isinstance(nodes, list) and all(
        isinstance(n, dict)
        and isinstance(n.get("address"), str)
        and isinstance(n.get("resources"), dict)
        and isinstance(n.get("alive"), bool)
        for n in nodes
    )


def judge_members(question: Question, facts: dict[str, Any]) -> Finding:
    """``ray.cluster``: every node once, at its address, with the GPUs that Ray may give away."""
    fleet = question.ctx.fleet
    alive = [node for node in facts["nodes"] if node["alive"]]
    dead = [node for node in facts["nodes"] if not node["alive"]]
    faults, shown = [], []
    for node in fleet.ray_nodes:
        mine = [n for n in alive if n["address"] == node.address]
        want = fleet.ray_gpus(node)
        if not mine:
            deaths = [str(n.get("death")) for n in dead if n["address"] == node.address]
            died = f" (left: {one_line(deaths[-1], 120)})" if deaths else ""
            faults.append(f"{node.name} ({node.address}) is not in the cluster{died}")
        elif len(mine) > 1:
            faults.append(f"{node.name} is there {len(mine)} times: an old raylet lives on")
        elif (has := _number(mine[0]["resources"].get("GPU", 0))) != want:
            faults.append(f"{node.name} offers {has:g} GPUs, not {want}")
    known = {node.address for node in fleet.nodes.values() if fleet.in_ray(node)}
    faults += [
        f"{n['address']} ({n.get('hostname') or 'no name'}) is no node of this fleet"
        for n in alive
        if n["address"] not in known
    ]
    for n in facts["nodes"]:
        resources = {k: v for k, v in n["resources"].items() if k in ("CPU", "GPU")}
        shown.append(f"{n['address']} {'alive' if n['alive'] else 'dead'} {resources}")
    good = f"{len(alive)} nodes, Ray {facts.get('ray')}"
    if dead:
        good += f" ({len(dead)} entries of nodes' earlier sessions)"
    return question.verdict(
        good,
        faults,
        shown="\n".join(shown),
        remedy="journalctl -u ray-worker on the node that is missing or wrong; a stranger's raylet "
        "must be stopped where it runs",
        metrics={"alive_count": len(alive), "dead_count": len(dead)},
    )


def judge_placement(question: Question, facts: dict[str, Any]) -> Finding:
    """``ray.placement``: one bundle on each node was placed, ran the same versions, is gone."""
    placement, members = facts.get("placement"), facts.get("members")
    nodes = question.ctx.fleet.ray_nodes
    remedy = (
        "`ray status` and `ray list placement-groups` on the head; leftovers of a job hold CPUs, a "
        "node with other versions needs the deploy"
    )
    if not isinstance(placement, dict):
        fault = "not tried: not all nodes are in the cluster"
        return question.verdict("", [fault], remedy="see ray.cluster")
    faults = []
    members = [m for m in members if isinstance(m, dict)] if isinstance(members, list) else []
    if not placement.get("placed"):
        faults.append(
            f"no bundle on each node within {PLACE_S} s: CPUs are taken or a raylet hangs"
        )
    elif len(members) != len(nodes):
        detail = one_line(str(facts.get("error", "no word why")), 200)
        faults.append(f"actors did not start on every node: {detail}")
    else:
        faults += differing(question.ctx, members)
    if not placement.get("removed"):
        faults.append("the placement group was not removed within 5 s")
    shown = "\n".join(
        f"{m.get('address')} {m.get('hostname')} {m.get('interface')} Python {m.get('python')} "
        f"Ray {m.get('ray')} torch {m.get('torch')} {m.get('prefix')}"
        for m in members
    )
    return question.verdict(
        f"a bundle on each of {len(nodes)} nodes, equal versions",
        faults,
        shown=shown or str(facts.get("error", "")),
        remedy=remedy,
        metrics={"placement_s": max(0.0, round(_number(placement.get("seconds")), 3))},
    )


def differing(ctx: Context, members: list[dict[str, Any]]) -> list[str]:
    """Members that run elsewhere, or with other versions than the lock or the others have."""
    faults = []
    names = {node.address: node.name for node in ctx.fleet.ray_nodes}
    for member in members:
        name = names.get(str(member.get("address")), str(member.get("address")))
        if member.get("ray_address") != member.get("address"):
            faults.append(f"{name}'s bundle ran on {member.get('ray_address')}")
        if not member.get("interface"):
            faults.append(f"{name} has no interface with its address")
        if member.get("prefix") != env_dir(ctx):
            faults.append(f"{name}'s Ray runs from {member.get('prefix')}")
        for dist in ("ray", "torch"):
            locked = ctx.lock.dists.get(dist)
            if locked is not None and member.get(dist) != locked:
                faults.append(f"{name} has {dist} {member.get(dist)}, locked {locked}")
    pythons = {str(m.get("python")) for m in members}
    if len(pythons) > 1:
        faults.append(f"Python differs between nodes: {', '.join(sorted(pythons))}")
    return faults


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -1.0


CHECK = RayCluster()
