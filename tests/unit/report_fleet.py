"""A fleet as it looks on a bad night: 64 nodes, 40 checks, pairs, one bad link, outliers.

``python -m tests.unit.report_fleet DIRECTORY`` writes its report, to be looked at.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from rackpin.findings import (
    Evidence,
    Finding,
    InstanceResult,
    Measurement,
    NodeResult,
    Outcome,
    Outlier,
    Report,
)

from .report_samples import LOCK, finding

CHECKS = (
    "reachable", "clock.sync", "disk.free", "hosts.self", "sysctl.live", "limits.raylet",
    "limits.engine", "swap.off", "apt.pins", "apt.sources", "guard.upgrades", "kernel.booted",
    "versions.installed", "versions.running", "units.failed", "secrets.files", "secrets.ps",
    "listeners.ports", "gpu.count", "gpu.model", "gpu.driver", "gpu.vbios", "gpu.bus", "gpu.ecc",
    "gpu.rows", "gpu.mig", "gpu.pcie", "gpu.clocks", "gpu.persistence", "gpu.xid",
    "gpu.allreduce", "fabric.manager", "fabric.gpus", "fabric.nvlink", "fabric.hcas",
    "fabric.counters", "fabric.peermem", "ray.cluster", "ray.placement", "smoke.llama-70b",
)  # fmt: skip
SKU, SIZE, EXPECTED, WARN, FAIL = "h100-sxm-8", 8 << 30, 48.5, 46.0, 43.0
NODE_EXPECTED, NODE_WARN, NODE_FAIL = 480.0, 468.0, 456.0
TRANSPORT = "IB, GDRDMA, 8 HCAs"


def names_of(count: int) -> list[str]:
    return [f"gpu-{number:03d}" for number in range(1, count + 1)]


def rounds_of(names: list[str]) -> list[list[tuple[str, str]]]:
    """The circle method: every pair once, each node in one pair a round. An even count."""
    ring, made = list(names), []
    for _ in range(len(names) - 1):
        made.append([(ring[k], ring[-1 - k]) for k in range(len(ring) // 2)])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return made


def measurement(kind: str, nodes: list[str], value: float | None, **more) -> Measurement:
    level = (EXPECTED, WARN, FAIL) if kind != "node" else (NODE_EXPECTED, NODE_WARN, NODE_FAIL)
    outcome = Outcome.NOT_RUN if value is None else Outcome.PASS
    if value is not None and value < level[1]:
        outcome = Outcome.FAIL if value < level[2] else Outcome.WARN
    why = f"{value} GB/s is below {level[1 if outcome == Outcome.WARN else 2]:g}"
    values = {
        "kind": kind, "nodes": nodes, "busbw_gb_s": value, "size_bytes": SIZE,
        "expected_gb_s": level[0], "warn_below_gb_s": level[1], "fail_below_gb_s": level[2],
        "transport": TRANSPORT, "outcome": outcome, "seconds": 11.4,
        "why": "" if outcome == Outcome.PASS else why, **more,
    }  # fmt: skip
    return Measurement(**values)


def pairs(names: list[str], bad: str, chance: random.Random) -> list[Measurement]:
    """All pairs; ``bad`` has one adapter too few, one pair has no figure, one is a bit slow."""
    made = []
    for number, round_ in enumerate(rounds_of(names)):
        for one, other in round_:
            value = round(chance.gauss(48.4, 0.35), 2)
            more: dict[str, object] = {"round": number}
            if bad in (one, other):
                value = round(chance.gauss(33.1, 0.5), 2)
                more |= {"transport": "IB, GDRDMA, 6 HCAs", "outcome": Outcome.FAIL}
                more["why"] = f"{value} GB/s is below 43; 6 HCAs where 8 are expected"
            elif {one, other} == {names[4], names[30]}:
                value = 44.9
            if {one, other} == {names[11], names[40]}:
                why = "no answer in 60 s; both nodes answered again afterwards"
                made.append(measurement("pair", [one, other], None, why=why, round=number))
            else:
                made.append(measurement("pair", [one, other], value, **more))
    return made


def how_found(names: list[str], bad: str, last: int) -> list[Measurement]:
    sound, other = names[1], names[11]
    return [
        measurement("retest", [bad, sound], 33.4, round=last + 1, outcome=Outcome.FAIL,
                    transport="IB, GDRDMA, 6 HCAs", why="33.4 GB/s is below 43 with a sound node"),
        measurement("retest", [other, names[2]], 48.2, round=last + 1),
        measurement("retest", [names[40], names[3]], 48.6, round=last + 1),
        measurement("bisect", names[: len(names) // 2], 33.2, round=last + 2),
        measurement("bisect", names[len(names) // 2 :], 48.1, round=last + 2),
    ]  # fmt: skip


def outliers(names: list[str], bad: str) -> list[Outlier]:
    more = len(names) - 2
    rows = [
        ("hca.firmware", bad, "28.39.1002", "28.39.2048 on all others", None, "fail"),
        ("gpu.vbios", names[21], "96.00.5E.00.01", "96.00.74.00.1A on all others", None, "warn"),
        ("temperature_c", names[21], "81", "61 ± 3", 6.7, "warn"),
        ("temperature_c", names[44], "77", "61 ± 3", 5.3, "warn"),
        ("all_reduce_busbw_gb_s", names[36], "469.1", "479.8 ± 0.9", 11.9, "warn"),
        ("bios.version", names[50], "2.3.1", "2.4.0 on all others", None, "warn"),
    ]
    return [
        Outlier(sku=SKU, what=what, node=node, value=value, usual=usual, siblings=more,
                distance=distance, outcome=Outcome(outcome))
        for what, node, value, usual, distance, outcome in rows
    ]  # fmt: skip


def _troubles(names: list[str], bad: str) -> dict[tuple[str, str], Finding]:
    gone = Evidence(command="nvidia-smi -L", output="", seconds=20.0)
    rows = [
        finding(bad, "fabric.hcas", "fail", "6 of 8 adapters are active: mlx5_4, mlx5_5 are down",
                expected="8 adapters, ACTIVE, 400 Gb/s", source=f"skus/{SKU}.yaml",
                remedy=f"Reseat the cables of mlx5_4 and mlx5_5 on {bad}; see its switch port.",
                evidence=Evidence(command="ibstat", seconds=0.2, output="CA 'mlx5_4'\n"
                                  "\tPort 1:\n\t\tState: Down\n\t\tPhysical state: Polling")),
        finding(names[24], "gpu.xid", "fail", "XID 79 on GPU 3 since boot: fallen off the bus",
                expected="no XID of a kind that stops work", source="checks, gpu.xid",
                remedy=f"Drain {names[24]}, power cycle it by its BMC, then verify again.",
                evidence=Evidence(command="dmesg", seconds=0.1,
                                  output="NVRM: Xid (PCI:0000:5d:00): 79, pid='<unknown>', GPU "
                                  "has fallen off the bus.")),
        finding(names[24], "gpu.count", "fail", "7 cards, 8 in the inventory",
                expected="8 cards", source="inventory, gpus",
                remedy=f"See gpu.xid of {names[24]}."),
        finding(names[44], "gpu.clocks", "warn", "GPU 2: hardware slowdown, thermal, for 41 s",
                expected="no slowdown under load", source="checks, gpu.clocks",
                remedy=f"Look at the fans and the inlet temperature of {names[44]}."),
        finding(names[36], "gpu.allreduce", "warn", "466.1 GB/s of bus bandwidth",
                expected="480 GB/s at 8 GiB", source=f"skus/{SKU}.yaml",
                remedy="Nothing may run beside it; measure again, then look at NVLink."),
        finding(names[51], "gpu.ecc", "not_run", "nvidia-smi -q gave no answer in 20 s",
                remedy=f"Look for XID lines in dmesg on {names[51]}.", evidence=gone),
    ]  # fmt: skip
    rows += [
        finding(name, "fabric.counters", "not_run", "perfquery is not installed", required=False,
                remedy="Install infiniband-diags to have error counters.")
        for name in names[48:]
    ]  # fmt: skip
    return {(one.node, one.check): one for one in rows}


def fleet(count: int = 64, partial: bool = False, passing_output: str = "x " * 60) -> Report:
    """An even ``count`` from 64 on; ``partial`` ends it in the middle of the pairs."""
    chance = random.Random(7)
    names = names_of(count)
    bad, out = names[17], {
        names[8]: "asked for by m.lindqvist since 2026-11-21: NVLink 3 flaps, RMA 88120 is open",
        names[59]: "asked for by ops-night since 2026-11-29: fan 4, part on its way",
    }  # fmt: skip
    troubles, nodes, findings = _troubles(names, bad), [], []
    stuck = {node for node, check in troubles if troubles[node, check].outcome != "warn"
             and troubles[node, check].required}  # fmt: skip
    gone = names[33]
    for place, name in enumerate(names):
        values: dict[str, object] = {"state": "not_ready" if name in stuck else "ready"}
        if name in out:
            values = {"state": "quarantined", "reason": out[name]}
        elif name == gone:
            values = {"state": "unreachable", "stage": "connect",
                      "reason": "ssh: timed out after 10 s"}  # fmt: skip
        elif name in stuck:
            first = next(one for key, one in troubles.items() if key[0] == name)
            values["reason"] = f"{first.check}: {first.summary}"
        nodes.append(NodeResult(name=name, groups=["head" if place == 0 else "workers", "gpu"],
                                address=f"10.20.{place // 200}.{10 + place % 200}",
                                remote_executions=6, **values))  # fmt: skip
        if name in out or name == gone:
            continue
        for check in CHECKS:
            speed = {}
            if check == "gpu.allreduce":
                speed = {
                    "busbw_gb_s": round(chance.gauss(479.8, 0.9), 1),
                    "busbw_min_gb_s": NODE_FAIL,
                    "busbw_expected_gb_s": NODE_EXPECTED,
                }
            elif check == "clock.sync":
                speed = {"offset_s": round(abs(chance.gauss(0, 0.002)), 4)}
            evidence = Evidence(command=f"# what {check} asks", output=passing_output,
                                seconds=0.1)  # fmt: skip
            made = finding(name, check, evidence=evidence, metrics=speed, expected="as pinned",
                           source=f"skus/{SKU}.yaml")  # fmt: skip
            findings.append(troubles.get((name, check), made))
    asked = [name for name in names if name not in out and name not in (gone, names[24])]
    asked = asked[: len(asked) // 2 * 2]
    measured = [measurement("node", [name], round(chance.gauss(479.8, 0.9), 1)) for name in asked]
    measured += [measurement("loop", [name], round(chance.gauss(48.6, 0.2), 2)) for name in asked]
    pair = pairs(asked, bad, chance)
    last = pair[-1].round
    if partial:
        pair = [one for one in pair if one.round < last // 2]
    else:
        pair += how_found(asked, bad, last)
        pair.append(measurement("fleet", asked, 33.0, round=last + 3, outcome=Outcome.FAIL,
                                why="33 GB/s is below 43"))  # fmt: skip
        findings.append(finding("fleet", "collective.pairs", "fail",
                                f"every pair with {bad} is slow: 33 GB/s, 6 HCAs",
                                expected="48.5 GB/s, 8 HCAs", source=f"skus/{SKU}.yaml",
                                remedy=f"See fabric.hcas of {bad}; keep it out until it is sound.",
                                metrics={"busbw_gb_s": 33.0, "busbw_min_gb_s": FAIL,
                                         "busbw_expected_gb_s": EXPECTED}))  # fmt: skip
    engines = [
        InstanceResult(name="llama-70b", nodes=names[:2], state="serving", tp=8, pp=2,
                       url="http://10.20.0.10:8000", ttft_s=0.312, tokens_per_s=1480.0),
        InstanceResult(name="qwen-7b", nodes=names[3:4], state="serving", tp=2, pp=1,
                       url="http://10.20.0.13:8001", ttft_s=0.087, tokens_per_s=2310.0),
    ]  # fmt: skip
    return Report(
        run="20261129T031502.118Z", started="2026-11-29T03:15:02+00:00", seconds=1403.0,
        deploy="verify", level="fleet", partial=partial, fleet="paris-1",
        stack="cuda12.8-vllm0.11", lock=LOCK, ready=False, nodes=nodes, instances=engines,
        findings=findings, measurements=[*measured, *pair],
        outliers=[] if partial else outliers(names, bad),
        stage_seconds={"survey": 3.1, "verify": 41.7, "pairs": 1120.4, "serving": 96.2},
        notes=["the last 3 runs had another lock: their values are no history"],
    )  # fmt: skip


if __name__ == "__main__":
    from rackpin.report import write

    for made in (fleet(), fleet(partial=True)):
        place = Path(sys.argv[1]) / ("partial" if made.partial else "whole")
        print(write(made, place).html)
