"""Join the Ray cluster as a driver, look at its nodes, place one bundle on each, reduce over all.

Runs on the head as the service user with the stack's Python; prints one line of JSON. What is
made in the cluster belongs to this driver: Ray removes it even if the driver is killed.
"""

from __future__ import annotations

import json
import platform
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # sent in one text with this one
    from rackpin.probes.collective import Rank, figures

PARAMS = "{}"  # filled in when the script is sent: see rackpin.checks.ray_cluster
MARK = "RACKPIN_JSON "


def nodes_of(ray: Any) -> list[dict[str, Any]]:
    """All nodes that the GCS knows, dead ones too."""
    return [
        {
            "id": node["NodeID"],
            "alive": bool(node["Alive"]),
            "address": node["NodeManagerAddress"],
            "hostname": node.get("NodeManagerHostname", ""),
            "resources": node.get("Resources", {}),
            "death": str(node.get("DeathReasonMessage") or "")[:200],
        }
        for node in ray.nodes()
    ]


def joined(ray: Any, wanted: list[str], wait_s: float) -> tuple[list[dict[str, Any]], set[str]]:
    """The nodes once all of these are alive, or as they are after so long; who is missing then."""
    until = time.monotonic() + wait_s
    while True:
        found = nodes_of(ray)
        missing = set(wanted) - {node["address"] for node in found if node["alive"]}
        if not missing or time.monotonic() > until:
            return found, missing
        time.sleep(0.5)


def place(ray: Any, addresses: list[str], wait_s: float) -> tuple[Any, dict[str, Any]]:
    """A placement group with a bundle on each of these nodes, and how it went."""
    from ray.util.placement_group import placement_group

    bundles = [{"CPU": 1, f"node:{address}": 0.001} for address in addresses]
    started = time.monotonic()
    group = placement_group(bundles, strategy="STRICT_SPREAD")
    placed = bool(group.wait(wait_s))
    return group, {"placed": placed, "seconds": time.monotonic() - started}


def remove(group: Any, wait_s: float) -> bool:
    """True once the GCS says that the group is gone."""
    from ray.util.placement_group import placement_group_table, remove_placement_group

    remove_placement_group(group)
    until = time.monotonic() + wait_s
    while time.monotonic() < until:
        if placement_group_table(group).get("state") == "REMOVED":
            return True
        time.sleep(0.05)
    return False


def collect(ray: Any, group: Any, params: dict[str, Any], until: float) -> dict[str, Any]:
    """Actors in the bundles: what each node runs with, and the all-reduce, all before ``until``."""
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    addresses = params["nodes"]
    actor = ray.remote(num_cpus=1, max_restarts=0)(Rank)
    ranks = [
        actor.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=group, placement_group_bundle_index=rank
            )
        ).remote(rank, address)
        for rank, address in enumerate(addresses)
    ]
    facts: dict[str, Any] = {}

    def answers(calls: list[Any]) -> list[Any]:
        return list(ray.get(calls, timeout=max(1.0, until - time.monotonic())))

    try:
        started = time.monotonic()
        facts["members"] = answers([rank.hello.remote() for rank in ranks])
        facts["members_s"] = time.monotonic() - started
        if len(ranks) > 1:
            first = facts["members"][0]
            meeting = f"tcp://{addresses[0]}:{first['port']}"
            work = params["work"]
            jobs = [rank.reduce.remote(meeting, len(ranks), work) for rank in ranks]
            facts["collective"] = figures(answers(jobs), work["bytes"])
    except Exception as error:  # any failure on any node is the answer to the question
        text = str(error).strip().splitlines() or [""]
        facts["error"] = f"{type(error).__name__}: {text[0]} … {text[-1]}"[:1000]
    finally:
        for rank in ranks:
            ray.kill(rank)
    return facts


def main() -> None:
    params = json.loads(PARAMS)
    started = time.monotonic()
    until = started + params["total_s"]
    import ray

    facts: dict[str, Any] = {"ray": ray.__version__, "python": platform.python_version()}
    facts["import_s"] = time.monotonic() - started
    try:
        ray.init(
            address=params["address"], namespace="rackpin-verify", log_to_driver=False,
            configure_logging=False, logging_level="ERROR",
        )  # fmt: skip
        facts["init_s"] = time.monotonic() - started - facts["import_s"]
        wanted = params["nodes"]
        facts["nodes"], missing = joined(ray, wanted, params["join_s"])
        if not missing:
            group, facts["placement"] = place(ray, wanted, params["place_s"])
            try:
                if facts["placement"]["placed"]:
                    facts |= collect(ray, group, params, until)
            finally:
                facts["placement"]["removed"] = remove(group, 5)
        ray.shutdown()
    except Exception as error:  # no cluster, no GCS: said in the answer, judged by the check
        text = str(error).strip().splitlines() or [""]
        facts["failed"] = f"{type(error).__name__}: {text[0]}"[:1000]
    facts["total_s"] = time.monotonic() - started
    print(MARK + json.dumps(facts))


if __name__ == "__main__":
    main()
