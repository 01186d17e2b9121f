"""Nodes that differ from their siblings: each may be right by itself, and one is the odd one.

Numbers by the distance from the median in median absolute deviations (MAD), words by the majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from rackpin.checks.base import LISTED, Evidence, cut, mask, one_line
from rackpin.findings import Finding, Outcome, Outlier
from rackpin.verify.siblings import Value, collect

__all__ = ["Outlier", "collect", "finding", "outliers"]

SIBLINGS = 3  # fewer can't outvote anybody
# Iglewicz and Hoaglin call a point an outlier from a modified z-score of 3.5: 3.5 / 0.6745 MADs.
LIMIT_MADS = 5.2
# The least deviation that counts, by key: equal siblings must not make noise of a sensor's step.
FLOORS = {
    "gpu.rest_temperature_c": 2.0,  # racks and heights differ by some degrees
    "gpu.rest_power_w": 4.0,
    "gpu.rest_clock_mhz": 30.0,  # two steps of the clock
    "memory_gib": 0.5,  # the firmware keeps a little more or less
}
FLOOR_PART = 0.001  # of the median, for every other number
CHECK, FLEET = "fleet.outliers", "fleet"
UNTOLD = "not told"


def outliers(values: Mapping[str, Mapping[str, Value]], sku_of: Mapping[str, str]) -> list[Outlier]:
    """Every value of a node that its siblings don't have, by SKU, key and node.

    ``values``: what :func:`collect` found, by node. Nodes that told nothing at all are left out;
    a key with fewer than three tellers says nothing.
    """
    groups: dict[str, dict[str, Mapping[str, Value]]] = {}
    for node, told in values.items():
        if told and node in sku_of:
            groups.setdefault(sku_of[node], {})[node] = told
    found: list[Outlier] = []
    for sku, nodes in sorted(groups.items()):
        for what in sorted({key for told in nodes.values() for key in told}):
            told = {node: mine[what] for node, mine in nodes.items() if what in mine}
            if len(told) < SIBLINGS:
                continue
            # A number beside words: compared as what is printed.
            if all(isinstance(value, float | int) for value in told.values()):
                found += _numbers(sku, what, {n: float(v) for n, v in told.items()})
            else:
                told |= {n: UNTOLD for n in nodes if n not in told}
                found += _words(sku, what, {n: str(v) for n, v in told.items()})
    return found


def _numbers(sku: str, what: str, told: Mapping[str, float]) -> list[Outlier]:
    middle = median(told.values())
    spread = median(abs(value - middle) for value in told.values())
    floor = max(spread, FLOORS.get(what, FLOOR_PART * abs(middle)), 1e-9)
    return [
        Outlier(
            sku=sku,
            what=what,
            node=node,
            value=f"{value:g}",
            usual=f"{middle:g} ± {spread:g}",
            siblings=len(told),
            distance=round(abs(value - middle) / floor, 1),
        )
        for node, value in sorted(told.items())
        if abs(value - middle) > LIMIT_MADS * floor
    ]


def _words(sku: str, what: str, told: Mapping[str, str]) -> list[Outlier]:
    """More than half of the siblings are right; without that, every one of them is named."""
    counts = Counter(told.values())
    if len(counts) == 1:
        return []
    (usual, most), *_ = counts.most_common(1)
    odd = {node: value for node, value in told.items() if value != usual}
    if 2 * most <= len(told):
        listed = [f"{one_line(value, 60)} ({n})" for value, n in counts.most_common(LISTED)]
        usual, odd = f"no majority: {', '.join(listed)}", dict(told)
    return [
        Outlier(
            sku=sku,
            what=what,
            node=node,
            value=mask(one_line(value, 300)),
            usual=mask(one_line(usual, 500)),
            siblings=len(told),
        )
        for node, value in sorted(odd.items())
    ]


def finding(found: Sequence[Outlier], nodes: Mapping[str, str]) -> Finding:
    """``fleet.outliers``. ``nodes``: the SKU of each node that told anything."""
    sizes = Counter(nodes.values())
    alone = sorted(sku for sku, size in sizes.items() if size < SIBLINGS)
    expected = "siblings of one SKU are alike"
    source = f"the nodes themselves: median and MAD, or the majority, of {SIBLINGS} and more"
    if len(alone) == len(sizes):
        why = "; ".join(f"{sku} has {sizes[sku]}" for sku in alone) or "no node told anything"
        return Finding(
            node=FLEET,
            check=CHECK,
            outcome=Outcome.NOT_RUN,
            summary=one_line(f"not checked: no SKU has {SIBLINGS} nodes to compare ({why})", 800),
            expected=expected,
            remedy=f"nothing to do in a fleet of fewer than {SIBLINGS} alike nodes",
            source=source,
            required=False,
        )
    compared = len(nodes) - sum(sizes[sku] for sku in alone)
    summary = f"{compared} nodes are like their siblings"
    if found:
        listed = [
            f"{one.node} {one.what}: {one_line(one.value, 80)}, usual {one_line(one.usual, 80)}"
            for one in found[:LISTED]
        ]
        summary = f"{len(found)} values unlike the siblings': {'; '.join(listed)}"
        if len(found) > LISTED:
            summary += f"; {len(found) - LISTED} more"
    if alone:
        summary += f"; without siblings: {', '.join(alone)}"
    lines = [
        f"{one.sku} {one.node} {one.what}: {one.value} | usual {one.usual}"
        f" | {one.siblings} siblings"
        + (f" | {one.distance:g} MADs" if one.distance is not None else "")
        for one in found
    ]
    return Finding(
        node=FLEET,
        check=CHECK,
        outcome=Outcome.WARN if found else Outcome.PASS,
        summary=mask(one_line(summary, 800)),
        expected=expected,
        evidence=Evidence(output=mask(cut("\n".join(lines)))),
        remedy="firmware and BIOS: bring the node to its siblings' version; a hot node: fans, "
        "airflow; settings: run the deploy, see what sets them"
        if found
        else "",
        source=source,
        metrics={"outliers_count": float(len(found)), "compared_count": float(compared)},
    )
