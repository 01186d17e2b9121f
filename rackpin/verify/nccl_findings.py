"""What the collectives mean for each node and for the fleet: findings in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rackpin.checks.base import mask, one_line
from rackpin.findings import Evidence, Finding, Outcome
from rackpin.skus import Figure, Sku
from rackpin.verify.blame import named
from rackpin.verify.group import DRIFT_BELOW, Group
from rackpin.verify.nccl_run import Judged
from rackpin.verify.pairs import Pair

LOOP, PAIRS, FLEET = "nccl.loop", "nccl.pairs", "nccl.fleet"
BURNIN, CLEANUP = "nccl.burnin", "nccl.cleanup"
ALL = "fleet"  # whose findings are nobody's alone
MEASURE = (
    "measure two new nodes of it at a size of several GiB, and write the figure with its source "
    "into skus/{sku}.yaml (internode)"
)


BISECTED = (
    "it only shows while many nodes send: see the counters of its HCAs and of the switch ports on "
    "the way while the level fleet runs; keep it out until that is mended"
)


def finding(
    node: str,
    check: str,
    outcome: Outcome,
    summary: str,
    *,
    figure: Figure | None = None,
    sku: Sku | None = None,
    remedy: str = "",
    source: Judged | None = None,
    required: bool = True,
    speed: float | None = None,
) -> Finding:
    expected = origin = ""
    if figure is not None and sku is not None:
        expected = (
            f"{figure.expected:g} {figure.unit}; warn below {figure.warn_below:g}, "
            f"fail below {figure.fail_below:g}"
        )
        origin = f"skus/{sku.name}.yaml, {figure.name}: {figure.source}"
    command = f"all_reduce_perf over {named(source.collective.nodes)}" if source else ""
    metrics = {} if speed is None else {"busbw_gb_s": speed}
    if speed is not None and figure is not None:
        metrics |= {"busbw_min_gb_s": figure.fail_below, "busbw_expected_gb_s": figure.expected}
    return Finding(
        node=node,
        check=check,
        outcome=outcome,
        summary=mask(one_line(summary, 800)),
        expected=expected,
        evidence=Evidence(
            command=command,
            output=source.evidence if source else "",
            seconds=source.measurement.seconds if source else None,
        ),
        remedy="" if outcome is Outcome.PASS else remedy,
        source=origin,
        required=required,
        metrics=metrics,
    )


def of_loop(one: Judged) -> Finding:
    """A node alone, every hop through its HCAs."""
    node, figure, speed = one.collective.nodes[0], one.collective.figure, one.measurement.busbw_gb_s
    sku, outcome = one.collective.sku, one.measurement.outcome
    good = f"{speed:g} GB/s through the HCAs ({one.measurement.transport})" if speed else ""
    summary = good if outcome is Outcome.PASS else one.measurement.why
    remedy = one.remedy or (
        "see fabric.hcas, fabric.peermem, gpu.pcie and the ACS of the PCIe switches; then "
        "ib_write_bw of each HCA to itself finds the slow one"
    )
    if outcome is Outcome.NOT_RUN:
        summary = f"not checked: {summary}"
    if figure is None and not one.trouble:
        summary = f"{summary}; measured {speed} GB/s"
        remedy = MEASURE.format(sku=sku.name).replace("(internode)", "(nic_loop)")
    return finding(
        node, LOOP, outcome, summary,
        figure=figure, sku=sku, remedy=remedy, source=one, speed=speed,
    )  # fmt: skip


def of_pairs(group: Group) -> list[Finding]:
    unstable = group.matrix.unstable()
    return [_of_node(group, node, unstable) for node in group.nodes]


def _of_node(group: Group, node: str, unstable: Sequence[Pair]) -> Finding:
    sku, partners = group.sku, group.matrix.partners(node)
    good = {name: one for name, one in partners.items() if not group.matrix.bad(one)}
    results = list(partners.values())
    figure = results[0].collective.figure if results else None
    mine = [fault for fault in group.faults if node in fault.nodes]
    if mine:
        worst = next((f for f in mine if f.outcome is Outcome.FAIL), mine[0])
        source = next((one for one in reversed(results) if group.matrix.bad(one)), None)
        speed = source.measurement.busbw_gb_s if source else None
        return finding(
            node, PAIRS, worst.outcome, "; ".join(fault.text for fault in mine),
            figure=figure, sku=sku, remedy=worst.remedy, source=source, speed=speed,
        )  # fmt: skip
    if not good:
        unfit = group.unfit.get(node)
        why = unfit.measurement.why if unfit else "no sound partner was left to measure it with"
        remedy = unfit.remedy if unfit else "mend or take out its partners, and run it again"
        return finding(
            node, PAIRS, Outcome.NOT_RUN, f"not checked: {why}", sku=sku, remedy=remedy,
            source=unfit,
        )  # fmt: skip
    slowest = min(good, key=lambda name: good[name].measurement.busbw_gb_s or 0)
    one, speed = good[slowest], good[slowest].measurement.busbw_gb_s
    text = f"{speed:g} GB/s at least (with {slowest}), " if speed is not None else ""
    text += f"sound with {len(good)} of {len(group.nodes) - 1} partners{_coverage(group)}"
    text += f" ({one.measurement.transport})" if one.measurement.transport else ""
    if figure is None:
        why = f"no figure is recorded for {sku.name}, so it is only compared with its siblings"
        return finding(
            node, PAIRS, Outcome.NOT_RUN, f"not checked: {why}: {text}",
            sku=sku, remedy=MEASURE.format(sku=sku.name), source=one, speed=speed,
        )  # fmt: skip
    odd = [other for pair in unstable if node in pair for other in pair]
    partner = next((other for other in odd if other != node and other not in group.out), None)
    lost = group.unfit.get(node)
    outcome, remedy = Outcome.PASS, ""
    if partner is not None:
        outcome, remedy = Outcome.WARN, "run the level burnin over both; see their HCAs' counters"
        text += f"; with {partner} it was bad once and well the next time"
    elif lost is not None:
        outcome, remedy = Outcome.WARN, lost.remedy
        text += f"; one of its pairs says nothing: {lost.measurement.why}"
    return finding(
        node, PAIRS, outcome, text,
        figure=figure, sku=sku, remedy=remedy, source=one, speed=speed,
    )  # fmt: skip


def _coverage(group: Group) -> str:
    if group.done < group.planned:
        return f" ({group.done} of {group.planned} rounds were asked for: not every pair was run)"
    return ""


def of_fleet(group: Group, alone: bool) -> list[Finding]:
    """All nodes of the SKU together; ``alone``: the fleet has no other SKU."""
    check, sku = FLEET if alone else f"{FLEET}.{group.sku.name}", group.sku
    left = [node for node in group.nodes if node not in group.took]
    one = group.together
    if one is None:
        why, remedy = "fewer than two sound nodes are left", "mend what nccl.pairs names"
        if group.all_unfit:
            unfit = next(iter(group.unfit.values()))
            why, remedy = unfit.measurement.why, unfit.remedy
        return [finding(ALL, check, Outcome.NOT_RUN, f"not checked: {why}", remedy=remedy)]
    figure, speed, outcome = (
        one.collective.figure,
        one.measurement.busbw_gb_s,
        one.measurement.outcome,
    )
    parts = [f"{len(group.took)} of {len(group.nodes)} {sku.name} nodes together"]
    why = one.measurement.why or (f"{speed:g} GB/s" if speed is not None else "")
    parts += [why] if why else []
    remedy = one.remedy or "see what is named; measure that part again with nothing else running"
    if group.search is not None:
        parts += [culprit.text for culprit in group.search.culprits]
    if left:
        parts.append(f"without {named(left)}, see nccl.pairs")
        outcome = Outcome.WARN if outcome is Outcome.PASS else outcome
    if figure is None and outcome is Outcome.NOT_RUN and one.trouble != "unfit":
        remedy = MEASURE.format(sku=sku.name)
    if outcome is Outcome.NOT_RUN:
        parts[0] = f"not checked: {parts[0]}"
    found = [
        finding(
            ALL, check, outcome, "; ".join(parts),
            figure=figure, sku=sku, remedy=remedy, source=one, speed=speed,
        )
    ]  # fmt: skip
    # what takes a whole set is nobody's own fault; a node or a link is, and must not serve
    for culprit in group.search.culprits if group.search else ():
        if culprit.kind != "set":
            found += [
                finding(node, check, Outcome.FAIL, culprit.text, sku=sku, remedy=BISECTED)
                for node in culprit.nodes
            ]
    return found


def of_burnin(group: Group, seconds: float) -> Finding:
    """The same over a long time: whether it stays as it was."""
    if not group.repeats:
        why = "not checked: the nodes together did not run well even once, see nccl.fleet"
        return finding(ALL, BURNIN, Outcome.NOT_RUN, why, remedy="mend that first")
    last, drift = group.repeats[-1], group.drift
    count = f"{len(group.repeats)} runs over {seconds:.0f} s"
    speeds = [s for one in group.repeats if (s := one.measurement.busbw_gb_s) is not None]
    common = {"figure": last.collective.figure, "sku": group.sku, "source": last}
    if not last.good:
        summary = f"after {len(group.repeats) - 1} good runs: {last.measurement.why}"
        outcome, remedy = Outcome.FAIL, "see XIDs, heat and link errors since the run began"
    elif drift is None:
        outcome, summary, remedy = Outcome.NOT_RUN, f"not checked: {count}, too few", "run longer"
    elif drift < DRIFT_BELOW:
        outcome, remedy = Outcome.WARN, "see clocks, heat and link errors of the nodes over time"
        summary = f"it became slower, by {(1 - drift) * 100:.1f} % within {count}"
    else:
        outcome, remedy = Outcome.PASS, ""
        summary = f"{count}, {min(speeds):g} to {max(speeds):g} GB/s, no drift"
    return finding(ALL, BURNIN, outcome, summary, remedy=remedy, **common)  # type: ignore[arg-type]


def of_cleanup(node: str, left: Sequence[str], name: str) -> Finding:
    """Something of the tests is on the node still, or nobody knows."""
    return finding(
        node, CLEANUP, Outcome.WARN, f"after the NCCL tests: {'; '.join(left)}",
        remedy=f"systemctl stop '{name}*'; rm -rf /run/{name}*; it ends by itself too",
    )  # fmt: skip
