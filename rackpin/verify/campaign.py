"""The NCCL part of a verify: which collectives a level runs over which nodes, and what they say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rackpin.checks.allreduce import TOOL
from rackpin.checks.base import NO_ANSWER
from rackpin.checks.gpuinfo import NO_CARD
from rackpin.findings import Finding, Level, Measurement, Outcome, at_least
from rackpin.inventory import Fleet
from rackpin.nccltests.build import MPI_PACKAGE, ROOT, Kind
from rackpin.skus import Sku, SkuError, load_sku
from rackpin.stack.lock import Lock
from rackpin.verify import launch, nccl_command, nccl_findings, nccl_run
from rackpin.verify.asking import Asker, Tell
from rackpin.verify.group import Group
from rackpin.verify.launch import Prepared, Session
from rackpin.verify.measure import Measurer
from rackpin.verify.nccl_findings import LOOP, PAIRS, finding

BURNIN_S = 3600.0  # until heat and clocks have settled, several times over
EXTRA_ROUNDS = 20  # beyond all pairs: again, all together, halves of halves
ROUND_S = 60  # of a round beside its run: ssh, logs, clearing


@dataclass
class Campaign:
    """What was measured and found; filled as it goes, so an interrupted one can be told of."""

    measurements: list[Measurement] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run_campaign(
    fleet: Fleet,
    lock: Lock,
    nodes: Sequence[str],
    ask: Asker,
    level: Level,
    tell: Tell,
    *,
    rounds: int | None = None,
    library: Kind = "engine",
    burnin_s: float = BURNIN_S,
    port: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    into: Campaign | None = None,
) -> Campaign:
    """Run what the level asks over these nodes, which must serve nothing.

    ``rounds``: of pairs, at most; None for every pair. ``port``: of the nodes' own sshd; None for
    the inventory's. ``into``: filled while it runs. Never raises for what a node does; what it
    started on nodes is ended in any case.
    """
    found = into if into is not None else Campaign()
    if not at_least(level, "node"):
        return found
    skus = _known(fleet, nodes, found)
    if not skus:
        return found
    groups: dict[tuple[str, int], list[str]] = {}
    for node in skus:
        groups.setdefault((skus[node].name, fleet.nodes[node].gpus), []).append(node)
    gpus = {node: fleet.nodes[node].gpus for node in skus}
    addresses = {node: fleet.nodes[node].address for node in skus}
    largest = max(map(len, groups.values()))
    longest = max(
        nccl_run.Collective("pair", tuple(names), skus[names[0]], gpus[names[0]]).deadline_s
        for names in groups.values()
    )
    life = (largest * len(groups) + EXTRA_ROUNDS) * (longest + ROUND_S)
    life += int(burnin_s) if level == "burnin" else 0
    session = Session(addresses, life, port or fleet.config.nccl_port)
    measure = Measurer(ask, tell, session, skus, gpus, library, found.measurements)
    looped = [node for node in skus if skus[node].hcas is not None]
    hung = set()
    for one in measure.round("loop", [(node,) for node in looped]):
        found.findings.append(nccl_findings.of_loop(one))
        if one.trouble == "hung":
            hung.add(one.collective.nodes[0])
    if level == "node":
        return found
    for node in hung:
        _cannot(node, "it hung alone, see nccl.loop", "mend that first", found)
    if not any(p.name == MPI_PACKAGE for some in lock.packages.values() for p in some):
        found.notes.append(f"the lock has no {MPI_PACKAGE}: its nccl-tests can't run over nodes")
    several = [names for names in groups.values() if len(names) > 1]
    for names in groups.values():
        if len(names) < 2:
            found.findings.append(_single(names[0], skus[names[0]]))
    taking = [node for names in several for node in names]
    if taking:
        try:
            _together(
                [node for node in taking if node not in hung],
                several,
                measure,
                found,
                level,
                rounds,
                burnin_s,
                clock,
            )
        finally:
            _clean(taking, session, ask, found)
    return found


def _known(fleet: Fleet, nodes: Sequence[str], found: Campaign) -> dict[str, Sku]:
    """SKUs of the nodes that have cards to test; findings for the others."""
    skus: dict[str, Sku] = {}
    for name in nodes:
        node = fleet.nodes[name]
        try:
            sku = load_sku(node.sku)
        except SkuError as error:
            remedy = "write skus/NAME.yaml for this hardware, and name it in the inventory"
            why = f"not checked: {error}"
            found.findings.append(finding(name, PAIRS, Outcome.NOT_RUN, why, remedy=remedy))
            continue
        if node.gpus == 0 or sku.gpus.model == NO_CARD:
            why, remedy = "not checked: the node has no cards", "nothing to do"
            found.findings.append(
                finding(name, PAIRS, Outcome.NOT_RUN, why, remedy=remedy, required=False)
            )
            continue
        skus[name] = sku
        if sku.hcas is None:
            why, remedy = f"not checked: {sku.name} has no HCAs", "nothing to do"
            found.findings.append(
                finding(name, LOOP, Outcome.NOT_RUN, why, remedy=remedy, required=False)
            )
    return skus


def _single(node: str, sku: Sku) -> Finding:
    why = f"not checked: it is the only node of the SKU {sku.name} that was asked for"
    remedy = "nothing to do; verify it together with another node of its SKU to test the way there"
    return finding(node, PAIRS, Outcome.NOT_RUN, why, remedy=remedy, required=False)


def _together(
    nodes: Sequence[str],
    groups: Sequence[Sequence[str]],
    measure: Measurer,
    found: Campaign,
    level: Level,
    rounds: int | None,
    burnin_s: float,
    clock: Callable[[], float],
) -> None:
    ready = _ready(nodes, measure, found)
    for names in groups:
        sound = [node for node in names if node in ready]
        group = Group(measure.skus[names[0]], sound, measure)
        if len(sound) < 2:
            for node in sound:
                why = "not checked: no other node of its SKU can take part"
                remedy = "mend what nccl.pairs says of them"
                found.findings.append(finding(node, PAIRS, Outcome.NOT_RUN, why, remedy=remedy))
        else:
            group.pairwise(rounds)
            found.findings += nccl_findings.of_pairs(group)
        if level == "pair":
            continue
        if len(sound) >= 2 and not group.all_unfit:
            group.whole()
        group.nodes = list(names)
        found.findings += nccl_findings.of_fleet(group, len(groups) == 1)
        if level == "burnin":
            group.burn(burnin_s, clock)
            found.findings.append(nccl_findings.of_burnin(group, burnin_s))


def _ready(nodes: Sequence[str], measure: Measurer, found: Campaign) -> set[str]:
    """Nodes that run their sshd and know each other's keys; findings for those that can't."""
    session = measure.session
    program = f"{ROOT}/{measure.library}/{TOOL}"
    measure.tell(f"an sshd of its own on {len(nodes)} nodes, port {session.port}")
    asked = {node: launch.prepare(session, node, program) for node in nodes}
    outputs = measure.ask({node: [command] for node, command in asked.items()})
    keys: dict[str, Prepared] = {}
    for node, command in asked.items():
        output = outputs.get(node, {}).get(command.name, NO_ANSWER)
        one = launch.read_prepared(session, node, command, output)
        if one.problem:
            _cannot(node, one.problem, one.remedy, found)
        else:
            keys[node] = one
    trusting = {node: launch.trust(session, node, keys, nccl_command.FILES) for node in keys}
    outputs = measure.ask({node: [command] for node, command in trusting.items()})
    ready = set()
    for node, command in trusting.items():
        output = outputs.get(node, {}).get(command.name, NO_ANSWER)
        if output.ok and output.stdout.split() == ["trusted"]:
            ready.add(node)
        else:
            why = f"its sshd did not get its keys (status {output.rc})"
            _cannot(node, why, "see whether the node answers, and whether /run is full", found)
    return ready


def _cannot(node: str, problem: str, remedy: str, found: Campaign) -> None:
    summary = f"not checked: {problem}"
    found.findings.append(finding(node, PAIRS, Outcome.NOT_RUN, summary, remedy=remedy))


def _clean(nodes: Sequence[str], session: Session, ask: Asker, found: Campaign) -> None:
    """End all on every node, and tell what is left."""
    command = launch.clean(session)
    outputs = ask({node: [command] for node in nodes})
    for node in nodes:
        output = outputs.get(node, {}).get(command.name, NO_ANSWER)
        if left := launch.left_behind(command, output):
            found.findings.append(nccl_findings.of_cleanup(node, left, session.name))
